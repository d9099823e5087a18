"""All files of a project read as one script: so that a model, or a batch, is followed from file to file.

Names are compared by their texts, so two things of one name in two files count as one: what is found out is then
too much, and a faster choice is not taken; never too little.
"""

from __future__ import annotations

import ast
from functools import cached_property

from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.positions import Positions, Span
from dp2ddp.codemod.facts.reach import Reach
from dp2ddp.codemod.facts.scopes import Function, Scopes
from dp2ddp.codemod.facts.script import CallSite, Script, Variable


class Program(Script):
    """The entry script, and what it reaches of its local modules."""

    def __init__(self, modules: Modules, reach: Reach) -> None:
        entry = modules.entry
        self.source, self.name, self.tree = entry.source, entry.name, entry.tree
        self.files = modules.scripts
        self.by_name = modules.by_name
        self.home = modules.home
        self.scopes = LinkedScopes(self, modules, reach)
        self.positions = LinkedPositions(self)
        self._texts: dict[ast.AST, str] = {}

    @cached_property
    def calls(self) -> tuple[CallSite, ...]:
        kept = set(self.scopes.nodes)
        return tuple(call for planned in self.files for call in planned.calls if call.node in kept)

    def variable(self, node: ast.AST) -> Variable:
        """Also of a variable of another file: `from models import net`, `models.net`."""
        return self._imported(node) or super().variable(node)

    def _imported(self, node: ast.AST) -> Variable | None:
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        name = self.scopes.name(node) or ""
        module, _, rest = name.rpartition(".")
        home = self.by_name.get(module)
        return (home.tree, rest) if home and rest in home.scopes.top.values else None

    def where(self, node: ast.AST) -> str:
        home = self.home.get(node, self.files[0])
        line = getattr(node, "lineno", 1)
        return str(self.source.place(line)) if home is self.files[0] else f"{home.shown}:{line}"


class LinkedScopes(Scopes):
    """The scopes of all files; a name may be defined in another file than it is used in."""

    def __init__(self, program: Program, modules: Modules, reach: Reach) -> None:
        entry = program.files[0].scopes
        self.program = program
        self.modules = modules
        self.module, self.top, self.package, self.others = entry.module, entry.top, entry.package, modules
        self.stars = entry.stars
        self.nodes = [node for file in program.files for node in file.scopes.nodes if reach.holds(file, node)]
        self.parents = {child: node for file in program.files for child, node in file.scopes.parents.items()}
        self.scope_of = {
            node: scope for file in program.files for node, scope in file.scopes.scope_of.items()
        }

    def name(self, node: ast.AST | None) -> str | None:
        return self._home(node).name(node) if node is not None else None

    def value(self, node: ast.AST | None) -> ast.AST | None:
        return self._home(node).value(node) if node is not None else None

    def definition(self, node: ast.AST) -> ast.AST | None:
        definition = self.modules.definition(self.program.home[node], node)
        return definition[1] if definition else None

    def definitions(self, node: ast.AST) -> list[ast.AST]:
        return [definition for _, definition in self.modules.definitions(self.program.home[node], node)]

    def function(self, node: ast.AST) -> Function | ast.Lambda | None:
        """The function around a node; what stands in a local module outside of functions has that module."""
        function = super().function(node)
        if function is None and self.program.home[node] is not self.program.files[0]:
            return self.program.home[node].tree  # type: ignore[return-value]  # another than the entry script's None
        return function

    def _home(self, node: ast.AST) -> Scopes:
        return self.program.home.get(node, self.program.files[0]).scopes


class LinkedPositions(Positions):
    """Where a node stands in its own file; nodes of two files are never compared."""

    def __init__(self, program: Program) -> None:
        super().__init__(program.files[0].source.text)
        self.program = program

    def span(self, node: ast.AST) -> Span:
        home = self.program.home.get(node, self.program.files[0])
        return home.positions.span(node)
