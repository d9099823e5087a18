"""The idiomatic style on the new model: plain torch, as an expert would write it, and comments where a person must look."""
