"""Numbers of one rank's share of the data: where they go from a loop over it, and whether the ranks' come together."""

from __future__ import annotations

import ast
import re
from functools import cached_property

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.model.nodes import inside
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.flow import Loop
from dp2ddp.review.made import Made, owner_of

BRINGS_TOGETHER = re.compile(r"reduce|gather|metric|broadcast|sync|across|ranks|world", re.IGNORECASE)


class OwnNumbers(Made):
    """What is made of the data that a loop gives to a rank alone."""

    def __init__(self, script: DDPScript, loop: Loop) -> None:
        self.loop, flow = loop, script.flow
        data = _data(script, loop.node.iter, loop.node.target)
        begin = [use for each in inside(data, ast.Name) for use in flow.read(each, loop.node)]
        super().__init__(script, begin, {script.file.function_of(loop.node): loop.site})

    @cached_property
    def conditions(self) -> list[ast.If]:
        """Where they decide."""
        return [each for each in self.module.all(ast.If) if each.test in self.nodes]

    @cached_property
    def are_joined(self) -> bool:
        """Whether anything may bring them together over the ranks."""
        return any(map(self._joins, self.calls))

    def _joins(self, call: Call) -> bool:
        """Whether a call that gets some may bring the ranks' together, or a function of another file does."""
        function, owner = call.node.func, getattr(call.node.func, "value", None)
        if BRINGS_TOGETHER.search(self.file.text_of(function)):
            return call.method != "step"
        makers = [each for each in self.file.values(owner or function) if isinstance(each, ast.Call)]
        if any(self.script.is_foreign(self.module.name(each.func)) for each in makers):
            return True
        is_read = not isinstance(self.module.parents[call.node], ast.Expr)
        if is_read and not self.file.values(owner) and owner in self._kept:
            return True
        own = [self.file.callee(call.node), *(self.file.definition(each.func) for each in makers)]
        bodies = [body for each in own if each for body in self.script.flow.runs(each)]
        if bodies or self._is_in_loop(call.node):
            calls = (each for body in bodies for each in inside(body, ast.Call))
            return any(BRINGS_TOGETHER.search(self.file.text_of(each.func)) for each in calls)
        is_unknown = call.name is None and is_read and owner not in self.nodes
        return self.script.is_foreign(call.name) or is_unknown and not isinstance(owner, ast.Constant)

    @cached_property
    def _kept(self) -> set[ast.AST]:
        """The mentions of things that get some, and may do anything with them: `logger.add(loss)`."""
        given = (call for call in self.calls if isinstance(self.module.parents[call.node], ast.Expr))
        return {use for call in given for use in self.flow.read(owner_of(call.node), call.node)}

    def _is_in_loop(self, call: ast.AST) -> bool:
        """Whether a call is made for each batch, with what is made of that."""
        bodies = set(self.script.flow.runs(self.loop.node))
        return self.loop.node in self.module.around(call) or self.file.function_of(call) in bodies


def _data(script: DDPScript, items: ast.expr, target: ast.expr) -> ast.expr:
    """The part of a loop's target that gets data, and no counter: `x` in `for i, x in tqdm(enumerate(loader))`."""
    match items, target:
        case ast.Call(func=function, args=[inner, *_]), ast.Tuple(elts=[_, data]):
            is_counted = script.module.name(function) == "builtins.enumerate"
            return data if is_counted else _data(script, inner, target)
    return target
