"""What a conversion adds at the top of a script: imports that are missing, and the helpers, lifted or imported."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator

from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.positions import Span, bounds
from dp2ddp.codemod.facts.script import HELPERS_END, HELPERS_START, SUPPORT
from dp2ddp.codemod.lift import PACKAGE, ImportLine, Library, Lifted, Rename, import_lines
from dp2ddp.codemod.plan import Plan
from dp2ddp.codemod.splices import Splice
from dp2ddp.errors import ConversionError

OPENING = HELPERS_START + " ({modules}): yours now, they need torch alone"
CLOSING = HELPERS_END


def add_header(
    facts: Facts, plan: Plan, helpers_from: str | None, library: Library | None = None
) -> list[Splice]:
    """The lines behind the last import, as one insertion; helpers are imported from there, or copied (None)."""
    wanted = {lift.helper for lift in plan.lifts} - _present(facts)
    imports = {ImportLine(one.module, None, one.alias) for one in plan.imports}
    library = library or Library()
    block: list[str] = []
    if helpers_from:
        imports |= {_import_of(facts, library, helpers_from, helper) for helper in wanted}
    elif wanted:
        block = _block(facts, library.lift(wanted, _renaming(facts, wanted)), imports)
    lines = [*_import_texts(_missing(facts, imports)), *block]
    return [_behind_imports(facts, lines)] if lines else []


def _import_texts(lines: list[ImportLine]) -> list[str]:
    """One line a module, as isort would write it."""
    texts = [line.text for line in lines if not line.name]
    groups: dict[str, list[str]] = {}
    for line in lines:
        if line.name:
            groups.setdefault(line.module, []).append(line.text.partition(" import ")[2])
    return texts + [f"from {module} import {', '.join(sorted(names))}" for module, names in groups.items()]


def _block(facts: Facts, lifted: Lifted, above: set[ImportLine]) -> list[str]:
    """The helpers with the imports that they alone need, between two comment lines: one thing to fold or move."""
    imports = set(lifted.imports)
    if any("builtins." in definition for definition in lifted.definitions):
        imports.add(ImportLine("builtins"))
    opening = "\n".join(
        (
            OPENING.format(modules=", ".join(lifted.modules)),
            "",
            *_import_texts(_missing(facts, imports - above)),
        )
    )
    return ["", "", *"\n\n\n".join((opening, *lifted.definitions, CLOSING)).split("\n")]


def support_module(helpers: Iterable[str], library: Library | None = None) -> str:
    """The text of a module that holds the helpers for all files of a project."""
    lifted = (library or Library()).lift(helpers)
    opening = "\n".join((OPENING.format(modules=", ".join(lifted.modules)), ""))
    imports = "\n".join(_import_texts(sorted(lifted.imports, key=_as_isort)))
    return "\n\n\n".join((opening + "\n" + imports, *lifted.definitions, CLOSING)) + "\n"


def _present(facts: Facts) -> set[str]:
    """Helpers that an earlier conversion has put into the script."""
    top = facts.script.scopes.top
    here = set(top.definitions) | {
        name for name, origin in top.imports.items() if origin.startswith((PACKAGE, SUPPORT))
    }
    return here if facts.is_converted else set()


def _import_of(facts: Facts, library: Library, source: str, helper: str) -> ImportLine:
    module = library.module_of(helper)  # an error for a helper that there is not
    line = ImportLine(f"{PACKAGE}.{module}" if source == PACKAGE else source, helper)
    return line.renamed(facts.names.helper(helper))


def _renaming(facts: Facts, wanted: set[str]) -> Rename:
    """New names for what the script calls something else already."""
    names, top = facts.names, facts.script.scopes.top
    bound = {*top.values, *top.definitions}  # also behind an import of that name

    def rename(name: str) -> str:
        if name in wanted:
            return names.helper(name)
        if name == "dist":
            return names.distributed
        is_shared = top.imports.get(name) in _same_meaning(name) and name not in bound
        if name not in names.of_module or is_shared:
            return name
        # A script that says `sum = 0` at module level hides the builtin from the helpers, too.
        return f"builtins.{name}" if hasattr(builtins, name) else f"{name}_"

    return rename


def _same_meaning(name: str) -> tuple[str, ...]:
    """What an import may bind to a name without being in the way of a template's import of that name."""
    return (name, *SHARED.get(name, ()))


# Names that templates and scripts both import, and the one thing that they mean.
SHARED = {
    "nn": ("torch.nn",),
    "F": ("torch.nn.functional",),
    "np": ("numpy",),
    "Tensor": ("torch.Tensor",),
    "Path": ("pathlib.Path",),
    "Any": ("typing.Any",),
    "DataLoader": ("torch.utils.data.DataLoader",),
    "IterableDataset": ("torch.utils.data.IterableDataset",),
    "TensorDataset": ("torch.utils.data.TensorDataset",),
    "Callable": ("collections.abc.Callable", "typing.Callable"),
    "Iterator": ("collections.abc.Iterator", "typing.Iterator"),
    "Iterable": ("collections.abc.Iterable", "typing.Iterable"),
    "Sequence": ("collections.abc.Sequence", "typing.Sequence"),
    "Mapping": ("collections.abc.Mapping", "typing.Mapping"),
    "partial": ("functools.partial",),
    "contextmanager": ("contextlib.contextmanager",),
    "dataclass": ("dataclasses.dataclass",),
}


def _missing(facts: Facts, wanted: Iterable[ImportLine]) -> list[ImportLine]:
    """Imports that the top of the script does not have yet: plain ones first, as isort would."""
    there = set(_imports_above(facts))
    absent = {line for line in wanted if line not in there and not _is_covered(line, there)}
    return sorted(absent, key=_as_isort)


def _as_isort(line: ImportLine) -> tuple[bool, str, str, str]:
    return bool(line.name), line.module, line.name or "", line.alias or ""


def _is_covered(line: ImportLine, there: set[ImportLine]) -> bool:
    """`import torch.nn as nn` is there as `from torch import nn`."""
    if line.alias and not line.name:
        package, _, name = line.module.rpartition(".")
        return any(
            ImportLine(package, name, alias) in there
            for alias in (None, line.alias)
            if line.alias == (alias or name)
        )
    spellings = (line.alias,) if line.bound != line.name else (None, line.name)
    return any(ImportLine(line.module, line.name, alias) in there for alias in spellings)


def _imports_above(facts: Facts) -> Iterator[ImportLine]:
    """The imports that have run when the added lines run."""
    last = facts.entry.last_import
    for statement in facts.script.tree.body:
        yield from import_lines(statement)
        if statement is last:
            return


def _behind_imports(facts: Facts, lines: list[str]) -> Splice:
    positions, newline = facts.script.positions, facts.script.source.newline
    at = _anchor(facts)
    text = "".join(one + newline for one in lines)
    if positions.text[at : at + 1].strip():  # no empty line follows
        text += newline
    if at == len(positions.text) and not positions.text.endswith(("\n", "\r")):
        text = newline + text
    return Splice(Span(at, at), (text,))


def _anchor(facts: Facts) -> int:
    """Behind the last import; without one, behind the docstring, or before the first statement."""
    positions, body = facts.script.positions, facts.script.tree.body
    last = facts.entry.last_import
    if last is None and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        last = body[0]
    if last is None:
        return positions.above_comments(bounds(body[0])[0])
    _refuse_shared_line(facts, last)
    return positions.next_line(last.end_lineno or last.lineno)


def _refuse_shared_line(facts: Facts, last: ast.stmt) -> None:
    for statement in facts.script.tree.body:
        if (
            statement.lineno == last.end_lineno
            and facts.script.positions.span(statement).start > facts.script.positions.span(last).start
        ):
            source = facts.script.source
            where = source.place(statement.lineno).in_file(source.name, statement.col_offset + 1)
            raise ConversionError(
                f"{where}: a statement shares the line of the last import; give it a line of its own"
            )
