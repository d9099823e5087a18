"""Runs that are made another one on purpose: an ulp away, in lockstep, with the same numbers drawn."""
