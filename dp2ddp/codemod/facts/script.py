"""One script, parsed: text, tree, names and calls, for all the other facts to ask."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dp2ddp.codemod.facts.positions import Positions
from dp2ddp.codemod.facts.scopes import OtherModules, Scopes
from dp2ddp.source.files import SourceFile
from dp2ddp.source.helper_module import HELPERS_END, HELPERS_START
from dp2ddp.source.parsing import LINE_END, parse

SETTINGS = {"args", "opt", "opts", "cfg", "config", "conf", "options", "hparams", "hps", "params", "FLAGS"}
Variable = tuple[ast.AST | None, str]


@dataclass(frozen=True, eq=False)
class CallSite:
    """A call, and what is known about its name."""

    node: ast.Call
    name: str | None  # "torch.save"; None where it cannot be known
    method: str | None  # "to_csv" of `frame.to_csv(...)`

    def argument(self, position: int | None, keyword: str | None = None) -> ast.expr | None:
        """The argument at a position or under a keyword."""
        for given in self.node.keywords:
            if keyword and given.arg == keyword:
                return given.value
        if position is not None and position < len(self.node.args):
            argument = self.node.args[position]
            return None if isinstance(argument, ast.Starred) else argument
        return None

    def keyword(self, name: str) -> ast.keyword | None:
        return next((given for given in self.node.keywords if given.arg == name), None)


class Script:
    """A parsed file: the entry script, or a local module under the name that imports give it."""

    def __init__(
        self,
        source: SourceFile,
        name: str = "",
        modules: OtherModules | None = None,
        package: tuple[str, ...] = (),
    ) -> None:
        self.source = source
        self.name = name
        self.tree = parse(source)
        _empty_helpers(self.tree, self.helper_lines)
        self.positions = Positions(source.text)
        self.scopes = Scopes(self.tree, package or self._package(), modules)
        self._texts: dict[ast.AST, str] = {}

    def _package(self) -> tuple[str, ...]:
        parts = tuple(self.name.split("."))
        return parts if Path(self.source.name).name == "__init__.py" else parts[:-1]

    @property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return self.scopes.parents

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that a node is, or stands in."""
        return self.scopes.statement(node)

    @property
    def shown(self) -> str:
        """The path of the file as the user would type it."""
        path = self.source.path
        return self.source.name if path is None else os.path.relpath(path)

    @cached_property
    def calls(self) -> tuple[CallSite, ...]:
        return tuple(self._call(node) for node in self.scopes.nodes if isinstance(node, ast.Call))

    def _call(self, node: ast.Call) -> CallSite:
        method = node.func.attr if isinstance(node.func, ast.Attribute) else None
        return CallSite(node, self.scopes.name(node.func), method)

    def calls_of(self, *names: str) -> Iterator[CallSite]:
        """All calls of functions with these qualified names."""
        return (call for call in self.calls if call.name in names)

    @cached_property
    def by_kind(self) -> dict[type, list[tuple[int, ast.AST]]]:
        """The nodes of each kind, with their places in the order of the text."""
        kinds: dict[type, list[tuple[int, ast.AST]]] = {}
        for place, node in enumerate(self.scopes.nodes):
            kinds.setdefault(type(node), []).append((place, node))
        return kinds

    @cached_property
    def without_gradient(self) -> dict[ast.AST, bool]:
        """Whether all who call a function do it under no_grad; filled by iterations.py as it is asked."""
        return {}

    @cached_property
    def by_word(self) -> dict[str, list[ast.Name | ast.Attribute]]:
        """Names and attributes by their last word: `step` and `trainer.step`."""
        mentions: dict[str, list[ast.Name | ast.Attribute]] = {}
        for node in self.nodes(ast.Name, ast.Attribute):
            assert isinstance(node, (ast.Name, ast.Attribute))
            mentions.setdefault(node.id if isinstance(node, ast.Name) else node.attr, []).append(node)
        return mentions

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """All nodes of these kinds, in the order of the text."""
        if len(kinds) == 1:
            return (node for _, node in self.by_kind.get(kinds[0], ()))
        entries = [entry for kind in kinds for entry in self.by_kind.get(kind, ())]
        return (node for _, node in sorted(entries, key=lambda entry: entry[0]))

    def text_of(self, node: ast.AST) -> str:
        """An expression in one spelling (`ast.unparse`, remembered: it is the slowest question there is)."""
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            return f"{self.text_of(node.value)}.{node.attr}"
        if node not in self._texts:
            self._texts[node] = ast.unparse(node)
        return self._texts[node]

    def variable(self, node: ast.AST) -> Variable:
        """What a name, an attribute or an item means: two mentions of one thing have equal variables.

        A plain name is told apart by the function (or the file) that binds it. Attributes of one name count as
        one, whoever's they are, but for those of what a command line is usually kept in (`args.model`).
        """
        if isinstance(node, ast.Name):
            scope = self.scopes.lookup(node.id, self.scopes.scope_of[node])
            return scope.node if scope else None, node.id
        if isinstance(node, ast.Attribute) and not (
            isinstance(node.value, ast.Name) and node.value.id in SETTINGS
        ):
            return None, f".{node.attr}"
        return None, self.text_of(node)

    def where(self, node: ast.AST) -> str:
        """A place in words."""
        return str(self.source.place(getattr(node, "lineno", 1)))

    @cached_property
    def methods_by_name(self) -> dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]]:
        """The methods of all classes of the script."""
        methods: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        for node in self.nodes(ast.FunctionDef, ast.AsyncFunctionDef):
            assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            if isinstance(self.scopes.parents[node], ast.ClassDef):
                methods.setdefault(node.name, []).append(node)
        return methods

    @cached_property
    def own_methods(self) -> set[str]:
        """The names of all methods of the script's own classes."""
        return set(self.methods_by_name)

    @cached_property
    def heirs(self) -> dict[ast.AST, list[ast.ClassDef]]:
        """The classes of the project, by the classes of the project that are their bases."""
        heirs: dict[ast.AST, list[ast.ClassDef]] = {}
        for node in self.nodes(ast.ClassDef):
            assert isinstance(node, ast.ClassDef)
            for base in map(self.scopes.definition, node.bases):
                if isinstance(base, ast.ClassDef):
                    heirs.setdefault(base, []).append(node)
        return heirs

    def text(self, node: ast.AST) -> str:
        return self.positions.source(node)

    def text_of_lines(self, statement: ast.stmt) -> str:
        """The lines of a statement, with the comments at their ends."""
        positions = self.positions
        last = statement.end_lineno or statement.lineno
        return positions.text[positions.line_starts[statement.lineno - 1] : positions.next_line(last)]

    @cached_property
    def helper_lines(self) -> range:
        """The lines of helpers from an earlier conversion; they are not the user's and stay as they are."""
        lines = LINE_END.split(self.source.text) if HELPERS_START in self.source.text else []
        first = next((number for number, line in enumerate(lines, 1) if line.startswith(HELPERS_START)), 0)
        last = next((number for number, line in enumerate(lines, 1) if line.startswith(HELPERS_END)), 0)
        return range(first, last + 1) if first else range(0)

    def never_runs(self, node: ast.AST) -> bool:
        """Whether a node stands behind `if False:`, or in the other branch of `if True:`."""
        for parent in self.scopes.ancestors(node):
            if isinstance(parent, ast.If) and isinstance(parent.test, ast.Constant):
                branch = parent.orelse if parent.test.value else parent.body
                if node in branch:
                    return True
            node = parent
        return False

    def in_format_string(self, node: ast.AST) -> bool:
        return any(isinstance(parent, ast.JoinedStr) for parent in self.scopes.ancestors(node))

    def stands_there(self, node: ast.AST) -> bool:
        """Whether the text at a node's position is that node."""
        try:
            parsed = ast.parse(f"({self.text(node)})", mode="eval").body
        except (SyntaxError, ValueError, IndexError):
            return False
        return ast.dump(parsed) == ast.dump(node)

    def bound_names(self) -> set[str]:
        """Every name that the script binds anywhere, and every name it reads without binding it."""
        names = {node.id for node in self.nodes(ast.Name)}  # type: ignore[attr-defined]  # a Name has one
        names |= {node.arg for node in self.nodes(ast.arg)}  # type: ignore[attr-defined]  # and so has an arg
        for scope in {id(scope): scope for scope in self.scopes.scope_of.values()}.values():
            names |= scope.definitions.keys() | scope.imports.keys() | scope.values.keys()
        return names


def _empty_helpers(tree: ast.Module, lines: range) -> None:
    """Leave nothing but names of helpers that a conversion has pasted: no fact is about what they do."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.lineno in lines:
            node.body = [ast.copy_location(ast.Pass(), node.body[-1])]
            node.decorator_list = []


def literal(node: ast.AST | None) -> object:
    """The value of a literal expression, or None."""
    if node is None:
        return None
    try:
        value: object = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value


def is_text(node: ast.AST | None) -> bool:
    """Whether an expression makes a string that is certainly one: a literal, an f-string, `"..." % x`, `.format`."""
    match node:
        case ast.Constant(value=str()) | ast.JoinedStr():
            return True
        case ast.BinOp(left=left, op=ast.Add() | ast.Mod()):
            return is_text(left)
        case ast.Call(func=ast.Attribute(value=value, attr="format" | "join" | "strip")):
            return is_text(value)
    return False
