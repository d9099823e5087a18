"""Which classes of models can be no part of a wrapped one: their forwards run whole on every rank, in the main flow.

A criterion, a discriminator that stays on one device. Everything that the wrapped expressions may come from is
followed: names to all that they are given, classes and functions through all of their text, what is put into a model
later, what its forward is handed. Where something cannot be followed, no class is said to be apart.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Sequence
from functools import cached_property

from dp2ddp.codemod.facts.models import Wrap, WrapKind
from dp2ddp.codemod.facts.origins import all_given
from dp2ddp.codemod.facts.script import Script, Variable, literal
from dp2ddp.source.parsing import nodes_in

LOOKED_UP = {  # may give anything of the project
    *(f"builtins.{name}" for name in ("getattr", "eval", "exec", "globals", "locals", "vars", "__import__")),
    *("importlib.import_module", "pydoc.locate", "hydra.utils.instantiate"),
    *("torch.load", "torch.jit.load", "pickle.load", "pickle.loads", "joblib.load", "dill.load"),
}


def _is_only_used(program: Script, node: ast.AST) -> bool:
    """A class that is called, is a base, is asked for (`isinstance`, `super`), or has an attribute read."""
    parent = program.scopes.parents[node]
    if isinstance(parent, ast.Call):
        asks = program.scopes.name(parent.func) in (
            "builtins.isinstance",
            "builtins.issubclass",
            "builtins.super",
        )
        return parent.func is node or asks
    return isinstance(parent, (ast.ClassDef, ast.Attribute, ast.arg, ast.AnnAssign))


class _UnknownError(Exception):
    """Something that a wrapped model may be made of, and that cannot be followed."""


class UnwrappedModels:
    """The classes and the models of a project that no wrapped model is made of; without wraps, none."""

    def __init__(self, program: Script, wraps: Sequence[Wrap] = (), hides_wraps: bool = False) -> None:
        self._inside: _Inside | None = None
        known = wraps and not hides_wraps
        if known and all(wrap.kind is WrapKind.WRAP and wrap.module is not None for wrap in wraps):
            with contextlib.suppress(_UnknownError):
                self._inside = _Inside(program, wraps)

    @property
    def parts(self) -> frozenset[ast.AST] | None:
        """All code that wrapped models may be made of; None where it cannot be followed."""
        return None if self._inside is None else frozenset(self._inside.nodes)

    def has_class(self, node: ast.ClassDef) -> bool:
        """Whether it is such a class; what a decorator may put into a table is none."""
        if self._inside is None or node in self._inside.nodes or node.decorator_list:
            return False
        return node not in self._handed_on

    @cached_property
    def _handed_on(self) -> set[ast.AST]:
        """Classes that are handed to something, or kept in a table, as what they are: it may make models of them."""
        assert self._inside is not None
        program = self._inside.program
        mentions = (
            node for node in program.nodes(ast.Name, ast.Attribute) if not _is_only_used(program, node)
        )
        return {
            definition for definition in map(program.scopes.definition, mentions) if definition is not None
        }

    def has_model(self, node: ast.expr) -> bool:
        """Whether an expression is such a model, by a name that is given values, none of which is of a wrapped one."""
        if self._inside is None or not isinstance(node, (ast.Name, ast.Attribute)):
            return False
        is_known = bool(self._inside.given.get(self._inside.program.variable(node)))
        return is_known and not self._inside.is_of_model(node)


class _Inside:
    """All that the wrapped models may be made of."""

    def __init__(self, program: Script, wraps: Sequence[Wrap]) -> None:
        self.program = program
        self.given: dict[Variable, list[ast.expr]] = {}
        for variable, value in (*all_given(program), *_drawn_from(program)):
            self.given.setdefault(variable, []).append(value)
        self.functions: dict[str, list[ast.AST]] = {}
        for node in program.nodes(ast.FunctionDef, ast.AsyncFunctionDef):
            self.functions.setdefault(getattr(node, "name", ""), []).append(node)
        self.nodes: set[ast.AST] = set()
        self._mentioned: dict[ast.AST, frozenset[Variable]] = {}
        self.models = {program.variable(target) for wrap in wraps for target in wrap.targets}
        for wrap in wraps:
            assert wrap.module is not None
            self._visit(wrap.module)
        while self._put_in():
            pass

    def _visit(self, start: ast.AST) -> None:
        pending = [start]
        while pending:
            node = pending.pop()
            if node in self.nodes:
                continue
            self.nodes.add(node)
            if isinstance(node, ast.Call):
                self._refuse_unknown(node)
            if isinstance(node, (ast.Name, ast.Attribute)):
                pending += self._meanings(node)
            pending += ast.iter_child_nodes(node)

    def _meanings(self, node: ast.Name | ast.Attribute) -> Iterator[ast.AST]:
        yield from self.program.scopes.definitions(node)
        if not isinstance(node.ctx, ast.Load):
            return
        variable = self.program.variable(node)
        values = self.given.get(variable, [])
        yield from values
        if values:
            self.models.add(variable)
        elif isinstance(node, ast.Attribute):
            if node.attr != "__init__":  # of a base, whose class is mentioned
                yield from self.functions.get(node.attr, ())
        elif self._is_parameter(node):
            self.models.add(variable)
            if self.program.scopes.owner_class(node) not in self.nodes:
                raise _UnknownError  # of a function that nobody is seen to call

    def _is_parameter(self, node: ast.Name) -> bool:
        scope = self.program.scopes.lookup(node.id, self.program.scopes.scope_of[node])
        if scope is None or node.id in ("self", "cls"):
            return False
        if not isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return False
        return any(inner.arg == node.id for inner in ast.walk(scope.node.args) if isinstance(inner, ast.arg))

    def _refuse_unknown(self, call: ast.Call) -> None:
        name = self.program.scopes.name(call.func)
        if name not in LOOKED_UP:
            return
        owner = self.program.scopes.name(call.args[0]) if call.args else None
        of_torch = (owner or "").startswith(("torch.", "torchvision."))
        plain = name == "builtins.getattr" and len(call.args) > 1 and literal(call.args[1]) is not None
        if not (of_torch or plain):
            raise _UnknownError

    def _put_in(self) -> bool:
        """What becomes part of a model, or is handed to it, later; whether anything was found."""
        before = len(self.nodes), len(self.models)
        for variable, values in self.given.items():
            if variable not in self.models and any(map(self.is_of_model, values)):
                self.models.add(variable)
        for node in self.program.nodes(ast.Assign, ast.Call):
            for value in self._handed_to_models(node):
                self._visit(value)
        return before != (len(self.nodes), len(self.models))

    def is_of_model(self, node: ast.AST) -> bool:
        """Whether a model, or a part of it, is mentioned."""
        if node not in self._mentioned:
            names = (inner for inner in nodes_in(node) if isinstance(inner, (ast.Name, ast.Attribute)))
            self._mentioned[node] = frozenset(map(self.program.variable, names))
        return not self.models.isdisjoint(self._mentioned[node])

    def _handed_to_models(self, node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, (ast.Attribute, ast.Subscript)) and self.is_of_model(target.value):
                    yield node.value
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "load_state_dict":
                return
            given = (*node.args, *(keyword.value for keyword in node.keywords))
            is_setattr = self.program.scopes.name(node.func) == "builtins.setattr" and self.is_of_model(
                given[0]
            )
            if is_setattr or self.is_of_model(node.func):
                yield from given


def _drawn_from(program: Script) -> Iterator[tuple[Variable, ast.expr]]:
    """`for block in net.blocks`, `with make() as net`, `net := make()`, `a, b = parts`."""
    for node in program.nodes(ast.For, ast.comprehension, ast.withitem, ast.NamedExpr, ast.Assign):
        match node:
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                yield from ((program.variable(name), value) for name in _names(target))
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                yield from ((program.variable(name), value) for name in _names(target))
            case ast.NamedExpr(target=target, value=value):
                yield program.variable(target), value
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if not isinstance(target, ast.Name):
                        yield from ((program.variable(name), value) for name in _names(target))


def _names(target: ast.expr) -> Iterator[ast.AST]:
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _names(part)
        case ast.Starred(value=part):
            yield from _names(part)
        case ast.Name() | ast.Attribute():
            yield target
