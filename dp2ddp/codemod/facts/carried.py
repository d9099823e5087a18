"""What one forward leaves for the next: counters, averages, iterators and objects that all replicas share.

DataParallel's replicas are shallow copies: what their attributes refer to is one thing for all of them. A rank alone
would see its own part of what is done to it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from dp2ddp.codemod.facts.places import Place, Places
from dp2ddp.codemod.facts.randomness import TORCH_MAKERS
from dp2ddp.codemod.facts.script import SETTINGS, Script

TAKES = {"pop", "popleft", "popitem", "setdefault"}  # methods that change a container, and give of it
ITERATORS = ("itertools.", "builtins.iter", "builtins.enumerate", "builtins.zip", "builtins.map")
LISTS = (ast.List, ast.ListComp, ast.Set, ast.SetComp)
ARRAYS = (
    "numpy.zeros",
    "numpy.ones",
    "numpy.full",
    "numpy.empty",
    "numpy.array",
    "numpy.arange",
    "numpy.eye",
)


class Carried:
    """The changes that one file's forwards make to what outlives them, beside those to containers by their methods."""

    def __init__(self, script: Script, places: Places) -> None:
        self.script, self.places = script, places

    def changes(self, node: ast.AST) -> Iterator[ast.expr]:
        """What a call or an assignment in a forward changes: `self.NAME`, a name, or an attribute of a class."""
        if isinstance(node, ast.Call):
            yield from self._by_call(node)
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                yield from self._by_assignment(node, target)

    def _by_call(self, call: ast.Call) -> Iterator[ast.expr]:
        name = self.script.scopes.name(call.func)
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name == "builtins.next" and call.args:
            yield from filter(self.outlives, call.args[:1])
        elif (name or "").startswith("numpy.") and method == "at" and call.args:
            yield from filter(self.is_numbers, call.args[:1])
        elif method.endswith("_") and not method.startswith("_"):
            yield from filter(self.is_numbers, [_root(call.func)])
        yield from filter(
            None, (one.value for one in call.keywords if one.arg == "out" and self.is_numbers(one.value))
        )
        thing = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        if self._mutates(thing, method or "__call__"):
            yield thing

    def _by_assignment(self, node: ast.Assign | ast.AugAssign, target: ast.expr) -> Iterator[ast.expr]:
        if isinstance(target, ast.Subscript):
            root = _root(target)
            yield from (root,) if self.is_numbers(root) or self.is_default(root) else ()
        elif isinstance(node, ast.AugAssign) and (self.is_numbers(target) or self._is_list(target)):
            yield target  # `self.usage += counts` changes an array, and a list, in place
        elif isinstance(target, ast.Attribute):
            owner = target.value
            if _is_class(owner):
                yield target
            elif is_own(owner) and (owner.attr in SETTINGS or any(self._plain_classes(owner))):
                yield owner  # `self.cfg.temperature *= 0.9`

    def outlives(self, node: ast.expr) -> bool:
        """`self.NAME`, which no forward sets anew, or a name from outside of the function."""
        if is_own(node):
            return not any(map(self._sets_anew, self._assignments(node.attr)))
        if not isinstance(node, ast.Name):
            return False
        home = self.script.scopes.lookup(node.id, self.script.scopes.scope_of[node])
        return home is not None and (
            home is self.script.scopes.top or home.node is not self.script.scopes.function(node)
        )

    def _sets_anew(self, assignment: ast.Assign) -> bool:
        """In each forward, without a condition: what a replica is given by that is its own."""
        around = self.script.scopes.parents[assignment]
        return self.places.of(assignment) is Place.FORWARD and isinstance(around, ast.FunctionDef)

    def gives(self, call: ast.Call) -> bool:
        """Whether what a change returns is used: `scale = next(self.scales)`, `self.schedule.step()`."""
        if isinstance(self.script.scopes.parents[call], ast.Expr):
            return False
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        thing = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        is_next = self.script.scopes.name(call.func) == "builtins.next"
        return is_next or method in TAKES or self._mutates(thing, method or "__call__")

    def is_numbers(self, node: ast.expr) -> bool:
        """An array, or a tensor that is neither a parameter nor a buffer."""
        made = (one for one in self.values(node) if isinstance(one, ast.Call))
        names = (self.script.scopes.name(one.func) or "" for one in made)
        return self.outlives(node) and any(one in TORCH_MAKERS or one in ARRAYS for one in names)

    def _is_list(self, node: ast.expr) -> bool:
        return self.outlives(node) and any(isinstance(one, LISTS) for one in self.values(node))

    def is_default(self, node: ast.expr) -> bool:
        """`def ramp(state={})`: a parameter's default, which all calls share."""
        function = self.script.scopes.function(node)
        if not isinstance(node, ast.Name) or not isinstance(function, ast.FunctionDef):
            return False
        behind = len(function.args.defaults)
        names = [one.arg for one in function.args.args][-behind:] if behind else []
        return node.id in names and isinstance(
            function.args.defaults[names.index(node.id)], (ast.List, ast.Dict)
        )

    def is_iterator(self, node: ast.expr) -> bool:
        """Something that cannot be told from rank to rank: it has no state that can be read."""
        for value in self.values(node):
            if not isinstance(value, ast.Call):
                continue
            made = self.script.scopes.definition(value.func)
            yields = isinstance(made, ast.FunctionDef) and any(
                isinstance(one, ast.Yield) for one in ast.walk(made)
            )
            if yields or (self.script.scopes.name(value.func) or "").startswith(ITERATORS):
                return True
        return False

    def values(self, node: ast.expr) -> Iterator[ast.AST | None]:
        """What `self.NAME` or a name is set to."""
        if is_own(node):
            yield from (one.value for one in self._assignments(node.attr))
        elif isinstance(node, ast.Name):
            home = self.script.scopes.lookup(node.id, self.script.scopes.scope_of[node])
            yield from home.values.get(node.id, []) if home else ()

    def _assignments(self, attribute: str) -> Iterator[ast.Assign]:
        for node in self.script.nodes(ast.Assign):
            assert isinstance(node, ast.Assign)
            if any(is_own(one) and one.attr == attribute for one in node.targets):
                yield node

    def _mutates(self, thing: ast.expr, method: str) -> bool:
        """Whether a method of an object of the script's own, which is no module, changes that object."""
        if not (is_own(thing) or isinstance(thing, ast.Name)) or not self.outlives(thing):
            return False
        classes = [*self._plain_classes(thing)]
        if any(isinstance(one, ast.Name) for one in self.values(thing)):  # it is handed in: it may be any
            found = (one for one in self.script.nodes(ast.ClassDef) if isinstance(one, ast.ClassDef))
            classes += [one for one in found if self.places.kind(one) is None]
        return any(_changes_itself(one, method) for one in classes)

    def _plain_classes(self, node: ast.expr) -> Iterator[ast.ClassDef]:
        """The classes, no modules, of which an object is made."""
        for value in self.values(node):
            if isinstance(value, ast.Call):
                made = self.script.scopes.definition(value.func)
                if isinstance(made, ast.ClassDef) and self.places.kind(made) is None:
                    yield made


def _changes_itself(owner: ast.ClassDef, method: str) -> bool:
    """Whether a method stores to `self`, directly or through others of its own."""
    methods = {one.name: one for one in owner.body if isinstance(one, ast.FunctionDef)}
    queue, seen = [method], set[str]()
    while queue:
        name = queue.pop()
        if name in seen or name not in methods:
            continue
        seen.add(name)
        for node in ast.walk(methods[name]):
            if isinstance(node, ast.Attribute) and is_own(node) and not isinstance(node.ctx, ast.Load):
                return True
            if isinstance(node, ast.Subscript) and is_own(node.value) and not isinstance(node.ctx, ast.Load):
                return True
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if is_own(node.func.value) and node.func.attr in {
                    *TAKES,
                    "append",
                    "add",
                    "update",
                    "extend",
                }:
                    return True
                queue += [node.func.attr] if _is_self(node.func.value) else []
    return False


def _root(node: ast.expr) -> ast.expr:
    """`self.ema` of `self.ema.mul_(0.9).add_(x)` and of `self.ema[0]`."""
    while True:
        match node:
            case ast.Subscript(value=value) | ast.Call(func=ast.Attribute(value=value)):
                node = value
            case ast.Attribute(value=value) if not is_own(node):
                node = value
            case _:
                return node


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def is_own(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """`self.NAME`."""
    return isinstance(node, ast.Attribute) and _is_self(node.value)


def _is_class(node: ast.expr) -> bool:
    """`type(self)`, `self.__class__`."""
    match node:
        case ast.Call(func=ast.Name(id="type"), args=[ast.Name(id="self")]):
            return True
        case ast.Attribute(value=ast.Name(id="self"), attr="__class__"):
            return True
    return False
