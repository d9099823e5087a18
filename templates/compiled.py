"""torch.compile and ranks: what talks to other ranks is in no graph, replicas of compiled modules are compiled."""

import inspect
from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, TypeVar

import torch

USUAL = frozenset(vars(torch.nn.Module()))  # attributes that every module has
NO_METHODS = frozenset(map(type, vars(torch.nn.Module()).values())) | {int, float, str, tuple, torch.Tensor}

Function = TypeVar("Function", bound=Callable[..., Any])


def uncompiled(function: Function) -> Function:
    """A function that torch.compile leaves out of graphs, with all that it calls: no graph can wait for other ranks.

    What is compiled itself stays so inside. torch.compiler.disable would import the compiler at once, a second more.
    """
    leave_out: Any = getattr(torch, "_disable_dynamo", None)
    if leave_out is None:  # before torch 2.1
        from torch import _dynamo

        leave_out = _dynamo.disable
    left_out: Function = leave_out(function)
    return left_out


def is_compiled(part: torch.nn.Module) -> bool:
    """Whether this is what torch.compile makes of a module: another module, around it."""
    return "dynamo_ctx" in vars(part) and "_orig_mod" in part._modules


def compiled_replica(part: torch.nn.Module, replica: torch.nn.Module) -> torch.nn.Module:
    """What torch.compile made of a module, around a replica of it: the same compiler, the same options, its graphs."""
    twin: Any = type(part).__new__(type(part))
    own = {"_modules": {"_orig_mod": replica}, "_torchdynamo_orig_callable": replica.forward}
    twin.__setstate__({**part.__getstate__(), **own})
    return twin


def bind_to_replicas(part: torch.nn.Module, replicas: Mapping[int, torch.nn.Module]) -> None:
    """Let a replica call its own methods where the module has methods, or compiled ones, as attributes.

    `module.compile()` and `self.forward = torch.compile(self.forward)` leave such: bound to the module itself, they
    would compute with its own parameters, past all that adds up gradients.
    """
    if NO_METHODS.issuperset(map(type, vars(part).values())):
        return
    for name in vars(part).keys() - USUAL:
        value = vars(part)[name]
        if type(value) in NO_METHODS:
            continue
        compiled = "_torchdynamo_orig_callable" in getattr(value, "__dict__", {})
        method = inspect.unwrap(value) if compiled else value
        if isinstance(method, MethodType) and isinstance(method.__self__, torch.nn.Module):
            replica = replicas.get(id(method.__self__))
            if replica is not None:
                own = MethodType(method.__func__, replica)
                vars(replicas[id(part)])[name] = compiled_alike(value, own) if compiled else own


def compiled_alike(compiled: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function, compiled as another one was; as it is where torch does not tell how."""
    cells = dict(zip(compiled.__code__.co_freevars, compiled.__closure__ or (), strict=True))
    context: Any = cells["self"].cell_contents if "self" in cells else None
    made: Callable[..., Any] = context(function) if hasattr(context, "callback") else function
    return made


def compiler_with(options: Mapping[str, Any]) -> Callable[[torch.nn.Module], torch.nn.Module]:
    """What torch.compile with these options does to a module: to all replicas alike, so that they share graphs."""
    compiled = torch.compile(torch.nn.Identity(), **options)
    context: Any = getattr(compiled, "dynamo_ctx", None)
    return context or (lambda module: module)  # with disable=True torch.compile does nothing
