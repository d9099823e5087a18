"""What is made of a value: through names, calls, and functions of the file, and back from these."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import cached_property

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.model.nodes import all_from, last_name, values_of
from dp2ddp.codemod.model.scopes import settings
from dp2ddp.review.ddp_script import DDPScript

# What asks for no value: it is the same on all ranks, of whatever data.
ALIKE = re.compile(
    r"(len|isinstance|hasattr|callable|type|range|print|size|shape|numel|nelement|n?dim|device|dtype|requires_grad"
    r"|is_\w+|keys)$"
)


class Made:
    """The expressions that are made of some, in any number of steps.

    `sites`: the calls that functions return to, where not all of their calls are meant.
    """

    def __init__(
        self, script: DDPScript, begin: Iterable[ast.AST], sites: Mapping[ast.AST, ast.AST | None] = {}
    ) -> None:
        self.script, self.file, self.module, self.flow = script, script.file, script.module, script.flow
        self.sites = sites
        self.nodes = set(all_from(begin, self._next))

    @cached_property
    def calls(self) -> list[Call]:
        """The calls that get one of them, or are methods of one."""
        return [
            call
            for call in self.module.calls
            if not self.nodes.isdisjoint((*values_of(call.node), owner_of(call.node)))
        ]

    def _next(self, node: ast.AST) -> Iterable[ast.AST]:
        parent = self.file.part_of(node)
        match parent:
            case ast.Attribute(attr=name) if ALIKE.match(name):
                return []
            case ast.Compare(ops=[ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]):
                return []
            case ast.Call() if parent.func is not node:
                return self._next_to_call(parent, node)
            case ast.Return():
                own = self.file.function_of(node)
                calls = [self.module.parents[each] for each in self.file.sites_of(own)]
                return [site] if (site := self.sites.get(own)) else calls
            case ast.expr():
                named = parent.target if isinstance(parent, ast.NamedExpr) else None
                return [parent, *self.flow.read(named, parent)]
        set_here = settings(parent) if parent else ()
        return [use for target, _ in set_here for use in self.flow.read(target, self.module.statement(node))]

    def _next_to_call(self, call: ast.Call, given: ast.AST) -> Iterable[ast.AST]:
        """Parameters of a function here; else its result, or the thing whose method takes it: `losses.append(loss)`."""
        function = self.file.callee(call)
        if function and function.name != "__init__":
            return self.flow.received(given)
        is_gradient = any(
            self.script.is_optimizer(each) or "parameters(" in self.file.text_of(each)
            for each in values_of(call)
        )
        if ALIKE.match(last_name(call.func)) or is_gradient:  # gradients are averaged
            return []
        if isinstance(self.module.parents[call], ast.Expr):
            owner = owner_of(call)
            return (
                [] if self.module.name(owner) or last_name(owner) == "self" else self.flow.read(owner, call)
            )
        return [call]


def owner_of(call: ast.Call) -> ast.expr:
    """`logger` of `logger.add(loss)`, `stopper` of `stopper(loss)`."""
    return call.func.value if isinstance(call.func, ast.Attribute) else call.func
