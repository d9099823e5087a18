"""Compares files by what is in them, in a process of the server, which has torch.

What torch or pickle wrote is read, and nothing of its author runs: tensors are real, all else is only named. Beside
them stand files that hold values and no code: tensors of safetensors, arrays of numpy, JSON, tables of commas.
"""

from __future__ import annotations

import cmath
import csv
import functools
import io
import json
import pickle
import re
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import msgspec
import numpy as np
import torch

from dp2ddp.comparison.clock_texts import is_time, without_clock, without_times
from dp2ddp.comparison.contents import (
    How,
    LibraryFile,
    Spelling,
    Unlike,
    have_same_words,
    library_file,
    opened,
)
from dp2ddp.comparison.differences import distances_between, largest

_DICTS = {dict, OrderedDict}  # what state_dict() gives, and what a comprehension makes of it: both load alike

_COMPLEX = (complex, np.complexfloating)
_INEXACT = (float, complex, np.inexact)
_PREFIX = "module."


def main(request: dict[str, Any]) -> None:
    """Writes path -> what differs (an Unlike; null for nothing) for each pair of `request["pairs"]`."""
    allowed, floor = request["allowed"], request["floor"]
    spellings = [Spelling(tuple((here, own) for here, own in words)) for words in request["spellings"]]
    differences = {
        path: difference(Path(a), Path(b), allowed, floor, (spellings[0], spellings[1]), library_file(path))
        for path, a, b in request["pairs"]
    }
    Path(request["answer"]).write_bytes(msgspec.json.encode(differences))


def difference(
    a: Path,
    b: Path,
    allowed: float,
    floor: float = 0.0,
    spellings: tuple[Spelling, Spelling] = (Spelling(), Spelling()),
    library: LibraryFile | None = None,
) -> Unlike | None:
    """The first thing that differs. `library`: whose file it is."""
    try:
        expected, actual = read(a), read(b)
    except Exception as error:  # torch.load raises anything on a file that is not one
        if _bytes_but_for_times(a) == _bytes_but_for_times(b):  # a .mat file says when it was made
            return None
        return Unlike(How.OTHERWISE, f"has other bytes, and cannot be read ({type(error).__name__})")
    left_out = library.keys if library else frozenset()
    return next(_Content(allowed, floor, spellings, left_out).differences(expected, actual, ""), None)


def _bytes_but_for_times(file: Path) -> str:
    return without_times(file.read_bytes().decode("latin-1"))


@dataclass
class _Content:
    """What is in two files, side by side."""

    allowed: float  # relative to a tensor's largest value
    floor: float  # absolute: momentum of a gradient that is nothing but rounding
    spellings: tuple[Spelling, Spelling]
    left_out: frozenset[str] = frozenset()  # keys of dicts
    kinds: dict[int, float] = field(default_factory=dict)  # _largest_of_kinds
    seen: dict[tuple[int, int], Any] = field(default_factory=dict)  # objects that hold each other, kept alive

    def differences(self, a: Any, b: Any, at: str) -> Iterator[Unlike]:
        a, b = map(_as_tensor, (a, b))
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            yield from self._tensor_differences(a, b, at)
        elif all(isinstance(x, _INEXACT) for x in (a, b)) and isinstance(a, _COMPLEX) == isinstance(
            b, _COMPLEX
        ):
            if _are_apart(a, b, self.allowed):
                yield _other_value(at, str(a), str(b))
        elif type(a) is not type(b) and not {type(a), type(b)} <= _DICTS:
            yield _other_value(at, repr(a), repr(b))
        elif isinstance(a, (dict, list, tuple, Thing)):
            yield from self._holder_differences(a, b, at)
        elif isinstance(a, np.ndarray):
            yield from self.differences(a.tolist(), b.tolist(), at)
        elif isinstance(a, str) and isinstance(b, str):
            a, b = self.spellings[0].plain(a), self.spellings[1].plain(b)
            if without_times(a) != without_times(b):
                yield _other_value(at, repr(a), repr(b))
        elif a != b:
            yield _other_value(at, repr(a), repr(b))

    def _holder_differences(self, a: Any, b: Any, at: str) -> Iterator[Unlike]:
        if (id(a), id(b)) in self.seen:
            return
        self.seen[id(a), id(b)] = (a, b)
        if isinstance(a, Thing):
            yield from self.differences(a.made_from, b.made_from, f"{at}({type(a).__name__})")
            yield from self.differences(_only(a.held), _only(b.held), at)
        elif isinstance(a, dict):
            yield from self._dict_differences(a, b, at)
        elif len(a) != len(b):
            yield Unlike(How.OTHERWISE, f"{at} has {len(b)} items instead of {len(a)}")
        else:
            for index, (x, y) in enumerate(zip(a, b, strict=True)):
                yield from self.differences(x, y, f"{at}[{index}]")

    def _dict_differences(self, a: dict[Any, Any], b: dict[Any, Any], at: str) -> Iterator[Unlike]:
        # such keys are equal to themselves alone
        if any(isinstance(key, (Thing, torch.Tensor)) for key in (*a, *b)):
            yield from self.differences(list(a.items()), list(b.items()), at)
            return
        self.kinds |= _largest_of_kinds(a)
        a, b = ({key: each[key] for key in each if key not in self.left_out} for each in (a, b))
        if a.keys() != b.keys():
            which = _other_keys(set(map(str, a)), set(map(str, b)))
            yield Unlike(How.KEYS, f"has other keys at {at or 'the top'}: {which}")
        shared = [key for key in a if key in b and not _is_clock(key, a[key], b[key])]
        for key in sorted(shared, key=lambda key: isinstance(a[key], (int, float, str))):  # weights tell more
            yield from self.differences(a[key], b[key], f"{at}[{key!r}]")

    def _tensor_differences(self, a: Any, b: Any, at: str) -> Iterator[Unlike]:
        if a.shape != b.shape or a.dtype != b.dtype:
            yield _other_value(at, *(f"{each.dtype} {tuple(each.shape)}" for each in (a, b)))
            return
        if not a.numel():
            return
        x, y = (_as_doubles(each).numpy() for each in (a, b))
        apart = distances_between(x, y).max()
        size = apart / max(largest(x), self.kinds.get(id(a), 0.0))
        if not (size <= self.allowed or apart <= self.floor):
            yield Unlike(How.TENSOR, f"{at} differs by {size:.1e}", at)


def _largest_of_kinds(holder: dict[Any, Any]) -> dict[int, float]:
    """The ids of the tensors that an optimizer holds, each with the largest number of all of its kind.

    The momentum of a bias in front of a normalisation is nothing but rounding; steps are judged by kinds as well
    (differences.py).
    """
    if not {"state", "param_groups"} <= holder.keys():
        return {}
    states = holder["state"]
    if isinstance(states, Thing):  # a defaultdict, of an optimizer that was saved whole
        states = dict(enumerate(each[-1] for each in states.held if isinstance(each, tuple)))
    kinds: dict[str, list[Any]] = defaultdict(list)
    for state in states.values() if isinstance(states, dict) else ():
        for kind, value in state.items() if isinstance(state, dict) else ():
            if isinstance(value, torch.Tensor):
                kinds[kind].append(value)
    sizes = {kind: max(largest(_as_doubles(each).numpy()) for each in kinds[kind]) for kind in kinds}
    return {id(each): sizes[kind] for kind in kinds for each in kinds[kind]}


def _other_value(at: str, expected: str, actual: str) -> Unlike:
    how = How.NUMBERS if have_same_words(expected, actual) else How.WORDS
    return Unlike(how, f"{at} is {actual} instead of {expected}"[:200], at)


def _other_keys(expected: set[str], actual: set[str]) -> str:
    """Which side has which; `module.`, which wrappers put in front, is what they mostly are."""
    plain = [{key.removeprefix(_PREFIX) for key in keys} for keys in (expected, actual)]
    sides = list(zip(("DataParallel", "DDP"), (expected - actual, actual - expected), strict=True))
    prefixed = [side for side, keys in sides if keys and all(key.startswith(_PREFIX) for key in keys)]
    if plain[0] == plain[1] and len(prefixed) == 1:
        return f"they begin with `{_PREFIX}` under {prefixed[0]} only"
    return "; ".join(f"only under {side}: {sorted(keys)[:3]}" for side, keys in sides if keys)


def _is_clock(key: Any, a: Any, b: Any) -> bool:
    """Whether two numbers, or texts, are of a key that says that they are times; or lists and dicts of such."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (int, float, str)):
        return without_clock(f"{key}: {a}") == without_clock(f"{key}: {b}")
    if not is_time(str(key)):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_is_clock(key, a[each], b[each]) for each in a)
    return (
        isinstance(a, (list, tuple))
        and len(a) == len(b)
        and all(_is_clock(key, *each) for each in zip(a, b, strict=True))
    )


def _only(held: list[Any]) -> Any:
    """Nearly all objects hold one thing: their attributes."""
    return held[0] if len(held) == 1 else held


def _as_tensor(value: Any) -> Any:
    is_numbers = isinstance(value, np.ndarray) and value.dtype.kind in "fiubc" and value.dtype.isnative
    return torch.from_numpy(value) if is_numbers else value


def _are_apart(a: Any, b: Any, allowed: float) -> bool:
    """Relative to the larger number; an inf is as far from any other number as can be."""
    scale = max((abs(each) for each in (a, b) if cmath.isfinite(each)), default=0.0)
    parts = ((a.real, b.real), (a.imag, b.imag))
    return any(not (x == y or abs(x - y) <= allowed * scale or (x != x and y != y)) for x, y in parts)


def _as_doubles(tensor: Any) -> Any:
    """Its numbers in double precision; complex ones as pairs: a cast would leave their imaginary parts out."""
    plain = tensor.detach().resolve_conj()
    return (torch.view_as_real(plain) if plain.is_complex() else plain).double()


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
