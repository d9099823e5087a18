"""Copy helpers of the templates into a script: their text byte for byte, with the helpers and imports they need.

The templates are read as text and never imported (they need torch; a conversion does not).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from symtable import SymbolTable, symtable

from dp2ddp.codemod.model.nodes import DEFINITIONS, all_from
from dp2ddp.codemod.model.positions import Positions, bounds
from dp2ddp.codemod.model.scopes import settings
from dp2ddp.errors import ConversionError
from dp2ddp.source.parsing import nodes_in

TEMPLATES = "dp2ddp.templates"
FROM_TEMPLATE = re.compile(r"^from \.(\w+) import ", re.MULTILINE)


@dataclass(frozen=True)
class ImportLine:
    """`import module as alias`, or `from module import name as alias`."""

    module: str
    name: str | None = None
    alias: str | None = None

    @property
    def bound(self) -> str:
        return self.alias or self.name or self.module.split(".")[0]

    @property
    def dotted(self) -> str:
        """What the bound name means."""
        return f"{self.module}.{self.name}" if self.name else self.module if self.alias else self.bound

    @property
    def text(self) -> str:
        alias = f" as {self.alias}" if self.alias and self.alias != self.name else ""
        return (
            f"from {self.module} import {self.name}{alias}" if self.name else f"import {self.module}{alias}"
        )


@dataclass(frozen=True)
class Lifted:
    """Text of helpers, and the imports that they need."""

    imports: tuple[ImportLine, ...]
    by_name: Mapping[str, str]  # the text of each definition

    @property
    def definitions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.by_name.values()))  # `a = b = 1` defines two names

    @property
    def global_names(self) -> set[str]:
        """The names that they have or read at module level, builtins too: asked where they are pasted."""
        top = symtable("\n".join(self.definitions), "helpers", "exec")
        inner = all_from(top.get_children(), SymbolTable.get_children)
        read = (each for table in inner for each in table.get_symbols() if each.is_global())
        return {each.get_name() for each in (*top.get_symbols(), *read)}


@dataclass(frozen=True)
class Definition:
    """A top-level definition of a template."""

    template: Template
    name: str
    node: ast.stmt

    @cached_property  # one of ours is asked by each conversion
    def names(self) -> list[str]:
        """What it says."""
        return list(dict.fromkeys(each.id for each in nodes_in(self.node) if type(each) is ast.Name))

    @cached_property
    def imports(self) -> tuple[ImportLine, ...]:
        """The imports behind its names; `import a.b` only where it says `a.b`."""
        text = self.template.positions.source(self.node)
        lines = (line for name in self.names for line in self.template.imports.get(name, ()))
        return tuple(line for line in lines if line.name or line.alias or line.module in text)


class Template:
    """One template module, as text and tree."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self.tree, self.positions = ast.parse(text), Positions(text)
        self.definitions = {
            each: Definition(self, each, node) for node in self.tree.body for each in _defined(node)
        }
        self.imports: dict[str, list[ImportLine]] = {}
        self.helpers: dict[str, ImportLine] = {}  # of other templates
        for line in (line for node in self.tree.body for line in import_lines(node)):
            if line.module.startswith("."):
                self.helpers[line.bound] = line
            else:
                self.imports.setdefault(line.bound, []).append(line)

    def segment(self, node: ast.stmt) -> str:
        """The lines of a definition, with the comment lines right above it."""
        starts, first = self.positions.line_starts, bounds(node)[0] - 1
        while first and self.text.startswith("#", starts[first - 1]):
            first -= 1
        return self.text[starts[first] : self.positions.next_line(bounds(node)[2])].rstrip()

    @cached_property
    def texts(self) -> dict[str, str]:
        """The text of each definition, by its name."""
        return {name: self.segment(each.node) for name, each in self.definitions.items()}


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, DEFINITIONS):
        return [node.name]
    given = settings(node) if isinstance(node, (ast.Assign, ast.AnnAssign)) else ()
    return [target.id for target, _ in given if isinstance(target, ast.Name)]


def import_lines(node: ast.AST) -> Iterator[ImportLine]:
    if isinstance(node, ast.Import):
        yield from (ImportLine(alias.name, None, alias.asname) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        yield from (ImportLine(module, alias.name, alias.asname) for alias in node.names)


@lru_cache(maxsize=2)
def read_templates(package: str = TEMPLATES) -> Mapping[str, str]:
    """The text of every template, by module name."""
    spec = find_spec(package)  # importlib.resources loads tempfile and random, which take 9 ms
    assert spec is not None
    assert spec.submodule_search_locations
    files = sorted(Path(spec.submodule_search_locations[0]).glob("*.py"))
    return {file.stem: file.read_text(encoding="utf-8") for file in files if file.name != "__init__.py"}


@lru_cache(maxsize=1)
def all_templates() -> Library:
    """The templates of this dp2ddp; what has been parsed of them once is kept."""
    return Library()


class Library:
    """The templates, parsed when they are asked for."""

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        self.texts = read_templates() if texts is None else texts
        self.parsed: dict[str, Template] = {}

    @cached_property
    def homes(self) -> dict[str, str]:
        """Every function and class that the templates define, and the template."""
        definition = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)
        return {name: home for home, text in self.texts.items() for name in definition.findall(text)}

    def template(self, name: str) -> Template:
        if name not in self.parsed:
            self.parsed[name] = Template(name, self.texts[name])
        return self.parsed[name]

    def module_of(self, helper: str) -> str:
        """The template that defines a helper."""
        if helper not in self.homes:
            raise ConversionError(f"the templates have no {helper}; please report this")
        return self.homes[helper]

    def lift(self, helpers: Iterable[str]) -> Lifted:
        """The helpers and all they need: imports first, then definitions, those used by others before their users."""
        requested = (self.template(self.module_of(helper)).definitions[helper] for helper in helpers)
        taken = [*all_from(requested, self._needed_by)]
        order = self._module_order({each.template.name for each in taken})
        taken.sort(key=lambda each: (order.index(each.template.name), each.node.lineno))
        return Lifted(
            imports=tuple(sorted({line for each in taken for line in each.imports}, key=str)),
            by_name={each.name: each.template.segment(each.node) for each in taken},
        )

    def _needed_by(self, each: Definition) -> Iterator[Definition]:
        for name in each.names:
            if name in each.template.definitions:
                yield each.template.definitions[name]
            elif line := each.template.helpers.get(name):
                yield self.template(line.module.lstrip(".")).definitions[line.bound]

    def _module_order(self, names: set[str]) -> list[str]:
        """Modules behind those that they import from; by name where that says nothing."""
        order: list[str] = []

        def place(name: str) -> None:
            if name in order:
                return
            for needed in sorted({*FROM_TEMPLATE.findall(self.texts[name])}):
                place(needed)
            order.append(name)

        for name in sorted(names):
            place(name)
        return [name for name in order if name in names]
