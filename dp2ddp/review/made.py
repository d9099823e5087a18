"""What is made of a value: through names, calls, and functions of the file, and back from these.

Above all numbers of one rank's share of the data, and whether the ranks' come together.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.model.nodes import all_from, inside, last_name, values_of
from dp2ddp.codemod.model.scopes import settings
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.flow import Loop

# What asks for no value: it is the same on all ranks, of whatever data.
ALIKE = re.compile(
    r"(len|isinstance|hasattr|callable|type|range|print|size|shape|numel|nelement|n?dim|device|dtype|requires_grad"
    r"|is_\w+|keys)$"
)
BRINGS_TOGETHER = re.compile(r"reduce|gather|metric|broadcast|sync|across|ranks|world", re.IGNORECASE)


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


class OwnNumbers(Made):
    """What is made of the data that a loop gives to a rank alone."""

    def __init__(self, script: DDPScript, loop: Loop) -> None:
        self.loop = loop
        super().__init__(script, data_of(script, loop), {script.file.function_of(loop.node): loop.site})

    def joins(self, call: Call) -> bool:
        """Whether a call that gets some may bring the ranks' together, or a function of another file does."""
        function, owner = call.node.func, getattr(call.node.func, "value", None)
        if BRINGS_TOGETHER.search(self.file.text_of(function)):
            return call.method != "step"
        makers = self.file.made_by(owner or function)
        if any(self.script.is_foreign(each.name) for each in makers):
            return True
        is_read = not isinstance(self.module.parents[call.node], ast.Expr)
        if is_read and not self.file.values(owner) and owner in self._kept:
            return True
        own = [self.file.callee(call.node), *(self.file.definition(each.node.func) for each in makers)]
        bodies = [body for each in own if each for body in self.script.flow.runs(each)]
        around = {*self.module.around(call.node), self.file.function_of(call.node)}
        if bodies or not around.isdisjoint(self.flow.runs(self.loop.node)):  # made for each batch
            calls = (each for body in bodies for each in inside(body, ast.Call))
            return any(BRINGS_TOGETHER.search(self.file.text_of(each.func)) for each in calls)
        is_unknown = call.name is None and is_read and owner not in self.nodes
        return self.script.is_foreign(call.name) or is_unknown and not isinstance(owner, ast.Constant)

    @cached_property
    def _kept(self) -> set[ast.AST]:
        """The mentions of things that get some, and may do anything with them: `logger.add(loss)`."""
        given = (call for call in self.calls if isinstance(self.module.parents[call.node], ast.Expr))
        return {use for call in given for use in self.flow.read(owner_of(call.node), call.node)}


def own_numbers(script: DDPScript) -> Iterator[OwnNumbers]:
    """Of each loop over a rank's share of the data, what is made of it, if nothing may bring that together."""
    loops = (loop for loader in script.loaders if loader.sampler for loop in loader.loops)
    return (
        each for each in (OwnNumbers(script, loop) for loop in loops) if not any(map(each.joins, each.calls))
    )


def data_of(script: DDPScript, loop: Loop) -> list[ast.AST]:
    """Where the data that a loop gives are read."""
    data = _data(script, loop.node.iter, loop.node.target)
    return [use for each in inside(data, ast.Name) for use in script.flow.read(each, loop.node)]


def _data(script: DDPScript, items: ast.expr, target: ast.expr) -> ast.expr:
    """The part of a loop's target that gets data, and no counter: `x` in `for i, x in tqdm(enumerate(loader))`."""
    match items, target:
        case ast.Call(func=function, args=[inner, *_]), ast.Tuple(elts=[_, data]):
            is_counted = script.module.name(function) == "builtins.enumerate"
            return data if is_counted else _data(script, inner, target)
    return target
