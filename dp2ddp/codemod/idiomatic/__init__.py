"""The idiomatic style: what a PyTorch tutorial would write, with nothing but torch (docs/idiomatic.md).

Facts and the vocabulary of edits are those of the exact style; the rules are files of their own here (DDP7xx). What a
tutorial has no words for is a hazard, and then nothing is written: the exact style can.
"""
