"""Reads what torch or pickle wrote and runs nothing of its author: tensors are real, all else is only named.

And files that hold values and no code: tensors of safetensors, arrays of numpy, JSON, tables of commas.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import torch

from dp2ddp.comparison.clock_texts import is_time
from dp2ddp.comparison.contents import opened

# what only builds values; all other names become a Thing
_BUILDERS = {
    "builtins": ("set", "frozenset", "complex", "slice", "bytearray"),
    "collections": ("OrderedDict",),
    "_codecs": ("encode",),
    "torch": ("Size", "device"),
    "torch._utils": (
        "_rebuild_tensor",
        "_rebuild_tensor_v2",
        "_rebuild_parameter",
        "_rebuild_parameter_with_state",
    ),
    "numpy": ("ndarray", "dtype"),
    **dict.fromkeys(("numpy.core.multiarray", "numpy._core.multiarray"), ("_reconstruct", "scalar")),
    **dict.fromkeys(("numpy.core.numeric", "numpy._core.numeric"), ("_frombuffer",)),
}


class Thing:
    """An object of a class that is not imported: what it was made from, and what it holds."""

    made_from: tuple[tuple[Any, ...], dict[str, Any]]
    held: list[Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Thing:
        thing = super().__new__(cls)
        thing.made_from, thing.held = (args, kwargs), []
        return thing

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __call__(self, *args: Any) -> Thing:
        """A method that was fetched: what it would return."""
        called: Thing = thing_class("", "call")(self, *args)
        return called

    def __setstate__(self, state: Any) -> None:
        self.held.append(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.held.append((key, value))

    def append(self, value: Any) -> None:
        """What a list is filled with."""
        self.held.append(value)

    def extend(self, values: Any) -> None:
        """The same, many at once."""
        self.held.extend(values)

    add = append


@functools.cache
def thing_class(module: str, name: str) -> type[Thing]:
    """One class a name, so that the same name is the same on both sides."""
    return type(name, (Thing,), {"__module__": module})


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_dtype or name in _BUILDERS.get(module, ()):
            return super().find_class(module, name)
        if (module, name) == ("torch.storage", "_load_from_bytes"):  # what pickle makes of a storage
            return lambda data: _load(io.BytesIO(data))
        if name == "_reconstructor" and module in ("copyreg", "copy_reg"):  # another way to say NEWOBJ
            return lambda kind, base, state: kind.__new__(kind)
        return thing_class(module, name)


_PICKLE = SimpleNamespace(
    Unpickler=_Unpickler, load=lambda file, **options: _Unpickler(file, **options).load(), __name__="pickle"
)


def read(path: Path) -> Any:
    """What is in the file; raises anything on a file that is none of torch's or pickle's, nor one of values alone."""
    if path.suffix in _READERS:
        return _READERS[path.suffix](path)
    with opened(path) as file:
        try:
            return _load(file)
        except Exception:
            file.seek(0)
            return _Unpickler(file).load()


def _load(file: IO[bytes]) -> Any:
    loaded = torch.load(file, map_location="cpu", pickle_module=_PICKLE, weights_only=False)
    if not isinstance(loaded, torch.jit.ScriptModule):
        return loaded
    # of an archive of TorchScript: what each part computes, and with which tensors
    texts = {name: getattr(part, "code", "") for name, part in loaded.named_modules()}
    plain = {name: re.sub(r"___torch_mangle_\d+", "", text) for name, text in texts.items()}
    return {"code": plain, "tensors": dict(loaded.state_dict())}


# ---- values alone


def _tensors(path: Path) -> Any:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return {"metadata": file.metadata()} | {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no dict


def _arrays(path: Path) -> Any:
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
    if isinstance(value, dict):
        return {key: each if is_time(str(key)) else _with_arrays(each) for key, each in value.items()}
    if isinstance(value, list):
        is_array = bool(value) and all(isinstance(each, float) for each in value)
        return np.array(value) if is_array else [_with_arrays(each) for each in value]
    return value


_READERS: dict[str, Callable[[Path], Any]] = {
    ".safetensors": _tensors,
    ".npy": _arrays,
    ".npz": _arrays,
    ".json": _json,
    ".jsonl": _json,
    ".csv": _table,
}
