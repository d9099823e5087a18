"""Reads what torch or pickle wrote and runs nothing of its author: tensors are real, all else is only named."""

from __future__ import annotations

import functools
import io
import pickle
import re
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import torch

from dp2ddp.comparison.contents import opened
from dp2ddp.comparison.value_files import READERS

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
    if path.suffix in READERS:
        return READERS[path.suffix](path)
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
