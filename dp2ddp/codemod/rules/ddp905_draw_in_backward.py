"""DDP905: random numbers that a replica would draw where it has no stream."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from dp2ddp.codemod.edits import Hazard
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.methods import MethodDoes, method
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import FUNCTIONS
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.rule import Finding, Flags, Rule, Untouched
from dp2ddp.source.parsing import nodes_in

FUNCTION = ("torch.autograd.Function", "torch.autograd.function.")
BACKWARD = {"backward", "vjp"}
HOOKS = {"register_hook", "register_full_backward_hook", "register_backward_hook"}
CACHES = ("functools.lru_cache", "functools.cache")


class DrawInBackward(Rule):
    """Say where a backward draws.

    ## What it does
    A hazard for draws in the backward of a torch.autograd.Function (shake-shake), in a hook on a gradient that a
    forward registers, and in a function under `functools.lru_cache`, whose memory cannot be told from rank to rank.

    ## Why
    Each device draws from a stream of its own in backward, too; a rank has its device's stream only while its replica
    runs forward.

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
                class Shake(torch.autograd.Function):
                    @staticmethod
                    def backward(ctx, grad):
                        return grad * grad.new(grad.shape).uniform_(0, 1)
                net = torch.nn.DataParallel(Net(Shake.apply))
            """,
            message="drawn in a backward",
        ),
        Flags(
            before="""
                import torch
                class Net(torch.nn.Module):
                    def forward(self, x):
                        x.register_hook(lambda grad: grad * torch.rand_like(grad))
                        return x
                net = torch.nn.DataParallel(Net())
            """,
            message="drawn in a backward",
        ),
        Flags(
            before="""
                import functools
                import torch
                @functools.lru_cache(maxsize=None)
                def mask(n):
                    return torch.rand(n)
                net = torch.nn.DataParallel(Net(mask(2)))
            """,
            message="drawn once, and kept by functools",
        ),
        Untouched("""
            import torch
            class Net(torch.nn.Module):
                def forward(self, x):
                    return torch.dropout(x, 0.5, True)
            net = torch.nn.DataParallel(Net())
            for p in net.parameters():
                p.register_hook(lambda grad: grad + torch.randn_like(grad))
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        in_backward = _in_backward(module.program)
        for call in module.calls:
            if not _draws(call):
                continue
            name = f"{call.name or f'.{call.method}'}()"
            if call.node in in_backward:
                yield Hazard(
                    call.node,
                    f"{name} is drawn in a backward, where each device has a stream of its own",
                    "draw it in the forward, and keep it with ctx.save_for_backward",
                )
            elif _is_cached(module, call):
                yield Hazard(
                    call.node,
                    f"{name} is drawn once, and kept by functools: a rank would draw and keep its own",
                    "draw it in __init__, as a buffer of the module",
                )


@lru_cache(maxsize=1)
def _in_backward(program: Program) -> frozenset[ast.AST]:
    """What runs in backwards, in all files."""
    functions = (function for module in program.modules for function in _backwards(module))
    return frozenset(
        node for each in functions for _, part in program.closure(*each) for node in nodes_in(part)
    )


def _draws(call: Call) -> bool:
    return does(call.name) is Does.DRAW or call.name is None and method(call.method) is MethodDoes.DRAW


def _backwards(module: Module) -> Iterator[tuple[Module, ast.AST]]:
    """Backwards of autograd.Functions, and hooks on gradients that a forward registers."""
    for owner in module.all(ast.ClassDef):
        if any((module.name(base) or "").startswith(FUNCTION) for base in owner.bases):
            yield from ((module, each) for each in owner.body if getattr(each, "name", "") in BACKWARD)
    for call in module.calls:
        given = call.argument(0, "hook") if call.method in HOOKS else None
        if given is not None and any(
            getattr(each, "name", "") == "forward" for each in module.around(call.node)
        ):
            yield module.definition(given) or (module, given)


def _is_cached(module: Module, call: Call) -> bool:
    around = (each for each in module.around(call.node) if isinstance(each, FUNCTIONS))
    decorators = (decorator for each in around for decorator in getattr(each, "decorator_list", ()))
    return any(
        module.name(each.func if isinstance(each, ast.Call) else each) in CACHES for each in decorators
    )
