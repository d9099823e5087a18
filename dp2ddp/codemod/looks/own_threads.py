"""Threads that every rank may have for itself: they compute, and write into places of an array of the function that
joins them. All ranks have the same numbers, so they get the same array."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.knowledge.changing import changed_argument, changes_its_object
from dp2ddp.codemod.knowledge.functions import does
from dp2ddp.codemod.knowledge.reading_methods import COMPUTING, LOOKING
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import NAMED_FUNCTIONS, places, root_name, stored_names
from dp2ddp.codemod.model.scopes import Binds

ARRAYS = {f"numpy.{kind}{like}" for kind in ("zeros", "ones", "empty", "full") for like in ("", "_like")}
# What code that only computes has none of. (On a device it would be another rank's: threads begin on the first one.)
_OTHER = (ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, ast.Await, ast.With, ast.Import, ast.ImportFrom)


def is_own(module: Module, call: Call) -> bool:
    """Whether a thread, where it is made, surely is such a one."""
    owner, target = module.function_around(call.node), call.argument(1, "target")
    definition = module.definition(target) if target is not None else None
    if call.name != "threading.Thread" or not isinstance(owner, NAMED_FUNCTIONS) or definition is None:
        return False
    home, function = definition
    if not isinstance(function, ast.FunctionDef) or not _is_joined(module, call.node, owner):
        return False
    first, *others = (_ThreadCode(*each) for each in module.program.closure(home, function))
    filled = set(first.filled())
    return (
        all(part.only_computes() for part in (first, *others))
        and not any(any(part.filled()) or part.mentions(filled) for part in others)
        and all(_is_local_array(module, call, owner, function, name) for name in filled)
    )


def _is_joined(module: Module, call: ast.Call, owner: ast.AST) -> bool:
    """Whether the function that makes a thread waits for its end, in any case: `each.join()` for each of a list."""
    holders = {_holder(module, call)}
    for each in ast.walk(owner):
        match each:
            case ast.Call(func=ast.Attribute(attr="append"), args=[ast.Name(id=name) as thread]) if (
                name in holders
            ):
                holders.add(_holder(module, thread))  # `threads.append(thread)`
    for each in ast.walk(owner):
        match each:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="join"), args=[], keywords=[]):
                loops = list(_loops_around(module, each, owner))
                over = {_name(loop.iter) for loop in loops if loop and _name(loop.target) == name}
                if None not in loops and not holders.isdisjoint(over | {name}):
                    return True
    return False


def _loops_around(module: Module, node: ast.AST, owner: ast.AST) -> Iterator[ast.For | None]:
    """The loops from a node up to its function; None for what may not run."""
    for parent in module.around(node):
        if parent is owner:
            return
        if isinstance(parent, ast.For):
            yield parent
        elif not isinstance(parent, ast.Expr):
            yield None


def _holder(module: Module, node: ast.AST) -> str:
    """The name of the thread, or of the list that it is in."""
    match parent := module.parents[node]:
        case ast.ListComp():
            return _holder(module, parent)
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append")):
            return name
    return ""


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _is_local_array(module: Module, call: Call, owner: ast.AST, function: ast.FunctionDef, name: str) -> bool:
    """Whether what a thread fills is an array of the function that makes the thread."""
    parameters = [each.arg for each in places(function)]
    if name in parameters:
        match call.argument(None, "args"):
            case ast.Tuple(elts=given) if len(given) == len(parameters):
                name = _name(given[parameters.index(name)])
            case _:
                return False
    elif module.function_around(function) is not owner:
        return False
    scope = module.scope_of[call.node].lookup(name)
    if scope is None or scope.node is not owner:
        return False
    match scope.bindings[name]:
        case [binding] if binding.how is Binds.VALUE:
            return _makes_array(module, binding.node)
    return False


def _makes_array(module: Module, node: ast.AST | None) -> bool:
    match node:
        case ast.List() | ast.ListComp() | ast.BinOp(left=ast.List(), op=ast.Mult()):
            return True
        case ast.Call(func=func):
            return module.name(func) in ARRAYS
    return False


@dataclass(frozen=True)
class _ThreadCode:
    """A function that runs in the thread."""

    module: Module
    node: ast.AST

    def filled(self) -> Iterator[str]:
        """What it writes into that is not its own."""
        for target in self._written():
            root = root_name(target)
            if root not in self._own():
                yield root

    def mentions(self, names: set[str]) -> bool:
        return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(self.node))

    def only_computes(self) -> bool:
        nodes = list(ast.walk(self.node))
        if not isinstance(self.node, ast.FunctionDef) or any(isinstance(each, _OTHER) for each in nodes):
            return False
        if any(isinstance(each, ast.Attribute) and not isinstance(each.ctx, ast.Load) for each in nodes):
            return False
        return all(self._is_own_place(each) for each in self._written()) and all(
            self._computes(each) for each in nodes if isinstance(each, ast.Call)
        )

    def _written(self) -> list[ast.Subscript]:
        nodes = ast.walk(self.node)
        return [
            each for each in nodes if isinstance(each, ast.Subscript) and not isinstance(each.ctx, ast.Load)
        ]

    def _own(self) -> set[str]:
        return stored_names(self.node) - {each.arg for each in places(self.node)}

    def _is_own_place(self, target: ast.Subscript) -> bool:
        """Whether no other thread writes there or reads what is written: `found[i] = ...`, and nothing else of it."""
        root = root_name(target)
        if root in self._own():
            return True
        mentions = [each for each in ast.walk(self.node) if isinstance(each, ast.Name) and each.id == root]
        is_chosen = any(isinstance(each, ast.Name) for each in ast.walk(target.slice))
        is_set = isinstance(self.module.parents[target], ast.Assign)
        return (
            bool(root)
            and is_chosen
            and is_set
            and len(mentions) == sum(root_name(each) == root for each in self._written())
        )

    def _computes(self, call: ast.Call) -> bool:
        name, definition = self.module.name(call.func) or "", self.module.definition(call.func)
        if definition is not None:
            return True  # looked at by itself
        if name:
            known = name.startswith(("math.", "numpy.")) and not name.startswith("numpy.random.")
            looks = name.startswith("builtins.") and name.rpartition(".")[2] in LOOKING
            return (known or looks) and does(name) is None and changed_argument(name) is None
        if not isinstance(call.func, ast.Attribute):
            return False
        method = call.func.attr
        return method in COMPUTING or changes_its_object(method) and root_name(call.func) in self._own()
