"""Buffers that only rank 0 has as they are, until somebody looks at them: a training step reads no running average."""

import copy
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from .process import RANK_PROCESS, own_rank, world_size
from .whole import copy_from_rank

AVERAGES = ("running_mean", "running_var", "num_batches_tracked")


def method_after_arrival(name: str) -> Callable[..., Any]:
    """A method of GuardedBuffers: first what rank 0 has arrives, then the table itself is asked."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.arrive()
        return getattr(self.held, name)(*args, **kwargs)

    return method


def method_on_names(name: str) -> Callable[..., Any]:
    """A method of GuardedBuffers that asks for no value, only for names."""

    def method(self: Any, *args: Any) -> Any:
        return getattr(self.held, name)(*args)

    return method


class GuardedBuffers(dict[str, Any]):
    """A module's table of buffers while rank 0's are newer: whoever looks at one waits until it has come.

    Attributes, buffers(), state_dict(), apply(), to(), copies and pickles all go through a module's table. As a dict
    it is empty: what gets past these methods finds nothing, rather than something old.
    """

    def __init__(self, held: dict[str, Any], arrive: Callable[[], None]) -> None:
        super().__init__()
        self.held, self.arrive = held, arrive

    __contains__ = method_on_names("__contains__")
    __iter__ = method_on_names("__iter__")
    __len__ = method_on_names("__len__")
    __reversed__ = method_on_names("__reversed__")
    keys = method_on_names("keys")
    __getitem__ = method_after_arrival("__getitem__")
    __setitem__ = method_after_arrival("__setitem__")
    __delitem__ = method_after_arrival("__delitem__")
    __eq__ = method_after_arrival("__eq__")
    __ne__ = method_after_arrival("__ne__")
    __or__ = method_after_arrival("__or__")
    __ror__ = method_after_arrival("__ror__")
    __repr__ = method_after_arrival("__repr__")
    get = method_after_arrival("get")
    items = method_after_arrival("items")
    values = method_after_arrival("values")
    copy = method_after_arrival("copy")
    pop = method_after_arrival("pop")
    popitem = method_after_arrival("popitem")
    setdefault = method_after_arrival("setdefault")
    update = method_after_arrival("update")
    clear = method_after_arrival("clear")
    __hash__ = None

    def __reduce_ex__(self, protocol: Any) -> Any:
        self.arrive()
        return type(self.held), (), None, None, iter(self.held.items())

    def __copy__(self) -> Any:
        self.arrive()
        return copy.copy(self.held)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        self.arrive()
        return copy.deepcopy(self.held, memo)


class BuffersOfRankZero:
    """The parts of a module whose buffers rank 0 alone has as they are.

    All ranks run the same program, so what makes one of them look makes all of them look, and they meet. Rank 0 alone
    (inside alone()) looks at its own, which are right.
    """

    def __init__(self) -> None:
        self.parts: list[torch.nn.Module] = []
        self.rank, self.thread = 0, 0

    def leave(self, parts: Iterable[torch.nn.Module]) -> None:
        """From now on these parts' buffers are rank 0's, who has changed them."""
        self.rank, self.thread = own_rank(), threading.get_ident()
        guarded = {id(part) for part in self.parts}
        for part in parts:
            if type(part._buffers) is GuardedBuffers and id(part) not in guarded:
                part._buffers.arrive()
            if id(part) not in guarded:
                self.parts.append(part)
                if has_plain_table(part):
                    vars(part)["_buffers"] = GuardedBuffers(part._buffers, self.arrive)

    def arrive(self) -> None:
        """Let all ranks have rank 0's."""
        if not self.parts or self.can_do_without():
            return
        parts, self.parts = self.parts, []
        for part in parts:
            if type(part._buffers) is GuardedBuffers and part._buffers.arrive == self.arrive:
                vars(part)["_buffers"] = part._buffers.held
        copy_from_rank(0, tensors_of([held_buffers(part) for part in parts]))

    def can_do_without(self) -> bool:
        """Whether nobody is to meet here: on rank 0 alone, and where the ranks have parted."""
        if world_size() > 1 and threading.get_ident() == self.thread:
            return False
        parted = RANK_PROCESS not in os.environ
        if self.rank > 0 and not parted:
            raise RuntimeError(
                "A thread or child process of one rank looks at buffers (running averages) that rank 0 has. Look at "
                "them before it starts: list(model.buffers())"
            )
        return True


def held_buffers(part: torch.nn.Module) -> dict[str, Any]:
    """A part's table of buffers as it is, also while rank 0's are newer."""
    table: Any = part._buffers
    return table.held if type(table) is GuardedBuffers else table


def has_plain_table(part: torch.nn.Module) -> bool:
    """Whether a part keeps its buffers as modules do, and not in a scripted module."""
    return isinstance(vars(part).get("_buffers"), dict)


def tensors_of(tables: Iterable[dict[str, Any]]) -> list[torch.Tensor]:
    """The tensors in tables of buffers, each once."""
    return list(
        {id(tensor): tensor for table in tables for tensor in table.values() if tensor is not None}.values()
    )


def reads_no_buffer(part: torch.nn.Module) -> bool:
    """Whether a part has no buffers but running averages, which torch's own batch norm only writes in training."""
    return (
        part.training
        and isinstance(part, torch.nn.modules.batchnorm._NormBase)
        and not isinstance(part, torch.nn.SyncBatchNorm)
        and type(part).forward.__module__.startswith("torch.nn.modules.")
        and not (part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part))
        and all(name in AVERAGES for name in held_buffers(part))
    )


@functools.cache
def names_averages(kind: Any) -> bool:
    """Whether methods of a module's class, or functions that they call by name, name running averages, or tables of
    buffers; torch's own are left out. Its forward may read those of a part, in training too.
    """
    own = [base for base in kind.__mro__ if not base.__module__.startswith("torch.")]
    functions = [value for base in own for value in vars(base).values() if isinstance(value, FunctionType)]
    named: set[Any] = set()
    for function in functions:  # and those that are found on the way
        names = names_in(function.__code__)
        named |= names
        functions += [each for each in called_by_name(function, names) if each not in functions]
    return not named.isdisjoint(
        (*AVERAGES, "buffers", "named_buffers", "get_buffer", "state_dict", "_buffers")
    )


def names_in(code: CodeType) -> set[Any]:
    """The names and texts in a compiled function, and in those within it."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    texts = [each for each in code.co_consts if isinstance(each, str)]
    return {*code.co_names, *texts}.union(*map(names_in, inner))


def called_by_name(function: FunctionType, names: set[Any]) -> list[FunctionType]:
    """The functions, torch's own left out, that another one names: its module's, or those of modules that it names."""
    values = [function.__globals__.get(name) for name in names]
    modules = [vars(value) for value in values if isinstance(value, ModuleType)]
    values += [module.get(name) for module in modules for name in names]
    functions = [value for value in values if isinstance(value, FunctionType)]
    return [each for each in functions if not (each.__module__ or "").startswith("torch")]


def are_held_elsewhere(parts: Iterable[torch.nn.Module]) -> bool:
    """Whether something beside the parts' own tables holds a buffer, or a table: it would not see what comes later."""
    probe = {"_buffers": {"name": torch.zeros(1)}}
    once = names_of_buffers(probe)
    return any(
        not has_plain_table(part) or names != once[0]
        for part in parts
        if held_buffers(part) and type(part._buffers) is not GuardedBuffers
        for names in (names_of_buffers(vars(part)) if has_plain_table(part) else once)
    )


def names_of_buffers(holder: dict[str, Any]) -> list[tuple[int, int, int]]:
    """For each buffer in a table: names of the table and of the tensor in Python, and tensors that share its memory."""
    users: Any = getattr(torch._C, "_storage_Use_Count", lambda storage: 0)
    return [
        (
            sys.getrefcount(holder["_buffers"]),
            sys.getrefcount(holder["_buffers"][name]),
            users(holder["_buffers"][name].untyped_storage()._cdata),
        )
        for name in list(holder["_buffers"])
        if holder["_buffers"][name] is not None
    ]
