"""DDP206: the wrapped model, compiled."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import DropArgument, Finding, Lift, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.aliases import COMPILE, before_compiling
from dp2ddp.codemod.facts.script import CallSite
from dp2ddp.codemod.facts.uses import is_before_wrap
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class Compile(Rule):
    """Compile what a rank runs of the wrapped model.

    ## What it does
    `torch.compile(net)` of a wrapped model becomes `compile_on_ranks(net)`, with the same options. Where a function
    that runs the wrapped model is compiled with `fullgraph=True`, that option goes.

    ## Why
    No graph can hold what the ranks say to each other, so the wrapper's own work stays outside. torch.compile around it
    would compile nothing, and fail with `fullgraph=True`.

    ## Safety
    Compiled code computes with other rounding, and inductor draws other random numbers for dropout. That is new where
    several devices were used: DataParallel ran there as plain Python what was compiled around it
    (pytorch/pytorch#94636). The keys of the state dict stay: `_orig_mod.module.`. Modules that were compiled before the
    wrap stay as they are.

    ## References
    torch/_dynamo/eval_frame.py, OptimizedModule; docs/verify.md, what is not checked.
    """

    code = "DDP206"
    name = "compile"
    nodes = ("Arg", "Attribute", "Name")
    examples = (
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                net = torch.compile(net, mode="reduce-overhead")
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                net = compile_on_ranks(net, mode="reduce-overhead")
            """,
        ),
        Rewrites(
            before="""
                import torch
                net = torch.compile(torch.nn.DataParallel(net), fullgraph=True)
            """,
            after="""
                import torch
                net = compile_on_ranks(torch.nn.DataParallel(net), fullgraph=True)
            """,
        ),
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                @torch.compile(fullgraph=True, dynamic=True)
                def loss_of(x, y):
                    return criterion(net(x), y)
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                @torch.compile(dynamic=True)
                def loss_of(x, y):
                    return criterion(net(x), y)
            """,
        ),
        Untouched("import torch\nnet = torch.compile(net)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted or not facts.all_wraps:
            return
        for call in facts.script.calls_of(COMPILE):
            if _is_of_wrapped(facts, call):
                because = (
                    "what each rank runs is compiled; no graph can hold what the ranks say to each other"
                )
                yield Replace(call.node.func, facts.names.helper("compile_on_ranks"), because)
                yield Lift("compile_on_ranks", because)
            whole = call.keyword("fullgraph")
            if whole is not None and _runs_wrapped(facts, call):
                because = "no graph can hold the forward of the wrapped model, where the ranks talk"
                yield DropArgument(whole, call.node, because)


def _is_of_wrapped(facts: Facts, call: CallSite) -> bool:
    """`torch.compile(net)` behind the wrap, or around it."""
    model = before_compiling(facts.script, call.node)
    if any(wrap.call.node is model for wrap in facts.wraps):
        return True
    wrapped = facts.script.variable(model) in facts.training.names
    return wrapped and not is_before_wrap(facts.script, facts.wraps, model)


def _runs_wrapped(facts: Facts, call: CallSite) -> bool:
    """Whether a function that is decorated so, or handed over, has a forward of the wrapped model in it."""
    around = facts.script.scopes.parents[call.node]
    function = around if call.node in getattr(around, "decorator_list", ()) else None
    if function is None and call.node.args:
        function = facts.script.scopes.definition(call.node.args[0])
    return isinstance(function, (ast.FunctionDef, ast.Lambda)) and not set(
        facts.training.forwards
    ).isdisjoint(ast.walk(function))
