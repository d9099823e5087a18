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
            meanings = (meaning for inner in ast.walk(node) for meaning in self.means(script, inner))
            self._callees[node] = tuple(dict.fromkeys(meanings))
        return self._callees[node]

    def reached(self, roots: Iterable[Part]) -> Iterator[Part]:
        """The roots, and the functions that they call, each once."""
        return closure(roots, self.callees)

    def means(self, script: Script, node: ast.AST) -> Iterator[Part]:
        """The functions of the project that a name or an attribute means; a class means none."""
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            return
        yield from (
            definition
            for definition in self.modules.definitions(script, node)
            if isinstance(definition[1], Function)
        )
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
            definition = self.modules.definition(script, value.func) if isinstance(value, ast.Call) else None
            if definition and isinstance(definition[1], ast.ClassDef):
                yield from self._implicit_methods(definition)

    def _implicit_methods(self, owner: Part) -> tuple[Part, ...]:
        if owner[1] not in self._implicits:
            methods = (
                (home, node)
                for home, kind in self.related(owner)
                for node in getattr(kind, "body", ())
                if isinstance(node, Function) and node.name in IMPLICIT
            )
            self._implicits[owner[1]] = tuple(methods)
        return self._implicits[owner[1]]

    def _methods(self, script: Script, node: ast.Attribute) -> Iterator[Part]:
        """`self.step`, `super().step`, `Trainer.step`, and `self.meter.step` where `self.meter = Meter()`."""
        match node.value:
            case ast.Name(id="self" | "cls"):
                yield from self._methods_of_own_class(script, node)
                for value in self._values.get((script, node.attr), ()):
                    yield from self._functions_in(script, value)
            case ast.Call(func=ast.Name(id="super")):
                yield from self._methods_of_own_class(script, node)
            case ast.Attribute(value=ast.Name(id="self"), attr=part):
                for value in self._values.get((script, part), ()):
                    if isinstance(value, ast.Call):
                        yield from self._methods_of_class(script, value.func, node.attr)
            case ast.Name() | ast.Attribute():
                made = script.scopes.value(node.value)
                yield from self._methods_of_class(
                    script, made.func if isinstance(made, ast.Call) else node.value, node.attr
                )

    def _methods_of_own_class(self, script: Script, node: ast.Attribute) -> Iterator[Part]:
        owner = script.scopes.owner_class(node)
        for home, relative in self.related((script, owner)) if owner else ():
            yield from _method(home, relative, node.attr)

    def _methods_of_class(self, script: Script, node: ast.expr, method: str) -> Iterator[Part]:
        definition = self.modules.definition(script, node)
        if definition and isinstance(definition[1], ast.ClassDef):
            for home, relative in self.related(definition):
                yield from _method(home, relative, method)

    def _functions_in(self, script: Script, value: ast.AST | None) -> Iterator[Part]:
        """The functions that a value is, holds or comes from: `lambda: 1`, `partial(step, 1)`, `make()`, a table."""
        pending, seen = [(script, value)], set[ast.AST]()
        while pending:
            home, node = pending.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            match node:
                case ast.Lambda():
                    yield home, node
                case ast.Name() | ast.Attribute():
                    functions = [
                        part for part in self.modules.definitions(home, node) if isinstance(part[1], Function)
                    ]
                    yield from functions
                    if (
                        not functions
                        and isinstance(node, ast.Name)
                        and (given := home.scopes.value(node)) is not node
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
        values: dict[tuple[Script, str], list[ast.expr]] = {}
        for script in self.modules.scripts:
            for node in script.nodes(ast.Assign):
                assert isinstance(node, ast.Assign)
                for target in node.targets:
                    if isinstance(target, ast.Attribute):
                        values.setdefault((script, target.attr), []).append(node.value)
        return values

    @cached_property
    def stores(self) -> dict[str, list[tuple[Script, ast.Attribute]]]:
        """Where attributes of each name are set, of whichever object."""
        stores: dict[str, list[tuple[Script, ast.Attribute]]] = {}
        for script in self.modules.scripts:
            for node in script.nodes(ast.Attribute):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    stores.setdefault(node.attr, []).append((script, node))
        return stores

    # --- classes

    def related(self, owner: Part) -> tuple[Part, ...]:
        """A class, its bases and theirs, and the classes that are made from it: where `self.NAME` may be defined."""
        if owner[1] not in self._related:
            relatives = dict.fromkeys((*self.bases_of(owner), *self.heirs_of(owner)))
            self._related[owner[1]] = tuple(relatives)
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
            or any(isinstance(mention.ctx, ast.Store) for mention in script.by_word.get("__class__", ()))
            or any(
                self.modules.definition(script, base) is None and script.scopes.name(base) is None
                for node in script.nodes(ast.ClassDef)
                for base in getattr(node, "bases", ())
            )
            for script in self.modules.scripts
        )

    @cached_property
    def _bases(self) -> dict[ast.AST, list[Part]]:
        bases_of: dict[ast.AST, list[Part]] = {}
        for script in self.modules.scripts:
            for node in script.nodes(ast.ClassDef):
                assert isinstance(node, ast.ClassDef)
                bases = (self.modules.definition(script, base) for base in node.bases)
                bases_of[node] = [base for base in bases if base and isinstance(base[1], ast.ClassDef)]
        return bases_of

    @cached_property
    def _heirs(self) -> dict[ast.AST, list[Part]]:
        heirs: dict[ast.AST, list[Part]] = {}
        for heir, bases in self._bases.items():
            for _, base in bases:
                heirs.setdefault(base, []).append((self.modules.home[heir], heir))
        return heirs

    # --- who calls

    def mentions(self, function: Part) -> Iterator[Part]:
        """Where a function is named: a method by whatever has an attribute of that name."""
        script, node = function
        name = getattr(node, "name", "")
        is_method = isinstance(script.scopes.parents[node], ast.ClassDef)
        for other, inner in self._named.get(name, ()):
            by_object = is_method and isinstance(inner, ast.Attribute) and other.scopes.name(inner) is None
            if by_object or any(
                definition is node for _, definition in self.modules.definitions(other, inner)
            ):
                yield other, inner

    def calls(self, function: Part) -> Iterator[tuple[Script, ast.Call]]:
        """The mentions that are calls."""
        for script, node in self.mentions(function):
            call = script.scopes.parents[node]
            if isinstance(call, ast.Call) and call.func is node:
                yield script, call

    @cached_property
    def _named(self) -> dict[str, list[Part]]:
        named: dict[str, list[Part]] = {}
        for script in self.modules.scripts:
            for node in script.nodes(ast.Name, ast.Attribute):
                assert isinstance(node, (ast.Name, ast.Attribute))
                if isinstance(node.ctx, ast.Load):
                    named.setdefault(node.id if isinstance(node, ast.Name) else node.attr, []).append(
                        (script, node)
                    )
        return named


def _method(script: Script, owner: ast.AST, name: str) -> Iterator[Part]:
    assert isinstance(owner, ast.ClassDef)
    yield from (
        (script, statement)
        for statement in owner.body
        if isinstance(statement, Function) and statement.name == name
    )


def _results(script: Script, function: ast.AST) -> Iterator[tuple[Script, ast.AST | None]]:
    if isinstance(function, Function):
        yield from ((script, node.value) for node in ast.walk(function) if isinstance(node, ast.Return))


def closure(roots: Iterable[Part], steps: Callable[[Part], Iterable[Part]]) -> Iterator[Part]:
    """The roots, and what steps lead to from them, each once; the nearest first."""
    pending, seen = deque(roots), set[ast.AST]()
    while pending:
        part = pending.popleft()
        if part[1] not in seen:
            seen.add(part[1])
            yield part
            pending += steps(part)
