"""What reports a run: rank 0 has it."""

import inspect
import logging
import os
from typing import Any, Callable, List

from .rank0 import ask_rank0, run_on_rank0
from .ranks import own_rank, together


class Nothing:
    """Takes every call, and does nothing. It has the names, folders and numbers that rank 0's object was made with.

    What else is read of it would differ from rank 0: that ends the run.
    """

    def __init__(self, **facts: Any) -> None:
        vars(self).update(facts)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        is_decorator = len(args) == 1 and inspect.isfunction(args[0])
        return args[0] if is_decorator else Nothing()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        pass

    def _ignore(self, *change: Any) -> None:
        pass

    def _refuse(self, *args: Any) -> Any:
        raise RuntimeError("only rank 0 has this: ask_rank0(lambda: ...) tells all ranks what it reads")

    def __eq__(self, other: Any) -> Any:
        return other is not None and self._refuse()

    __setattr__ = __setitem__ = __delitem__ = _ignore
    __str__ = __bool__ = __len__ = __iter__ = __float__ = __int__ = __index__ = __fspath__ = _refuse
    __format__ = __getitem__ = __contains__ = __lt__ = __gt__ = __le__ = __ge__ = __add__ = __radd__ = _refuse
    __hash__ = None  # type: ignore[assignment]


class MadeOnRank0(Nothing):
    """Stands for an object that rank 0 has made."""

    def __bool__(self) -> bool:
        return True


def library_on_rank0(library: Any) -> Any:
    """A library that reports a run: rank 0 has it."""
    return Nothing() if own_rank() and library is not None else library


def make_on_rank0(kind: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Make an object that writes (a SummaryWriter) on rank 0 alone; what stands for it elsewhere does nothing."""
    made = []

    def make() -> Any:
        made.append(kind(*args, **kwargs))
        plain = (str, int, float, os.PathLike, type(None))
        facts = getattr(made[0], "__dict__", {}).items()
        return {name: value for name, value in facts if name[0] != "_" and isinstance(value, plain)}

    facts = ask_rank0(make) if together() or own_rank() == 0 else {}
    return made[0] if made else MadeOnRank0(**facts)


def make_handler_on_rank0(
    kind: Callable[..., logging.Handler], /, *args: Any, **kwargs: Any
) -> logging.Handler:
    """Make a handler of logs on rank 0 alone; elsewhere one that does nothing."""
    made: List[logging.Handler] = []
    run_on_rank0(lambda: made.append(kind(*args, **kwargs)))
    return made[0] if made else logging.NullHandler()
