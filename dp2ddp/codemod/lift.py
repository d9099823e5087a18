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

from dp2ddp.codemod.model.positions import Positions
from dp2ddp.codemod.model.scopes import Reader
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
    def text(self) -> str:
        alias = f" as {self.alias}" if self.alias and self.alias != self.name else ""
        return (
            f"from {self.module} import {self.name}{alias}" if self.name else f"import {self.module}{alias}"
        )


@dataclass(frozen=True)
class Lifted:
    """Text of helpers, the imports they need, and where they come from."""

    imports: tuple[ImportLine, ...]
    by_name: Mapping[str, str]  # the text of each definition
    modules: tuple[str, ...]
    taken: tuple[tuple[Template, Definition], ...]

    @cached_property
    def global_names(self) -> frozenset[str]:
        """The names that the definitions have or read at module level, builtins too: asked where they are pasted."""
        return frozenset().union(
            *(template.global_names(definition.node) for template, definition in self.taken)
        )

    @property
    def definitions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.by_name.values()))  # `a = b = 1` defines two names


@dataclass(frozen=True)
class Definition:
    """A top-level definition of a template."""

    module: str
    name: str
    node: ast.stmt


class Template:
    """One template module, as text and tree."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.tree = ast.parse(text)
        self.positions = Positions(text)
        self.definitions = {definition.name: definition for definition in self._definitions()}
        self.imports: dict[str, list[ImportLine]] = {}
        for line in self._imports():
            if not line.module.startswith("."):
                self.imports.setdefault(line.bound, []).append(line)
        self.helpers = {line.bound: line for line in self._imports() if line.module.startswith(".")}

    @cached_property
    def scopes(self) -> Reader:
        """Needed only where helpers are pasted into a script, among names of its own."""
        return Reader(self.tree, ())

    def _definitions(self) -> Iterator[Definition]:
        for node in self.tree.body:
            for name in _defined(node):
                yield Definition(self.name, name, node)

    def _imports(self) -> Iterator[ImportLine]:
        for node in self.tree.body:
            yield from import_lines(node)

    def needs(self, node: ast.stmt) -> list[str]:
        """Names that a definition uses."""
        return list(dict.fromkeys(each.id for each in nodes_in(node) if type(each) is ast.Name))

    def imports_for(self, name: str, node: ast.stmt) -> Iterator[ImportLine]:
        """The imports behind a name; `import a.b` only where the definition says `a.b`."""
        text = self.positions.source(node)
        return (line for line in self.imports[name] if line.name or line.alias or line.module in text)

    def segment(self, node: ast.stmt) -> str:
        """The text of a definition, with the comment lines right above it."""
        start = self.positions.line_starts[_first_line(node) - 1]
        while (above := self._line_before(start)) is not None and above[1].startswith("#"):
            start = above[0]
        return self.text[start : self.positions.span(node).end]

    def global_names(self, node: ast.stmt) -> set[str]:
        """Names that a definition reads from the module around it, or from builtins, and those that it defines."""
        names = (inner for inner in ast.walk(node) if isinstance(inner, ast.Name))
        return {name.id for name in names if self._is_global(name)} | set(_defined(node))

    def _line_before(self, start: int) -> tuple[int, str] | None:
        if start == 0:
            return None
        index = self.positions.line_starts.index(start) - 1
        return self.positions.line_starts[index], self.text[self.positions.line_starts[index] : start]

    def _is_global(self, node: ast.Name) -> bool:
        scope = self.scopes.scope_of[node].lookup(node.id)
        return scope is None or scope is self.scopes.top


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return int(decorators[0].lineno if decorators else node.lineno)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    return [target.id for target in targets if isinstance(target, ast.Name)]


def import_lines(node: ast.stmt) -> Iterator[ImportLine]:
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

    @property
    def names(self) -> list[str]:
        """Every function and class that the templates define."""
        definition = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)
        return [name for text in self.texts.values() for name in definition.findall(text)]

    def template(self, name: str) -> Template:
        if name not in self.parsed:
            self.parsed[name] = Template(name, self.texts[name])
        return self.parsed[name]

    def module_of(self, helper: str) -> str:
        """The template that defines a helper."""
        definition = re.compile(rf"^(?:def|class) {re.escape(helper)}\b", re.MULTILINE)
        for name, text in self.texts.items():
            if definition.search(text):
                return name
        raise ConversionError(f"the templates have no {helper}; please report this")

    def lift(self, helpers: Iterable[str]) -> Lifted:
        """The helpers and all they need: imports first, then definitions, those used by others before their users."""
        definitions, imports = self._closure(helpers)
        order = self._module_order({definition.module for definition in definitions})
        needed = sorted(
            definitions, key=lambda definition: (order.index(definition.module), definition.node.lineno)
        )
        return Lifted(
            imports=tuple(sorted(imports, key=str)),
            by_name={
                definition.name: self.template(definition.module).segment(definition.node)
                for definition in needed
            },
            modules=tuple(order),
            taken=tuple((self.template(definition.module), definition) for definition in needed),
        )

    def _closure(self, helpers: Iterable[str]) -> tuple[set[Definition], set[ImportLine]]:
        queue = [self.template(self.module_of(helper)).definitions[helper] for helper in sorted(helpers)]
        definitions: set[Definition] = set()
        imports: set[ImportLine] = set()
        while queue:
            current = queue.pop()
            if current in definitions:
                continue
            definitions.add(current)
            template = self.template(current.module)
            for name in template.needs(current.node):
                if name in template.definitions:
                    queue.append(template.definitions[name])
                elif name in template.helpers:
                    queue.append(self._imported(template.helpers[name]))
                elif name in template.imports:
                    imports.update(template.imports_for(name, current.node))
        return definitions, imports

    def _imported(self, line: ImportLine) -> Definition:
        assert line.name is not None
        return self.template(line.module.lstrip(".")).definitions[line.name]

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
