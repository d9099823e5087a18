"""Models with dropout that no wrapped model is made of: they run whole on every rank, and must draw alike there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.facts.script import CallSite, Script
from dp2ddp.codemod.facts.training_script import TrainingScript

Function = ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_LIBRARIES = ("torch.nn.", "torchvision.models.", "timm.", "transformers.")


@lru_cache(maxsize=1)
def models_beside(subject: TrainingScript) -> tuple[CallSite, ...]:
    """Where they may be made."""
    making = _Making(subject)
    return tuple(call for call in subject.calls if making.is_beside(call))


class _Making:
    """What wrapped models are made by, as far as assignments tell; what is not seen is taken for another model's."""

    def __init__(self, subject: TrainingScript) -> None:
        self.subject, self.program = subject, subject.program
        self.drawing = _drawing_definitions(subject)
        self.calls: set[ast.AST] = set()
        self.functions: set[ast.AST] = set()
        for wrap in subject.wraps:
            if wrap.module is not None:
                self._follow(wrap.module)
        self.functions |= self._uncalled(any(self._looks_up(call) for call in self.calls))

    def is_beside(self, call: CallSite) -> bool:
        """Whether a call may make one; inside a model's class it is the making of that class that counts."""
        if call.node in self.calls or self.subject.places.of(call.node) is not ExecutionPlace.MAIN:
            return False
        made = self.program.scopes.definitions(call.node.func)
        is_looked_up = bool(self.drawing) and self._looks_up(call.node)
        if not (is_looked_up or self.subject.is_drawn_by_model(call) or any(map(self._makes_drawing, made))):
            return False
        around = _definitions_around(self.program, call.node)
        return not any(
            definition in self.functions or is_model(self.program, definition) for definition in around
        )

    def _makes_drawing(self, definition: ast.AST) -> bool:
        if definition in self.functions:
            return definition in self.drawing
        return definition in self.drawing and is_model(self.program, definition)

    def _uncalled(self, looks_up: bool) -> set[ast.AST]:
        """The functions that nothing calls by name; if a model is looked up (`models.__dict__[arch]()`), these may be
        what makes it, otherwise those that are named nowhere make none."""
        nodes: list[ast.AST] = [call.node.func for call in self.program.calls]
        nodes = nodes if looks_up else list(self.program.nodes(ast.Name, ast.Attribute))
        names = [
            (self.program.scopes.definitions(node), set(_definitions_around(self.program, node)))
            for node in nodes
        ]
        functions: set[ast.AST] = {part for part in self.drawing if isinstance(part, Function)}
        dead, before = set[ast.AST](), None
        while dead != before:  # what only these name runs no more than they do
            before = dead
            known = {
                definition for definitions, around in names if not around & dead for definition in definitions
            }
            dead = functions - known
        return dead

    def _looks_up(self, call: ast.AST) -> bool:
        """`models.__dict__[name]()`, `getattr(models, name)()`."""
        func = call.func if isinstance(call, ast.Call) else None
        inner = func.func if isinstance(func, ast.Call) else None
        is_getattr = inner is not None and self.program.scopes.name(inner) == "builtins.getattr"
        return isinstance(func, ast.Subscript) or is_getattr

    def _follow(self, module: ast.expr) -> None:
        """What a module is made by: calls, also those in their arguments, and functions that return it."""
        pending, seen = [module], set[ast.AST]()
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            if isinstance(value, (ast.Name, ast.Attribute)):
                pending += self.subject.made.get(self.program.variable(value), ())
            if isinstance(value, ast.IfExp):
                pending += value.body, value.orelse
            if isinstance(value, ast.Call):
                inner = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
                self.calls.update(inner)
                self._enter(inner)
                if isinstance(value.func, ast.Attribute) and not self.program.scopes.name(value.func):
                    pending.append(value.func.value)  # `net` of `net.to(device)`

    def _enter(self, calls: list[ast.Call]) -> None:
        """The functions that are called, and what is called in them."""
        for call in calls:
            for definition in self.program.scopes.definitions(call.func):
                if isinstance(definition, Function) and definition not in self.functions:
                    self.functions.add(definition)
                    inner = [node for node in ast.walk(definition) if isinstance(node, ast.Call)]
                    self.calls.update(inner)
                    self._enter(inner)


def _drawing_definitions(subject: TrainingScript) -> set[ast.AST]:
    """The classes and functions that make a layer that draws, or draw in a forward, themselves or by another."""
    program = subject.program
    namers: dict[ast.AST, set[ast.AST]] = {}  # by the definition that they name
    for node in program.nodes(ast.Name, ast.Attribute):
        for definition in program.scopes.definitions(node):
            namers.setdefault(definition, set()).update(_definitions_around(program, node))
    layers = (call.node for call in subject.calls if subject.is_drawn_by_model(call))
    drawing = {around for node in layers for around in _definitions_around(program, node)}
    pending = list(drawing)
    while pending:
        further = namers.get(pending.pop(), set()) - drawing
        drawing |= further
        pending += further
    return drawing


def _definitions_around(program: Script, node: ast.AST) -> Iterator[ast.AST]:
    return (around for around in program.scopes.ancestors(node) if isinstance(around, _DEFINITIONS))


def is_model(program: Script, definition: ast.AST) -> bool:
    """Whether it is a class with a forward, or derived from a model's."""
    if not isinstance(definition, ast.ClassDef):
        return False
    forward = any(isinstance(method, Function) and method.name == "forward" for method in definition.body)
    names = ((program.scopes.name(base) or "") for base in definition.bases)
    owns = (base_class for base in definition.bases for base_class in program.scopes.definitions(base))
    return (
        forward
        or any(name.startswith(_LIBRARIES) for name in names)
        or any(is_model(program, base_class) for base_class in owns if base_class is not definition)
    )
