"""Which parts of the local modules a script can reach: only those are converted."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dp2ddp.codemod.facts.entry import is_main_guard
from dp2ddp.codemod.facts.script import Script

DYNAMIC = {"getattr", "globals", "eval", "exec", "__dict__", "import_module", "__import__"}


class Reach:
    """A function or class of a local module counts where code that can be reached mentions its name."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self.entry = scripts[0]
        self.mentioned = _mentioned(scripts)

    def holds(self, script: Script, node: ast.AST) -> bool:
        """Whether a node of a file can run when the entry script is started."""
        if script is self.entry or isinstance(node, ast.Module):
            return True
        statement = _top_statement(script, node)
        name = _name(statement)
        mentioned = name is None or self.mentioned is None or name in self.mentioned
        return mentioned and not is_main_guard(statement)


def _mentioned(scripts: Sequence[Script]) -> set[str] | None:
    """The names that code which can be reached mentions; None if names are looked up at run time."""
    names = set(_identifiers(scripts[0].tree))
    pending = [node for script in scripts[1:] for node in script.tree.body if not is_main_guard(node)]
    while True:
        reached = [node for node in pending if _name(node) is None or _name(node) in names]
        if not reached:
            break
        pending = [node for node in pending if node not in reached]
        names |= {name for node in reached for name in _identifiers(node)}
    return None if names & DYNAMIC else names


def _name(node: ast.stmt) -> str | None:
    """The name of a definition; None for a statement that runs when the module is imported."""
    return getattr(node, "name", None)


def _identifiers(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr
        elif isinstance(one, ast.alias):
            yield one.name.rpartition(".")[2]


def _top_statement(script: Script, node: ast.AST) -> ast.stmt:
    last = node
    for parent in script.scopes.ancestors(node):
        if isinstance(parent, ast.Module):
            break
        last = parent
    assert isinstance(last, ast.stmt)
    return last
