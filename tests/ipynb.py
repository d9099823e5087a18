"""Notebooks for tests, as Jupyter writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PYTHON = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}


def notebook(
    folder: Path,
    *cells: str,
    name: str = "train.ipynb",
    counts: Sequence[int | None] = (),
    metadata: dict[str, Any] | None = None,
) -> Path:
    """A notebook of code cells; one that begins with `md:` is prose. `counts` are the numbers beside the code cells."""
    numbers = iter(counts or range(1, len(cells) + 1))
    document = {
        "cells": [_prose(one[3:]) if one.startswith("md:") else _code(one, next(numbers)) for one in cells],
        "metadata": PYTHON if metadata is None else metadata,
        "nbformat": 4,
        "nbformat_minor": 4,
    }
    path = folder / name
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return path


def _prose(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _code(text: str, count: int | None) -> dict[str, Any]:
    lines = text.splitlines(keepends=True)
    outputs = [{"output_type": "stream", "name": "stdout", "text": ["an old output\n"]}]
    return {
        "cell_type": "code",
        "execution_count": count,
        "metadata": {},
        "outputs": outputs,
        "source": lines,
    }
