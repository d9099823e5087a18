"""Which parts of a program can run when its script is started: what nothing names, nothing calls.

A definition counts where code that can be reached says its name, whoever is meant by it: too much is reached, never
too little. An import alone says nothing, but it runs defaults, and bodies of classes. Where names are looked up at run
time, everything that may be meant counts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from dp2ddp.codemod.knowledge.names import HYDRA
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import DEFINITIONS, all_from, defaults, is_main_guard
from dp2ddp.source.parsing import nodes_in

if TYPE_CHECKING:
    from dp2ddp.codemod.model.program import Program

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# Functions that find any class of any module, things of the one that they are given, of the one that calls.
FINDS_ANYTHING = (
    *("builtins.eval", "builtins.exec", "importlib.import_module", "builtins.__import__"),
    *("pydoc.locate", "runpy.run_module", "runpy.run_path", *HYDRA),
)
FINDS_IN_MODULE = ("builtins.getattr", "builtins.vars", "builtins.hasattr", "inspect.getmembers")
FINDS_IN_CALLER = ("builtins.globals", "builtins.locals", "fire.Fire")
FINDS_CLASSES = {"__subclasses__", "__init_subclass__", "modules"}  # `modules` of sys
FINDS_METHODS = {
    "getattr",
    "dir",
    "getmembers",
    "getattr_static",
    "__getattribute__",
    "attrgetter",
    "methodcaller",
}


class Reach:
    """What the script that is started can reach."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.everything = any(self._finds_anything(module) for module in program.modules)
        named = {name for module in program.modules for name in self._looked_up(module)}
        self.whole = {
            module
            for name, module in program.by_name.items()
            if any(name == home or name.startswith(f"{home}.") for home in named)
        }
        self.names = self._names_that_are_said()

    def holds(self, module: Module, node: ast.AST) -> bool:
        """Whether a node belongs to what the script that is started is made of: the script, and what it reaches."""
        if isinstance(node, ast.Module):
            return True
        if module.never_runs(node):
            return False
        if module is self.program.entry:
            return True
        top = module.top_statement(node)
        waits = isinstance(top, DEFINITIONS) and any(_waiting(module, node))
        return not is_main_guard(top) and (not waits or self._is_named(module, top))  # type: ignore[arg-type]

    def runs(self, module: Module, node: ast.AST) -> bool:
        """Whether a node can run, function by function: one whose name nobody says, never does."""
        if isinstance(node, ast.Module) or not self.holds(module, node):
            return isinstance(node, ast.Module)
        return all(self._may_be_called(module, each) for each in _waiting(module, node) if each is not node)

    def _may_be_called(self, module: Module, definition: Definition) -> bool:
        """Whether it is named, or a method that somebody may call who is not seen."""
        owner, name = module.parents[definition], definition.name
        if self._is_named(module, definition) or not isinstance(owner, ast.ClassDef):
            return self._is_named(module, definition)
        is_found = name in self._said_in_texts or name.startswith("__") or self._finds_methods
        # what a class is derived from, a keyword or a decorator may call what it knows
        bases = [each for each in owner.bases if module.name(each) != "builtins.object"]
        return is_found or bool(bases or owner.keywords or owner.decorator_list)

    def _is_named(self, module: Module, definition: Definition) -> bool:
        return definition.name in self.names or self._is_looked_up(module, definition)

    def _is_looked_up(self, module: Module, definition: Definition) -> bool:
        """Whether a definition counts, whoever says its name: a decorator may put it into a table."""
        return self.everything or module in self.whole or bool(definition.decorator_list)

    def _names_that_are_said(self) -> set[str]:
        """The names that code which is reached says: what runs at once, and what of the program it names."""
        at_once: list[ast.AST] = []
        waiting: dict[str, list[ast.AST]] = {}  # definitions that somebody must name
        for module in self.program.modules:
            for statement in module.tree.body:
                if isinstance(statement, DEFINITIONS) and not self._is_looked_up(module, statement):
                    waiting.setdefault(statement.name, []).append(statement)
                    at_once += _at_once(statement)
                elif module is self.program.entry or not is_main_guard(statement):
                    at_once.append(statement)
        begin = (*self.program.starts, *(name for node in at_once for name in said(node)))
        return set(
            all_from(begin, lambda name: (each for node in waiting.get(name, ()) for each in said(node)))
        )

    @cached_property
    def _said_in_texts(self) -> frozenset[str]:
        """Words that stand alone in a string: `getattr(self, "train_step")`, a table of names."""
        constants = (node.value for module in self.program.modules for node in module.all(ast.Constant))
        return frozenset(text for text in constants if isinstance(text, str) and text.isidentifier())

    @cached_property
    def _finds_methods(self) -> bool:
        """Whether something may ask objects for attributes whose names the text does not tell."""
        said = (module.by_word for module in self.program.modules)
        return self.everything or not all(map(FINDS_METHODS.isdisjoint, said))

    def _finds_anything(self, module: Module) -> bool:
        if any(call.name in FINDS_ANYTHING and not _is_followed(module, call.node) for call in module.calls):
            return True
        methods = {node.name for node in module.all(ast.FunctionDef)}
        finds = (node for node in module.all(ast.Attribute) if node.attr in FINDS_CLASSES)
        return bool(methods & FINDS_CLASSES) or any(
            node.attr != "modules" or module.name(node) == "sys.modules" for node in finds
        )

    def _looked_up(self, module: Module) -> Iterator[str]:
        """The files whose definitions a file looks up by their names."""
        for call in module.calls:
            if call.name in FINDS_IN_MODULE and (name := module.name(call.argument(0))):
                yield name
            elif call.name in FINDS_IN_CALLER:
                yield module.dotted
        for node in module.all(ast.Attribute):
            if node.attr == "__dict__" and (name := module.name(node.value)):
                yield name
        yield from _files_as_values(module)


def _is_followed(module: Module, call: ast.Call) -> bool:
    """`import_module("models.resnet")`, whose name is written there."""
    key = module.module_key(call)
    return key is not None and any(module.texts(key))


def _files_as_values(module: Module) -> Iterator[str]:
    """`MODULES = {"a": metrics}`, `for one in (losses, metrics)`: names of theirs may be looked up anywhere."""
    for name in module.program.by_name:
        if any(not isinstance(module.parents[node], ast.Attribute) for node in module.mentions.get(name, ())):
            yield name


def said(node: ast.AST) -> Iterator[str]:
    """The names that a piece of code says."""
    for each in nodes_in(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute):
            yield each.attr
        elif isinstance(each, ast.alias) and each.asname:
            yield each.name.rpartition(".")[2]  # used under another name


def _at_once(definition: Definition) -> Iterator[ast.AST]:
    """What of a definition runs where it stands: defaults, and of a class its body."""
    yield from defaults(definition).values()
    for each in definition.body if isinstance(definition, ast.ClassDef) else ():
        yield from _at_once(each) if isinstance(each, DEFINITIONS) else (each,)


def _waiting(module: Module, node: ast.AST) -> list[Definition]:
    """The definitions that somebody must name for a node to run: those around it, and itself."""
    waiting = [node] if isinstance(node, DEFINITIONS) else []
    for parent, inner in module.steps(node):
        if isinstance(parent, DEFINITIONS):
            is_class = isinstance(parent, ast.ClassDef)
            is_at_once = inner in parent.body if is_class else inner is parent.args  # type: ignore[union-attr]
            waiting += [parent] if waiting or not is_at_once else []
    return waiting
