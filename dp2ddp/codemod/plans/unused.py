"""Imports that the edits leave unused: `from torch.nn import DataParallel` goes with the last use of DataParallel."""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dp2ddp.codemod.edits import DropImport, Remove, TextEdit, gone_with, new_code
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.scopes import Binds
from dp2ddp.codemod.plans.plan import in_order
from dp2ddp.codemod.plans.planned import WRAP_RULE, Plan, place

# An owner's word that an import stays although the file itself does not use it.
STAYS = re.compile(r"#.*(?:\bnoqa(?!\s*:)|\bnoqa\s*:.*F401|unused-import|dp2ddp:\s*ignore)", re.IGNORECASE)

Import = ast.Import | ast.ImportFrom


def with_unused_imports(plan: Plan) -> Plan:
    """The plan of a file, and edits that take out what the others leave unused."""
    module = plan.module
    drops = [place(module, WRAP_RULE, drop) for drop in unused_imports(module, plan.text_edits)]
    return replace(plan, edits=in_order([*plan.edits, *drops]))


def unused_imports(module: Module, edits: Sequence[TextEdit]) -> Iterator[DropImport | Remove]:
    """Edits that take out what others leave unused; of a package's `__init__.py` others use what it imports."""
    if not edits or Path(module.source.name).name == "__init__.py":
        return
    positions = module.positions
    gone = [text for edit in edits if (text := gone_with(edit, positions))]
    brought = new_code(edits)
    imports: list[Import] = [*module.all(ast.Import), *module.all(ast.ImportFrom)]
    for node in imports:
        parent = module.parents[node]
        if not isinstance(parent, (ast.Module, ast.FunctionDef)) or STAYS.search(_lines(module, node)):
            continue
        names = tuple(
            name
            for alias in node.names
            if _has_no_other_effect(node, alias)
            and (name := alias.asname or alias.name)
            and [binding.how for binding in module.bindings_of(name)] == [Binds.IMPORT]
            and (uses := [each for each in module.all(ast.Name) if each.id == name])
            and all(any(text.holds(positions.span(use)) for text in gone) for use in uses)
            and not _is_said(module, name, brought)
            and not _is_taken(module, name)
        )
        because = f"nothing uses it any more: {', '.join(names)}"
        if names:
            yield DropImport(node, names, because) if node.names[len(names) :] else Remove(node, because)


def _lines(module: Module, node: ast.stmt) -> str:
    positions = module.positions
    last = node.end_lineno or node.lineno
    return positions.text[positions.line_starts[node.lineno - 1] : positions.line_end(last)]


def _has_no_other_effect(node: Import, alias: ast.alias) -> bool:
    """Whether the import of the module itself is nothing: the helpers import torch."""
    home = alias.name if isinstance(node, ast.Import) else node.module or ""
    root = home.split(".")[0]
    is_known = root == "torch" or root in sys.stdlib_module_names and root != "__future__"
    if isinstance(node, ast.Import):
        return is_known and alias.asname is not None and "." in home
    return is_known and not node.level and alias.name != "*"


def _is_said(module: Module, name: str, brought: str) -> bool:
    """Whether new code, a comment on types or a string names it: `__all__`, an annotation, `eval`."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    if word.search(brought) or re.search(rf"#\s*type:.*\b{re.escape(name)}\b", module.source.text):
        return True
    texts = (node.value for node in module.all(ast.Constant) if isinstance(node.value, str))
    return any(word.search(text) and _says(text, name) for text in texts)


def _says(text: str, name: str) -> bool:
    """Whether a text is an expression with a name in it."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


def _is_taken(module: Module, name: str) -> bool:
    """Whether another file of the program takes the name from this one."""
    own = {dotted for dotted, each in module.program.by_name.items() if each is module}
    others = [each for each in module.program.modules if each is not module]
    imports = ((other, node) for other in others for node in other.all(ast.ImportFrom))
    uses = ((other, node) for other in others for node in other.all(ast.Attribute) if node.attr == name)
    return any(
        other.home_of(node) in own and {"*", name} & {alias.name for alias in node.names}
        for other, node in imports
    ) or any(other.name(node.value) in own for other, node in uses)
