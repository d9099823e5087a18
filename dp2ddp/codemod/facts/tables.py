"""Tables of names, written as words."""

from __future__ import annotations


def of(module: str, words: str) -> set[str]:
    """The qualified names of several things in one module: `of("os", "remove rename")`."""
    return {f"{module}.{word}" for word in words.split()}
