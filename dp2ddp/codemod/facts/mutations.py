"""What a node changes in place: by an assignment to a part, an operator, a method, or a function that is given it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from dp2ddp.codemod.facts.mutating import SHUFFLES, SILENT_METHODS, mutated_argument, mutates
from dp2ddp.codemod.facts.script import Script


class How(Enum):
    PART = "x[i] = ..., x.name = ..., del x[i]"
    OPERATOR = "x += ..."
    METHOD = "x.append(...)"
    ARGUMENT = "heapq.heappush(x, ...), next(x), out=x"
    REBOUND = "global x; x = ..."


@dataclass(frozen=True, eq=False)
class Mutation:
    """Something that may be changed; whether a method changes its object, hangs on what the object is."""

    act: ast.AST  # the statement, or the call
    node: ast.expr  # what is written there: `x.name`, `x[i]`, `x.append`
    thing: ast.expr
    how: How
    method: str = ""


def mutations_at(script: Script, node: ast.AST) -> Iterator[Mutation]:
    """What a node changes itself; its children are asked on their own."""
    match node:
        case (
            ast.Attribute(ctx=ast.Store() | ast.Del(), value=thing)
            | ast.Subscript(ctx=ast.Store() | ast.Del(), value=thing)
        ):
            yield Mutation(script.scopes.statement(node), node, thing, How.PART)
        case ast.Subscript(value=thing):
            yield Mutation(node, node, thing, How.METHOD, "__getitem__")  # which fills a defaultdict
        case ast.Attribute(value=thing, attr=method):
            call = script.scopes.parents[node]
            called = isinstance(call, ast.Call) and call.func is node
            if (
                called or mutates(method) and not _is_value(script, node)
            ):  # or handed on: `map(self.sizes.append, sizes)`
                yield Mutation(call if called else node, node, thing, How.METHOD, method)
        case ast.AugAssign(target=(ast.Name() | ast.Attribute()) as target):
            yield Mutation(node, target, target, How.OPERATOR)
        case ast.Name(ctx=ast.Store() | ast.Del()) if node.id in script.scopes.scope_of[node].outer:
            yield Mutation(script.scopes.statement(node), node, node, How.REBOUND)
        case ast.Call():
            yield from _by_call(script, node)


def _is_value(script: Script, node: ast.expr) -> bool:
    """Whether something is computed with, as with no method: `flip * 2`, `if options.rotate > 0`."""
    around = script.scopes.parents[node]
    if isinstance(around, ast.Assign) and isinstance(name := around.targets[0], ast.Name):
        home = script.scopes.lookup(name.id, script.scopes.scope_of[name])
        uses = [
            mention
            for mention in script.by_word.get(name.id, ())
            if isinstance(mention, ast.Name)
            and isinstance(mention.ctx, ast.Load)
            and script.scopes.lookup(mention.id, script.scopes.scope_of[mention]) is home
        ]
        return len(around.targets) == 1 and all(_is_operand(script, use) for use in uses)
    return _is_operand(script, node)


def _is_operand(script: Script, node: ast.expr) -> bool:
    match script.scopes.parents[node]:
        case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.FormattedValue():
            return True
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            return test is node
    return False


def _by_call(script: Script, call: ast.Call) -> Iterator[Mutation]:
    place = mutated_argument(script.scopes.name(call.func) or "")
    if isinstance(call.func, ast.Attribute) and call.func.attr in SHUFFLES:
        place = 0
    if place is not None and place < len(call.args):
        given = call.args[place]
        yield Mutation(call, given, given.value if isinstance(given, ast.Starred) else given, How.ARGUMENT)
    for keyword in call.keywords:
        if keyword.arg == "out":
            yield Mutation(call, keyword.value, keyword.value, How.ARGUMENT)
    if isinstance(call.func, (ast.Name, ast.Subscript, ast.Attribute)):  # an object that can be called
        yield Mutation(call, call.func, call.func, How.METHOD, "__call__")


def learns(script: Script, change: Mutation) -> bool:
    """Whether the one who makes a change learns what was there: `scale = next(scales)`, `del seen[k]`, `seen.pop()`."""
    act = change.act
    if isinstance(act, ast.Delete):
        return True
    if not isinstance(act, ast.Call):
        return False
    parent = script.scopes.parents[act]
    while isinstance(parent, ast.Attribute) and isinstance(around := script.scopes.parents[parent], ast.Call):
        if not mutates(parent.attr):
            return True  # `self.total.add_(x).mean()`
        parent = script.scopes.parents[around]
    fails = change.how is How.METHOD and change.method in ("pop", "popleft", "popitem", "remove")
    return fails or not isinstance(parent, ast.Expr) and change.method not in SILENT_METHODS
