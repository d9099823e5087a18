"""What keeps a clock's value: names, attributes of objects, containers; and where each of them is read.

A time in `batch_time.update(time() - end)` is in `batch_time`, not in every meter: what one object keeps is followed
within its class, and the object where it was given.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.call_graph import Part
from dp2ddp.codemod.facts.makers import Makers, is_self
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.script import SETTINGS, Script


@dataclass(frozen=True, eq=False)
class Inside:
    """Within a class: what one of its objects holds is followed here; the object itself, where it was given."""

    family: frozenset[ast.AST]


@dataclass(frozen=True, eq=False)
class Entered:
    """A function of the project that got the value, and the call that gave it."""

    function: ast.AST
    script: Script
    call: ast.Call
    makes: bool  # a class is called: the function is its __init__
    outer: Context
    depth: int


Context = Entered | Inside | None  # None: the value is here, whoever calls


class MattersError(Exception):
    """The value comes to something that all ranks must share."""


class Keepers:
    """The names, attributes and containers that keep the value; `take` follows it to where they are read.

    Raises MattersError for what cannot be followed.
    """

    def __init__(
        self, modules: Modules, makers: Makers, take: Callable[[Script, ast.AST, Context], None]
    ) -> None:
        self.modules = modules
        self.graph = modules.graph
        self.makers = makers
        self.take = take
        self.held: set[tuple[object, ...]] = set()  # names, attributes, parameters that are followed already
        self.insides: dict[frozenset[ast.AST], Inside] = {}

    def store(self, script: Script, target: ast.AST, context: Context) -> None:
        """Follow the target of an assignment: a name, an attribute, an item, or several of them."""
        match target:
            case ast.Name():
                node, name = script.variable(target)
                self.hold_name(script, (node, name), context)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self.store(script, part, context)
            case ast.Starred(value=value):
                self.store(script, value, context)
            case ast.Attribute():
                self._store_attribute(script, target, context)
            case ast.Subscript(value=value):
                self.fill(script, value, context)
            case _:
                raise MattersError

    def hold_name(self, script: Script, variable: tuple[ast.AST | None, str], context: Context) -> None:
        """Follow a variable of a function, a class or a file, wherever it is read."""
        scope, name = variable
        if scope is None:
            raise MattersError
        if isinstance(scope, ast.ClassDef):
            family = frozenset(relative for _, relative in self.graph.related((script, scope)))
            self._hold_attribute(name, family, is_read_by_all=False)
        if scope is script.tree:
            context = None
        if (variable, context) in self.held:
            return
        self.held.add((variable, context))
        for mention in script.by_word.get(name, ()):
            if (
                isinstance(mention, ast.Name)
                and isinstance(mention.ctx, ast.Load)
                and script.variable(mention) == variable
            ):
                self.take(script, mention, context)
        if scope is script.tree:
            self._read_elsewhere(script, name)
        elif any(script.scopes.function(call.node) is scope for call in script.calls_of("builtins.locals")):
            raise MattersError

    def _read_elsewhere(self, script: Script, name: str) -> None:
        """A name of a file, by the other files."""
        for other in self.modules.scripts:
            for node in other.nodes(ast.Name, ast.Attribute) if other is not script else ():
                module, _, last = (other.scopes.name(node) or "").rpartition(".")
                if last == name and self.modules.by_name.get(module) is script:
                    self.take(other, node, None)

    def _store_attribute(self, script: Script, target: ast.Attribute, context: Context) -> None:
        owner = script.scopes.owner_class(target)
        if isinstance(target.value, ast.Name) and target.value.id in SETTINGS:
            raise MattersError  # settings are read in many ways
        if isinstance(target.value, ast.Name) and self.makers.is_bar(script, target.value):
            return
        if owner is None or not is_of_self(target):
            self._hold_attribute(target.attr, frozenset(), is_read_by_all=True)
            return
        function = script.scopes.function(target)
        family = frozenset(relative for _, relative in self.graph.related((script, owner)))
        if isinstance(context, Inside):
            self._hold_inside(target.attr, context)
        elif isinstance(context, Entered) and context.function is function:
            self._hold_in_object(target, family, context)
        else:
            self._hold_attribute(target.attr, family, is_read_by_all=False)

    def _hold_in_object(self, target: ast.Attribute, family: frozenset[ast.AST], entered: Entered) -> None:
        """The object whose method was called holds the value, and no other of its class."""
        func = entered.call.func
        if entered.makes:
            self.take(entered.script, entered.call, entered.outer)
        elif not isinstance(func, ast.Attribute) or is_self(func.value) or isinstance(func.value, ast.Call):
            if isinstance(entered.outer, Inside):
                self._hold_inside(target.attr, entered.outer)
            else:  # of this object, and so of any
                self._hold_attribute(target.attr, family, is_read_by_all=False)
            return
        elif not self.makers.is_made_here(entered.script, func.value):
            self._hold_attribute(target.attr, family, is_read_by_all=False)
            return
        else:
            self.store(entered.script, func.value, entered.outer)
        self._hold_inside(target.attr, self.insides.setdefault(family, Inside(family)))

    def _hold_inside(self, name: str, inside: Inside) -> None:
        if (name, inside) in self.held:
            return
        self.held.add((name, inside))
        for script, node in self._loads_of_self(name, inside.family):
            self.take(script, node, inside)
        for script, node in self._bare_selves(inside.family):
            self.take(script, node, inside)

    def _hold_attribute(self, name: str, family: frozenset[ast.AST], *, is_read_by_all: bool) -> None:
        """An attribute of objects of a class, whichever they are; of any object, where the class is not known."""
        if (name, family) in self.held:
            return
        self.held.add((name, family))
        readings = 0
        for script in self.modules.scripts:
            for node in script.by_word.get(name, ()):
                if isinstance(node, ast.Attribute) and self._may_read(script, node, family):
                    readings += 1
                    self.take(script, node, None)
        for script in self.modules.scripts:
            for call in script.calls_of("builtins.getattr", "operator.attrgetter"):
                if any(
                    isinstance(argument, ast.Constant) and argument.value == name
                    for argument in call.node.args
                ):
                    raise MattersError
        for home, bare in self._bare_selves(family):
            if _is_shown_whole(home, bare):
                self.take(home, bare, None)
        if not readings and (is_read_by_all or any(self.has_foreign_base(node) for node in family)):
            raise MattersError  # somebody else reads it

    def _may_read(self, script: Script, node: ast.Attribute, family: frozenset[ast.AST]) -> bool:
        if not isinstance(node.ctx, ast.Load):
            return False
        if (script.scopes.name(node) or "").startswith(("torch.", "numpy.", "time.", "datetime.", "os.")):
            return False
        owner = script.scopes.owner_class(node)
        if is_self(node.value) and owner is not None:
            return not family or owner in family
        made = self.makers.class_of(script, node.value)
        return not (family and made) or any(node in family for _, node in made or ())

    def _loads_of_self(self, name: str, family: frozenset[ast.AST]) -> Iterator[Part]:
        for script in self.modules.scripts:
            for node in (*script.by_word.get(name, ()), *script.by_word.get("__dict__", ())):
                if (
                    isinstance(node.ctx, ast.Load)
                    and is_of_self(node)
                    and script.scopes.owner_class(node) in family
                ):
                    yield script, node

    def _bare_selves(self, family: frozenset[ast.AST]) -> Iterator[Part]:
        for script in self.modules.scripts:
            for node in script.by_word.get("self", ()):
                is_base = isinstance(script.scopes.parents[node], ast.Attribute)
                is_super = isinstance(around := script.scopes.parents[node], ast.Call) and _is_super(around)
                if (
                    not is_base
                    and not is_super
                    and isinstance(node, ast.Name)
                    and script.scopes.owner_class(node) in family
                ):
                    yield script, node

    def has_foreign_base(self, owner: ast.AST) -> bool:
        """Whether a class is derived from one that is not of the project, and may read any attribute."""
        script = self.modules.home[owner]
        bases = (script.scopes.name(node) or "" for node in getattr(owner, "bases", ()))
        return any(
            not self.modules.is_local(base) and base not in ("builtins.object", "torch.nn.Module")
            for base in bases
        )

    def fill(self, script: Script, holder: ast.expr, context: Context) -> None:
        """`times.append(t)`, `log["time"] = t`: what holds the value is followed as the value is."""
        while isinstance(holder, ast.Subscript):
            holder = holder.value
        if not isinstance(holder, (ast.Name, ast.Attribute)) or not self.makers.is_fresh(script, holder):
            raise MattersError  # whoever gave it has it, too
        self.store(script, holder, context)


def _is_super(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "super"


def is_of_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and is_self(node.value)


def _is_shown_whole(script: Script, node: ast.AST) -> bool:
    """`str(self)`, `vars(self)`, `f"{self}"`."""
    parent = script.scopes.parents[node]
    return isinstance(parent, (ast.Call, ast.FormattedValue))
