"""Numbers of one rank's share of the data: where they go from a loop over it, and whether the ranks' come together."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.model.nodes import all_from, last_name, root_name
from dp2ddp.codemod.model.scopes import settings
from dp2ddp.review.ddp_script import DDPScript, Loop
from dp2ddp.review.own_file import Mention, inside, values_of

# What is the same on all ranks, of whatever data.
ALIKE = re.compile(
    r"(len|isinstance|hasattr|callable|type|range|print|size|shape|numel|nelement|n?dim|device|dtype|requires_grad"
    r"|is_\w+|keys)$"
)
JOINS = re.compile(r"reduce|gather|metric|broadcast|sync|across|ranks|world", re.IGNORECASE)
COUNTERS = ("builtins.range", "itertools.count")


class OwnNumbers:
    """What is made of the data that a loop gives to a rank alone."""

    def __init__(self, script: DDPScript, loop: Loop) -> None:
        self.script, self.file, self.module, self.loop = script, script.file, script.module, loop
        targets = (
            each for part in self._data(loop.node.iter, loop.node.target) for each in inside(part, ast.Name)
        )
        begin = (use for target in targets for use in self._read(target, loop.node))
        self.nodes = set(all_from(begin, self._made_of))

    @cached_property
    def calls(self) -> list[Call]:
        """The calls that get some of them, or ask what holds them."""
        return [call for call in self.module.calls if not self.nodes.isdisjoint(_parts(call.node))]

    @cached_property
    def conditions(self) -> list[ast.If]:
        """Where they decide."""
        return [each for each in self.module.all(ast.If) if each.test in self.nodes]

    @cached_property
    def are_joined(self) -> bool:
        """Whether anything may bring them together over the ranks."""
        return any(map(self._joins, self.calls))

    # --- where they go

    def _data(self, items: ast.expr, target: ast.expr) -> Iterator[ast.expr]:
        """The part of a loop's target that gets data, and no counter: `x` in `for i, x in enumerate(loader)`."""
        for each in self.script.flow.values(items) or [items]:
            match each, target:
                case ast.Call(args=args), ast.Tuple(elts=[_, data]) if self._calls(
                    each, "builtins.enumerate"
                ):
                    yield from self._data(args[0], data)
                    return
                case ast.Call(args=args), ast.Tuple(elts=parts) if self._calls(each, "builtins.zip"):
                    pairs = zip(args, parts, strict=False)
                    yield from (part for given, part in pairs if not self._calls(given, *COUNTERS))
                    return
                case ast.Call(args=[ast.Call() as inner, *_]), ast.Tuple():  # tqdm(enumerate(loader))
                    yield from self._data(inner, target)
                    return
        yield target

    def _calls(self, call: ast.AST, *names: str) -> bool:
        return isinstance(call, ast.Call) and self.module.name(call.func) in names

    def _made_of(self, node: ast.AST) -> Iterable[ast.AST]:
        """What holds a number because an expression is one."""
        parent = self.module.parents[node]
        if isinstance(parent, ast.keyword):
            parent = self.module.parents[parent]
        match parent:
            case ast.Attribute(attr=name) if ALIKE.match(name):
                return []
            case ast.Compare(ops=[ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]):
                return []
            case ast.Call(func=function) if function is not node:
                return self._made_by(parent, node)
            case ast.Return():
                return self._calls_of(node)
            case ast.expr():
                named = self._read(parent.target, parent) if isinstance(parent, ast.NamedExpr) else ()
                return [parent, *named]
            case ast.AugAssign(target=target):
                return self._read(target, parent)
            case ast.Assign() | ast.AnnAssign() | ast.For() | ast.comprehension() | ast.withitem():
                return [
                    use
                    for target, _ in settings(parent)
                    for use in self._read(target, self.module.statement(node))
                ]
        return []

    def _made_by(self, call: ast.Call, given: ast.AST) -> Iterable[ast.AST]:
        """What holds it behind a call: its result, what has a method that takes it, parameters of a function here."""
        function = self.file.callee(call)
        is_here = isinstance(call.func, ast.Name) or root_name(call.func) == "self"
        if function and function.name != "__init__" and is_here:
            return self.script.flow.received(given)
        is_gradient = any(
            self.script.is_optimizer(each) or "parameters(" in self.file.text_of(each)
            for each in values_of(call)
        )
        if ALIKE.match(last_name(call.func)) or is_gradient:  # gradients are averaged
            return []
        if isinstance(self.module.parents[call], ast.Expr):
            owner = _owner(call)
            return [] if self.module.name(owner) or last_name(owner) == "self" else self._read(owner, call)
        return [call]

    def _calls_of(self, returned: ast.AST) -> Iterable[ast.AST]:
        function = self.file.function_of(returned)
        if function is self.file.function_of(self.loop.node) and self.loop.site:
            return [self.loop.site]
        return [self.module.parents[site] for site in self.file.sites_of(function)]

    def _read(self, target: ast.AST, source: ast.AST) -> Iterator[ast.AST]:
        """Where what a target is given by a source is read."""
        while isinstance(target, (ast.Subscript, ast.Starred)):
            target = target.value
        if isinstance(target, (ast.Name, ast.Attribute)):
            uses = self.file.mentions(self.file.variable(target), ast.Load)
            yield from (use for use in uses if not self._is_set_anew(use, source))

    def _is_set_anew(self, use: Mention, source: ast.AST) -> bool:
        """Whether another statement certainly gives a mention something else than a source does."""
        own = self.module.statement(source)
        for store in self.script.flow.stores(use):
            other = self.module.statement(store)
            is_before = other.lineno < own.lineno <= use.lineno
            if other is own or is_before:
                continue
            is_loop = isinstance(other, ast.For) and other in self.module.around(use)
            if is_loop or self.script.flow.is_set_by(use, store):
                return True
        return False

    # --- whether ranks' come together

    def _joins(self, call: Call) -> bool:
        """Whether a call that gets some may bring the ranks' together, or a function of another file does."""
        function, owner = call.node.func, getattr(call.node.func, "value", None)
        if JOINS.search(self.file.text_of(function)):
            return call.method != "step"
        makers = [each for each in self.script.flow.values(owner or function) if isinstance(each, ast.Call)]
        if any(self.script.is_foreign(self.module.name(each.func)) for each in makers):
            return True
        is_read = not isinstance(self.module.parents[call.node], ast.Expr)
        if is_read and not self.script.flow.values(owner) and owner in self._kept:
            return True
        own = [self.file.callee(call.node), *(self.file.definition(each.func) for each in makers)]
        bodies = [body for each in own if each for body in self.script.flow.runs(each)]
        if bodies or self._is_in_loop(call.node):
            calls = (each for body in bodies for each in inside(body, ast.Call))
            return any(JOINS.search(self.file.text_of(each.func)) for each in calls)
        is_unknown = call.name is None and is_read and owner not in self.nodes
        return self.script.is_foreign(call.name) or is_unknown and not isinstance(owner, ast.Constant)

    @cached_property
    def _kept(self) -> set[ast.AST]:
        """The mentions of things that get some, and may do anything with them: `logger.add(loss)`."""
        given = (call for call in self.calls if isinstance(self.module.parents[call.node], ast.Expr))
        return {use for call in given for use in self._read(_owner(call.node), call.node)}

    def _is_in_loop(self, call: ast.AST) -> bool:
        """Whether a call is made for each batch, with what is made of that."""
        bodies = set(self.script.flow.runs(self.loop.node))
        return self.loop.node in self.module.around(call) or self.file.function_of(call) in bodies


def _owner(call: ast.Call) -> ast.expr:
    """`logger` of `logger.add(loss)`, `stopper` of `stopper(loss)`."""
    return call.func.value if isinstance(call.func, ast.Attribute) else call.func


def _parts(call: ast.Call) -> list[ast.expr]:
    """What a call gets, and whose method it is."""
    return [*values_of(call), *([call.func.value] if isinstance(call.func, ast.Attribute) else [])]
