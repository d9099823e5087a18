"""Say where a backward draws.

A hazard for draws in the backward of a torch.autograd.Function (shake-shake), in a hook on gradients of a layer or
of what a forward computes, and in a function under `functools.lru_cache`, whose memory each rank has for itself.

Each device draws from a stream of its own in backward, too; a rank has its device's stream only while its replica
runs forward.

Draws in a forward need nothing: each replica has streams of its own, on its device and on the host.

docs/semantics.md#device-streams, docs/semantics.md#host-draws.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.methods import MethodDoes, method
from dp2ddp.codemod.looks.forwards import forwards_of
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import FUNCTIONS
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, flags

CACHES = ("functools.lru_cache", "functools.cache")
IN_BACKWARD = Reason(
    "draw-in-backward",
    "{name}() is drawn in a backward, where each device has a stream of its own",
    "draw it in the forward, and keep it with ctx.save_for_backward",
)
KEPT = Reason(
    "draw-kept",
    "{name}() is drawn once, and kept by functools: a rank would draw and keep its own",
    "draw it in __init__, as a buffer of the module",
)


class DrawInBackward(Rule):
    nodes = ("Call",)
    examples = (
        flags("""
            # uniform_() is drawn in a backward
            import torch
            class Shake(torch.autograd.Function):
                @staticmethod
                def backward(ctx, grad):
                    return grad * grad.new(grad.shape).uniform_(0, 1)
            class Net(torch.nn.Module):
                def forward(self, x):
                    return Shake.apply(x)
            net = torch.nn.DataParallel(Net())
        """),
        Untouched("""
            import torch
            class Net(torch.nn.Module):
                def forward(self, x):
                    return torch.dropout(x, 0.5, True)
            net = torch.nn.DataParallel(Net())
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        if not any(map(_draws, module.calls)):
            return
        parts = forwards_of(module.program).in_backward
        in_backward = {node for home, part in parts if home is module for node in ast.walk(part)}
        for call in filter(_draws, module.calls):
            name = call.name or f".{call.method}"
            if call.node in in_backward:
                yield Hazard(call.node, IN_BACKWARD.of(name=name))
            elif _is_cached(module, call):
                yield Hazard(call.node, KEPT.of(name=name))


def _draws(call: Call) -> bool:
    return does(call.name) is Does.DRAW or call.name is None and method(call.method) is MethodDoes.DRAW


def _is_cached(module: Module, call: Call) -> bool:
    around = (each for each in module.around(call.node) if isinstance(each, FUNCTIONS))
    decorators = (decorator for each in around for decorator in getattr(each, "decorator_list", ()))
    return any(
        module.name(each.func if isinstance(each, ast.Call) else each) in CACHES for each in decorators
    )
