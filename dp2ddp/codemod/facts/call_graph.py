"""Who calls whom in a project: one answer for all facts, and closures over it, which end in any circle.

An edge is a mention: a function whose name is handed on (`checkpoint(self.block, x)`, `map(load, paths)`) is called
where that is not seen. Mentions of a method by another object's attribute of the same name count, too: too much is
found, never too little.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from dp2ddp.codemod.facts.purity import OPERATIONS
from dp2ddp.codemod.facts.scopes import Function
from dp2ddp.codemod.facts.script import Script

if TYPE_CHECKING:
    from dp2ddp.codemod.facts.modules import Modules

Part = tuple[Script, ast.AST]  # a node, and the file that it stands in


# Methods that nobody calls by name (docs.python.org/3/reference/datamodel.html).
IMPLICIT = OPERATIONS | {
    *("__enter__", "__exit__", "__iter__", "__next__", "__reversed__", "__len__", "__hash__", "__format__"),
    *(
        "__getattr__",
        "__getattribute__",
        "__setattr__",
        "__delattr__",
        "__setitem__",
        "__delitem__",
        "__missing__",
    ),
    *(
        "__str__",
        "__repr__",
        "__complex__",
        "__trunc__",
        "__divmod__",
        "__lshift__",
        "__rshift__",
        "__call__",
    ),
}


class CallGraph:
    """The functions of a project's files: what each mentions, and where each is mentioned."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self._callees: dict[ast.AST, tuple[Part, ...]] = {}
        self._related: dict[ast.AST, tuple[Part, ...]] = {}
        self._implicits: dict[ast.AST, tuple[Part, ...]] = {}

    # --- who is called

    def callees(self, part: Part) -> tuple[Part, ...]:
        """The functions that a function, or any other code, mentions."""
        script, node = part
        if node not in self._callees:
            found = (one for inner in ast.walk(node) for one in self.means(script, inner))
            self._callees[node] = tuple(dict.fromkeys(found))
        return self._callees[node]

    def reached(self, roots: Iterable[Part]) -> Iterator[Part]:
        """The roots, and the functions that they call, each once."""
        return closure(roots, self.callees)

    def means(self, script: Script, node: ast.AST) -> Iterator[Part]:
        """The functions of the project that a name or an attribute means; a class means none."""
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            return
        yield from (one for one in self.modules.definitions(script, node) if isinstance(one[1], Function))
        yield from self._implicit(script, node)
        if isinstance(node, ast.Attribute):
            yield from self._methods(script, node)
        elif (value := script.scopes.value(node)) is not node:
            yield from self._functions_in(script, value)

    def _implicit(self, script: Script, node: ast.Name | ast.Attribute) -> Iterator[Part]:
        """What Python may call of an own object that is mentioned: `with self.timer:`, `float(self.scale)`."""
        own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        made = self._values.get((script, node.attr), ()) if own else [script.scopes.value(node)]  # type: ignore[union-attr]
        for value in made:
            found = self.modules.definition(script, value.func) if isinstance(value, ast.Call) else None
            if found and isinstance(found[1], ast.ClassDef):
                yield from self._implicit_methods(found)

    def _implicit_methods(self, owner: Part) -> tuple[Part, ...]:
        if owner[1] not in self._implicits:
            methods = (
                (home, one)
                for home, kind in self.related(owner)
                for one in getattr(kind, "body", ())
                if isinstance(one, Function) and one.name in IMPLICIT
            )
            self._implicits[owner[1]] = tuple(methods)
        return self._implicits[owner[1]]

    def _methods(self, script: Script, node: ast.Attribute) -> Iterator[Part]:
        """`self.step`, `super().step`, `Trainer.step`, and `self.meter.step` where `self.meter = Meter()`."""
        match node.value:
            case ast.Name(id="self" | "cls"):
                yield from self._of_own_class(script, node)
                for value in self._values.get((script, node.attr), ()):
                    yield from self._functions_in(script, value)
            case ast.Call(func=ast.Name(id="super")):
                yield from self._of_own_class(script, node)
            case ast.Attribute(value=ast.Name(id="self"), attr=part):
                for value in self._values.get((script, part), ()):
                    if isinstance(value, ast.Call):
                        yield from self._of_class(script, value.func, node.attr)
            case ast.Name() | ast.Attribute():
                made = script.scopes.value(node.value)
                yield from self._of_class(
                    script, made.func if isinstance(made, ast.Call) else node.value, node.attr
                )

    def _of_own_class(self, script: Script, node: ast.Attribute) -> Iterator[Part]:
        owner = script.scopes.owner_class(node)
        for home, one in self.related((script, owner)) if owner else ():
            yield from _method(home, one, node.attr)

    def _of_class(self, script: Script, node: ast.expr, method: str) -> Iterator[Part]:
        found = self.modules.definition(script, node)
        if found and isinstance(found[1], ast.ClassDef):
            for home, one in self.related(found):
                yield from _method(home, one, method)

    def _functions_in(self, script: Script, value: ast.AST | None) -> Iterator[Part]:
        """The functions that a value is, holds or comes from: `lambda: 1`, `partial(step, 1)`, `make()`, a table."""
        pending, seen = [(script, value)], set[ast.AST]()
        while pending:
            home, one = pending.pop()
            if one is None or one in seen:
                continue
            seen.add(one)
            match one:
                case ast.Lambda():
                    yield home, one
                case ast.Name() | ast.Attribute():
                    found = [
                        part for part in self.modules.definitions(home, one) if isinstance(part[1], Function)
                    ]
                    yield from found
                    if (
                        not found
                        and isinstance(one, ast.Name)
                        and (given := home.scopes.value(one)) is not one
                    ):
                        pending.append((home, given))
                case ast.Dict(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
                    pending += [(home, part) for part in parts]
                case ast.Call(func=func, args=given):
                    pending += [(home, part) for part in given]
                    pending += [
                        result for part in self.modules.definitions(home, func) for result in _results(*part)
                    ]

    @cached_property
    def _values(self) -> dict[tuple[Script, str], list[ast.expr]]:
        """What the attributes of a file's objects are set to."""
        found: dict[tuple[Script, str], list[ast.expr]] = {}
        for script in self.modules.scripts:
            for node in script.nodes(ast.Assign):
                assert isinstance(node, ast.Assign)
                for target in node.targets:
                    if isinstance(target, ast.Attribute):
                        found.setdefault((script, target.attr), []).append(node.value)
        return found

    @cached_property
    def stores(self) -> dict[str, list[tuple[Script, ast.Attribute]]]:
        """Where attributes of each name are set, of whichever object."""
        found: dict[str, list[tuple[Script, ast.Attribute]]] = {}
        for script in self.modules.scripts:
            for node in script.nodes(ast.Attribute):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    found.setdefault(node.attr, []).append((script, node))
        return found

    # --- classes

    def related(self, owner: Part) -> tuple[Part, ...]:
        """A class, its bases and theirs, and the classes that are made from it: where `self.NAME` may be defined."""
        if owner[1] not in self._related:
            found = dict.fromkeys((*self.bases_of(owner), *self.heirs_of(owner)))
            self._related[owner[1]] = tuple(found)
        return self._related[owner[1]]

    def bases_of(self, owner: Part) -> Iterator[Part]:
        """A class, its bases and theirs, as far as they are the project's."""
        return closure([owner], lambda part: self._bases.get(part[1], ()))

    def heirs_of(self, owner: Part) -> Iterator[Part]:
        """A class, and those that are made from it."""
        return closure([owner], lambda part: self._heirs.get(part[1], ()))

    @cached_property
    def hides_bases(self) -> bool:
        """Whether some class has a base that the text does not name: `class Made(TABLE[name])`, `type(...)`."""
        return any(
            any(call.name == "builtins.type" and len(call.node.args) == 3 for call in script.calls)
            or "__bases__" in script.by_word
            or any(isinstance(one.ctx, ast.Store) for one in script.by_word.get("__class__", ()))
            or any(
                self.modules.definition(script, base) is None and script.scopes.name(base) is None
                for node in script.nodes(ast.ClassDef)
                for base in getattr(node, "bases", ())
            )
            for script in self.modules.scripts
        )

    @cached_property
    def _bases(self) -> dict[ast.AST, list[Part]]:
        found: dict[ast.AST, list[Part]] = {}
        for script in self.modules.scripts:
            for node in script.nodes(ast.ClassDef):
                assert isinstance(node, ast.ClassDef)
                bases = (self.modules.definition(script, one) for one in node.bases)
                found[node] = [one for one in bases if one and isinstance(one[1], ast.ClassDef)]
        return found

    @cached_property
    def _heirs(self) -> dict[ast.AST, list[Part]]:
        found: dict[ast.AST, list[Part]] = {}
        for heir, bases in self._bases.items():
            for _, base in bases:
                found.setdefault(base, []).append((self.modules.home[heir], heir))
        return found

    # --- who calls

    def mentions(self, function: Part) -> Iterator[Part]:
        """Where a function is named: a method by whatever has an attribute of that name."""
        script, node = function
        name = getattr(node, "name", "")
        is_method = isinstance(script.scopes.parents[node], ast.ClassDef)
        for other, one in self._named.get(name, ()):
            by_object = is_method and isinstance(one, ast.Attribute) and other.scopes.name(one) is None
            if by_object or any(found is node for _, found in self.modules.definitions(other, one)):
                yield other, one

    def calls(self, function: Part) -> Iterator[tuple[Script, ast.Call]]:
        """The mentions that are calls."""
        for script, node in self.mentions(function):
            call = script.scopes.parents[node]
            if isinstance(call, ast.Call) and call.func is node:
                yield script, call

    @cached_property
    def _named(self) -> dict[str, list[Part]]:
        found: dict[str, list[Part]] = {}
        for script in self.modules.scripts:
            for node in script.nodes(ast.Name, ast.Attribute):
                assert isinstance(node, (ast.Name, ast.Attribute))
                if isinstance(node.ctx, ast.Load):
                    found.setdefault(node.id if isinstance(node, ast.Name) else node.attr, []).append(
                        (script, node)
                    )
        return found


def _method(script: Script, owner: ast.AST, name: str) -> Iterator[Part]:
    assert isinstance(owner, ast.ClassDef)
    yield from ((script, one) for one in owner.body if isinstance(one, Function) and one.name == name)


def _results(script: Script, function: ast.AST) -> Iterator[tuple[Script, ast.AST | None]]:
    if isinstance(function, Function):
        yield from ((script, one.value) for one in ast.walk(function) if isinstance(one, ast.Return))


def closure(roots: Iterable[Part], steps: Callable[[Part], Iterable[Part]]) -> Iterator[Part]:
    """The roots, and what steps lead to from them, each once; the nearest first."""
    pending, seen = deque(roots), set[ast.AST]()
    while pending:
        part = pending.popleft()
        if part[1] not in seen:
            seen.add(part[1])
            yield part
            pending += steps(part)
