"""Edits, carried out on libcst's tree of a file."""
