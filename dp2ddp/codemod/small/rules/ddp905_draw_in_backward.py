"""DDP905: random numbers that a backward draws, or that are drawn once and kept."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Hazard
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.methods import MethodDoes, method
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.codemod.small.rule import Finding, Rule

FUNCTIONS = tuple(
    f"torch.autograd.{name}" for name in ("Function", "function.Function", "function.InplaceFunction")
)
BACKWARDS = ("backward", "vjp")
MEMORIES = ("functools.lru_cache", "functools.cache")


class DrawInBackward(Rule):
    """Draw in the forward what a backward needs.

    ## What it does
    A hazard for draws in the backward of a torch.autograd.Function (shake-shake), also by a function that it calls, and
    for draws in a function under `functools.lru_cache`.

    ## Why
    A rank has the random numbers of its replica only while the replica runs forward. And what is drawn once and kept,
    each rank would draw and keep for itself.

    ## Safety
    Draws in a forward need nothing: each replica has streams of its own, on its device and on the host.

    ## References
    docs/semantics.md#device-streams, docs/semantics.md#host-draws.
    """

    code = "DDP905"
    name = "draw-in-backward"
    nodes = ("Call",)
    examples = (
        Flags(
            before="""
                import torch
                def noise(grad):
                    return grad.new(grad.shape).uniform_(0, 1)
                class Shake(torch.autograd.Function):
                    @staticmethod
                    def forward(ctx, x):
                        return x * torch.rand_like(x)
                    @staticmethod
                    def backward(ctx, grad):
                        return grad * noise(grad)
                shaken = Shake.apply(x)
            """,
            message=".uniform_() is drawn in a backward",
        ),
        Flags(
            before="""
                import functools
                import torch
                @functools.lru_cache(maxsize=None)
                def mask(n):
                    return torch.rand(n)
                x = x * mask(3)
            """,
            message="torch.rand() is drawn once, and kept",
        ),
        Untouched(
            """
                import torch
                class Net(torch.nn.Module):
                    def forward(self, x):
                        return torch.dropout(x, 0.5, True)
                    def backward(self):
                        return torch.rand(3)
            """
        ),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for function in module.all(ast.FunctionDef):
            if _is_backward(module, function):
                for home, call in _draws_of(module, function, set()):
                    node = call.node if home is module else function
                    message = (
                        f"{_shown(call)}() is drawn in a backward, where a rank has not its replica's stream"
                    )
                    yield Hazard(
                        node, message, "draw it in the forward, and keep it by ctx.save_for_backward"
                    )
            elif _is_remembered(module, function):
                for call in _calls_in(module, function):
                    if _draws(call):
                        message = f"{_shown(call)}() is drawn once, and kept by functools: a rank would keep its own"
                        yield Hazard(call.node, message, "draw it in __init__, as a buffer of the module")


def _is_backward(module: Module, function: ast.FunctionDef) -> bool:
    owner = module.parents[function]
    is_method = isinstance(owner, ast.ClassDef) and function.name in BACKWARDS
    return is_method and any(module.name(base) in FUNCTIONS for base in owner.bases)  # type: ignore[attr-defined]


def _is_remembered(module: Module, function: ast.FunctionDef) -> bool:
    makers = (each.func if isinstance(each, ast.Call) else each for each in function.decorator_list)
    return any(module.name(each) in MEMORIES for each in makers)


def _draws_of(module: Module, function: ast.AST, seen: set[ast.AST]) -> Iterator[tuple[Module, Call]]:
    """The draws of a function, and of those of the program that it calls."""
    seen.add(function)
    for call in _calls_in(module, function):
        if _draws(call):
            yield module, call
        called = module.program.definition(call.name)
        if called and called[1] not in seen:
            yield from _draws_of(*called, seen)


def _calls_in(module: Module, function: ast.AST) -> list[Call]:
    inside = {each for each in ast.walk(function) if isinstance(each, ast.Call)}
    return [call for call in module.calls if call.node in inside]


def _draws(call: Call) -> bool:
    return does(call.name) is Does.DRAW or call.name is None and method(call.method) is MethodDoes.DRAW


def _shown(call: Call) -> str:
    return call.name or f".{call.method}"
