"""Reads files that hold values and no code: tensors of safetensors, arrays of numpy, JSON, tables of commas."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dp2ddp.comparison.clock_texts import is_time


def _tensors(path: Path) -> Any:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return {"metadata": file.metadata()} | {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no dict


def _arrays(path: Path) -> Any:
    import numpy as np

    loaded = np.load(path, allow_pickle=False)
    if path.suffix != ".npz":
        return loaded
    return {name: each.tolist() if _are_times(name, each) else each for name, each in loaded.items()}


def _are_times(name: str, numbers: Any) -> bool:
    """Weights have dots in their names (`time_embed.bias`), or several dimensions."""
    plain = numbers.ndim < 2 and numbers.dtype.kind in "fiu" and "." not in name
    return plain and is_time(name) and bool((numbers >= 0).all())


def _json(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    try:
        return _with_arrays(json.loads(text))
    except json.JSONDecodeError:  # a value a line
        return [_with_arrays(json.loads(line)) for line in text.splitlines() if line.strip()]


def _table(path: Path) -> Any:
    """Columns by their names, or by their numbers where the first row is none of names."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [[_number(cell) for cell in row] for row in csv.reader(file)]
    named = bool(rows) and all(isinstance(cell, str) for cell in rows[0])
    names = rows.pop(0) if named else range(max(map(len, rows), default=0))
    columns = [[row[at] if at < len(row) else None for row in rows] for at in range(len(names))]
    return {"rows": [len(row) for row in rows]} | _with_arrays(dict(zip(names, columns, strict=True)))


def _number(cell: str) -> Any:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell


def _with_arrays(value: Any) -> Any:
    """Lists of numbers with fractions as arrays, which are compared relative to their largest number.

    Lists of times stay lists: an array under such a name (`time_embed.bias`) may be weights.
    """
    import numpy as np

    if isinstance(value, dict):
        return {key: each if is_time(str(key)) else _with_arrays(each) for key, each in value.items()}
    if isinstance(value, list):
        is_array = bool(value) and all(isinstance(each, float) for each in value)
        return np.array(value) if is_array else [_with_arrays(each) for each in value]
    return value


TEXTS = {".json": _json, ".jsonl": _json, ".csv": _table}  # are compared as lines, first
READERS: dict[str, Callable[[Path], Any]] = {
    ".safetensors": _tensors,
    ".npy": _arrays,
    ".npz": _arrays,
    **TEXTS,
}
