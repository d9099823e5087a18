"""The files of a project, parsed, and what a name of one file means in another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from dp2ddp.codemod.facts.call_graph import CallGraph
from dp2ddp.codemod.facts.scopes import SCRIPT
from dp2ddp.codemod.facts.script import Script
from dp2ddp.errors import SourceError
from dp2ddp.source.helper_module import is_helper_module
from dp2ddp.source.projects import LocalModule, Project
from dp2ddp.source.settings_files import SettingsMention, find_mentions

LONGEST = 10  # re-exports of re-exports end somewhere


class Modules:
    """The entry script and the local modules that its imports reach."""

    def __init__(self, project: Project) -> None:
        self.by_name: dict[str, Script] = {}  # a file that is imported by two names stands under both
        self.entry_module = project.entry_module
        self.missing = project.missing  # imports that were not found
        self.unread = list(project.unread)  # files that were found, but are no Python
        self._pending: set[tuple[str, str]] = set()
        self._splits: dict[str, tuple[str | None, str]] = {}
        self.by_name.update(self._parsed(project.modules))
        self.entry = Script(project.entry, modules=self, package=_package_of(project))
        self.by_name.update((name, self.entry) for name in project.entry_names)

    def _parsed(self, modules: tuple[LocalModule, ...]) -> Iterator[tuple[str, Script]]:
        for module in modules:
            if is_helper_module(module.source.text):
                continue  # of an earlier conversion
            try:
                script = Script(module.source, module.name, self)
            except SourceError:
                self.unread.append(module.source.name)  # Python itself will say so when the script runs
                continue
            for name in (module.name, *module.other_names):
                yield name, script

    @property
    def scripts(self) -> tuple[Script, ...]:
        return tuple(dict.fromkeys((self.entry, *self.by_name.values())))

    @cached_property
    def home(self) -> dict[ast.AST, Script]:
        """The file that each node stands in."""
        return {node: script for script in self.scripts for node in script.scopes.scope_of}

    @cached_property
    def mentions(self) -> tuple[SettingsMention, ...]:
        """Where files of settings beside the entry script name DataParallel."""
        path = self.entry.source.path
        return tuple(find_mentions(path.parent)) if path else ()

    @cached_property
    def graph(self) -> CallGraph:
        """Who calls whom."""
        return CallGraph(self)

    def has_base(self, script: Script, node: ast.AST, bases: tuple[str, ...]) -> bool:
        """Whether a name means a class of the project that is derived from one of these."""
        definition = self.definition(script, node)
        if definition is None or not isinstance(definition[1], ast.ClassDef):
            return False
        return any(definition[0].scopes.name(base) in bases for base in definition[1].bases)

    def meaning(self, name: str) -> str:
        """A qualified name, followed through the modules that import what they hand out: `utils.os.makedirs`."""
        for _ in range(LONGEST):
            module, rest = self._split(name)
            if module is None or not rest:
                return name
            first, dot, more = rest.partition(".")
            exported = self.by_name[module].scopes.exported(first)
            if exported is None or exported.startswith(SCRIPT):
                return name
            name = f"{exported}{dot}{more}"
        return name

    def binds(self, module: str, name: str) -> bool:
        """Whether `from module import *` brings a name."""
        question = (module, name)
        if (
            module not in self.by_name or question in self._pending
        ):  # modules may import each other, or themselves
            return False
        self._pending.add(question)
        try:
            return self.by_name[module].scopes.exported(name) is not None
        finally:
            self._pending.remove(question)

    def definition(self, script: Script, node: ast.AST) -> tuple[Script, ast.AST] | None:
        """The function or class of the project that a name means, and the file that it stands in."""
        here = script.scopes.definition(node)
        if here is not None:
            return script, here
        module, rest = self._split(script.scopes.name(node) or "")
        definition = self.by_name[module].scopes.top.definitions.get(rest) if module else None
        return (self.by_name[module], definition) if module and definition is not None else None

    def definitions(self, script: Script, node: ast.AST) -> list[tuple[Script, ast.AST]]:
        """Every function or class of the project that a name may mean."""
        here = [(script, definition) for definition in script.scopes.definitions(node)]
        module, rest = self._split(script.scopes.name(node) or "")
        there = self.by_name[module].scopes.top.every.get(rest, []) if module else []
        return [*here, *((self.by_name[module], node) for node in there if module)]

    def is_local(self, name: str) -> bool:
        """Whether a qualified name is one of the project's own."""
        return self._split(name)[0] is not None

    def _split(self, name: str) -> tuple[str | None, str]:
        """The longest local module that a qualified name begins with, and the rest."""
        if name not in self._splits:
            self._splits[name] = self._split_anew(name)
        return self._splits[name]

    def _split_anew(self, name: str) -> tuple[str | None, str]:
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            module = ".".join(parts[:length])
            if module in self.by_name:
                return module, ".".join(parts[length:])
        return None, name


def _package_of(project: Project) -> tuple[str, ...]:
    """Where the entry script's relative imports start from."""
    return tuple(project.entry_module.split(".")[:-1])
