"""Functions that write, as values: handed to partial(), kept in a table, a default. Who calls them is not seen."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.effects import STARTERS
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.script import Script
from dp2ddp.codemod.facts.sinks import FOLDERS_AND_FILES, FUNCTIONS, NO_SINKS, SAVES, TEXT_METHODS

PARTIALS = ("functools.partial", "functools.partialmethod")


@dataclass(frozen=True, eq=False)
class FunctionMention:
    """A function that writes, handed on to be called elsewhere: `functools.partial(torch.save, ...)`."""

    node: ast.expr
    kind: str
    completed_by: ast.Call | None  # the partial() whose first argument it is


def find_mentions(script: Script, modules: Modules) -> tuple[FunctionMention, ...]:
    return tuple(_MentionFinder(script, modules).mentions())


class _MentionFinder:
    """The mentions of one file."""

    def __init__(self, script: Script, modules: Modules) -> None:
        self.script = script
        self.own_methods = {name for script in modules.scripts for name in script.own_methods}

    def mentions(self) -> Iterator[FunctionMention]:
        """Functions that write, as values: handed to partial(), kept in a table, given as a default."""
        for node in self.script.nodes(ast.Name, ast.Attribute):
            assert isinstance(node, (ast.Name, ast.Attribute))
            parent = self.script.scopes.parents[node]
            if not isinstance(node.ctx, ast.Load) or isinstance(parent, ast.Attribute):
                continue
            kind = self._kind_of_mention(node)
            if (
                kind is None
                or _is_only_named(node, parent)
                or self._runs_elsewhere(parent)
                or self._is_done(parent)
            ):
                continue
            yield FunctionMention(node, kind, self._completed_by(node, parent))

    def _completed_by(self, node: ast.expr, parent: ast.AST) -> ast.Call | None:
        if isinstance(parent, ast.Call) and self.script.scopes.name(parent.func) in PARTIALS:
            return parent if parent.args[:1] == [node] else None
        return None

    def _is_done(self, parent: ast.AST) -> bool:
        """Whether a helper of ours is given it: `on_rank_zero(np.save, ...)`, `partial(on_rank_zero, np.save)`."""
        given = (parent.func, *parent.args) if isinstance(parent, ast.Call) else ()
        return any(
            is_helper(self.script.text_of(argument))
            for argument in given
            if isinstance(argument, (ast.Name, ast.Attribute))
        )

    def _kind_of_mention(self, node: ast.Name | ast.Attribute) -> str | None:
        name = self.script.scopes.name(node)
        if name == "torch.save":
            return "save"
        if name is not None:
            return "saver" if name in FUNCTIONS or name in FOLDERS_AND_FILES else None
        parent = self.script.scopes.parents[node]
        given = isinstance(parent, ast.Call) and self.script.scopes.name(parent.func) in PARTIALS
        if not given or not isinstance(node, ast.Attribute) or node.attr in self.own_methods | NO_SINKS:
            return None
        return "saver" if SAVES.match(node.attr) or node.attr in TEXT_METHODS else None

    def _runs_elsewhere(self, parent: ast.AST) -> bool:
        """Whether it is given to a thread, a process or a pool, which rank 0 alone has."""
        while isinstance(parent, (ast.keyword, ast.Tuple, ast.List)):
            parent = self.script.scopes.parents[parent]
        if not isinstance(parent, ast.Call):
            return False
        name = self.script.scopes.name(parent.func) or ""
        method = parent.func.attr if isinstance(parent.func, ast.Attribute) else ""
        return name in STARTERS or method in (
            "submit",
            "apply_async",
            "imap",
            "imap_unordered",
            "starmap",
            "map",
        )


def is_helper(name: str) -> bool:
    return name.rstrip("_").endswith("on_rank_zero")


def _is_only_named(node: ast.expr, parent: ast.AST) -> bool:
    """The function of a call, a second name of which each use is seen, and what is only looked at."""
    if isinstance(parent, ast.Call) and parent.func is node:
        return True
    if isinstance(parent, ast.Assign) and parent.value is node:
        return all(isinstance(target, ast.Name) for target in parent.targets)
    return isinstance(parent, (ast.Compare, ast.Expr, ast.FormattedValue, ast.Subscript))
