"""The idiomatic style on the new model: plain torch, as an expert would write it, and comments where one must look."""
