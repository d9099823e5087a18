"""Imports that the edits leave unused: `from torch.nn import DataParallel` goes with the last use of DataParallel."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dp2ddp.codemod.edits import DropImport, TextEdit
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.positions import Span
from dp2ddp.codemod.facts.script import Script
from dp2ddp.codemod.gone import gone_with, new_code
from dp2ddp.codemod.plan import Plan, Planned

# An owner's word that an import stays although the file itself does not use it.
STAYS = re.compile(r"#.*(?:\bnoqa(?!\s*:)|\bnoqa\s*:.*F401|unused-import|dp2ddp:\s*ignore)", re.IGNORECASE)
BECAUSE = "nothing uses it any more"

_Import = ast.Import | ast.ImportFrom


def with_unused_imports(facts: Facts, plan: Plan) -> Plan:
    """The plan, and edits that take out what the others leave unused."""
    edits = plan.text_edits()
    if not edits or Path(facts.script.source.name).name == "__init__.py":  # of a package, for others to use
        return plan
    uses = _Uses(facts.script, edits)
    unused = [
        planned
        for node in facts.script.nodes(ast.Import, ast.ImportFrom)
        if (planned := _planned(facts, uses, node)) is not None  # type: ignore[arg-type]  # one of the two
    ]
    return replace(plan, edits=_sorted([*plan.edits, *unused])) if unused else plan


def _sorted(edits: Sequence[Planned]) -> tuple[Planned, ...]:
    return tuple(sorted(edits, key=lambda node: (node.line, node.column)))


def _planned(facts: Facts, uses: _Uses, node: _Import) -> Planned | None:
    script = facts.script
    parent = script.scopes.parents[node]
    if not isinstance(parent, (ast.Module, ast.FunctionDef)) or STAYS.search(script.text_of_lines(node)):
        return None
    names = tuple(
        alias.asname or alias.name
        for alias in node.names
        if _has_no_other_effect(node, alias)
        and uses.are_gone(alias.asname or alias.name, node)
        and not _is_taken(facts, alias.asname or alias.name)
    )
    if not names:
        return None
    place = script.source.place(node.lineno)
    file = None if facts.is_entry else script.shown
    edit = DropImport(node, names, f"{BECAUSE}: {', '.join(names)}")
    return Planned("DDP201", node.lineno, node.col_offset + 1, edit, place, file)


def _has_no_other_effect(node: _Import, alias: ast.alias) -> bool:
    """Whether the import of the module itself is nothing: the helpers import torch."""
    module = alias.name if isinstance(node, ast.Import) else node.module or ""
    root = module.split(".")[0]
    is_known = root == "torch" or root in sys.stdlib_module_names and root != "__future__"
    if isinstance(node, ast.Import):
        return is_known and alias.asname is not None and "." in module
    return is_known and not node.level and alias.name != "*"


class _Uses:
    """Where a file says a name, and whether edits leave any of it."""

    def __init__(self, script: Script, edits: Sequence[TextEdit]) -> None:
        self.script = script
        self.gone = [text for edit in edits if (text := gone_with(edit, script.positions))]
        self.new = new_code(edits)

    def are_gone(self, name: str, node: _Import) -> bool:
        """Whether edits take away all uses of an imported name, of which there are some."""
        scopes = self.script.scopes
        nodes = [mention for mention in self.script.by_word.get(name, ()) if isinstance(mention, ast.Name)]
        if not nodes or not all(any(text.holds(self._span(use)) for text in self.gone) for use in nodes):
            return False
        binding = {id(scope): scope for scope in scopes.scope_of.values() if scope.binds(name)}
        scope = scopes.scope_of[node]
        is_only_one = list(binding) == [id(scope)] and name not in (*scope.values, *scope.definitions)
        return is_only_one and self._imports(name) == 1 and not self._is_said(name)

    def _span(self, node: ast.AST) -> Span:
        return self.script.positions.span(node)

    def _imports(self, name: str) -> int:
        imports = (*self.script.nodes(ast.Import), *self.script.nodes(ast.ImportFrom))
        names = (alias for import_ in imports for alias in import_.names)  # type: ignore[attr-defined]  # an import has them
        return sum((alias.asname or alias.name) == name for alias in names)

    def _is_said(self, name: str) -> bool:
        """Whether new code, a comment on types or a string names it: `__all__`, an annotation, `eval`."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        if word.search(self.new) or re.search(rf"#\s*type:.*\b{re.escape(name)}\b", self.script.source.text):
            return True
        values = (getattr(node, "value", None) for node in self.script.nodes(ast.Constant))
        return any(isinstance(value, str) and word.search(value) and _says(value, name) for value in values)


def _says(text: str, name: str) -> bool:
    """Whether a text is an expression with a name in it."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


def _is_taken(facts: Facts, name: str) -> bool:
    """Whether another file of the project takes the name from this one."""
    modules = facts.modules
    own = {module for module, script in modules.by_name.items() if script is facts.script}
    for script in modules.scripts if own else ():
        if script is facts.script:
            continue
        for node in script.nodes(ast.ImportFrom):
            assert isinstance(node, ast.ImportFrom)
            if script.scopes.absolute(node) in own and {"*", name} & {alias.name for alias in node.names}:
                return True
        for use in script.by_word.get(name, ()):
            if isinstance(use, ast.Attribute) and script.scopes.name(use.value) in own:
                return True
    return False
