"""Imported only."""

Digraph = None
