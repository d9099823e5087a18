"""What reports a run: rank 0 has it."""

import logging
from collections.abc import Callable
from typing import Any

from .rank0 import run_on_rank0
from .ranks import has_joined, own_rank


class Nothing:
    """Takes every call, and does nothing. What is read of it would differ from rank 0: that ends the run."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return Nothing()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def __setattr__(self, name: str, value: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def _read(self, *args: Any) -> Any:
        raise RuntimeError("only rank 0 has this: its value cannot be read on the other ranks")

    __str__ = __format__ = __bool__ = __len__ = __iter__ = __float__ = __int__ = __fspath__ = __getitem__ = (
        __eq__
    ) = __lt__ = __add__ = _read
    __hash__ = None  # type: ignore[assignment]


def library_on_rank0(library: Any) -> Any:
    """A library that reports a run: rank 0 has it."""
    return library if own_rank() == 0 or not has_joined() else Nothing()


def make_on_rank0(kind: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Make an object that writes (a SummaryWriter) on rank 0 alone; what stands for it elsewhere does nothing."""
    made = []
    run_on_rank0(lambda: made.append(kind(*args, **kwargs)))
    return made[0] if made else Nothing()


def make_handler_on_rank0(kind: Callable[..., logging.Handler], *args: Any, **kwargs: Any) -> logging.Handler:
    made = make_on_rank0(kind, *args, **kwargs)
    return logging.NullHandler() if isinstance(made, Nothing) else made
