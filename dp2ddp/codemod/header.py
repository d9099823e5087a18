"""What a conversion adds at the top of a script: imports that are missing; where asked for, the helpers themselves."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.helpers import HelperPlace, as_isort, import_texts
from dp2ddp.codemod.lift import ImportLine, Library, Lifted, all_templates, import_lines
from dp2ddp.codemod.plan import Plan
from dp2ddp.errors import ConversionError
from dp2ddp.source.helper_module import HELPERS_END, HELPERS_START, IMPORTED, NAME, PACKAGE

OPENING = HELPERS_START + " ({modules}): yours now, they need torch alone"
CLOSING = HELPERS_END


@dataclass(frozen=True)
class Header:
    """What comes behind the last import of a file."""

    lines: tuple[str, ...]
    behind: ast.stmt | None  # the last import, or the docstring; None: before the first statement


def make_header(
    facts: Facts, plan: Plan, place: HelperPlace, library: Library | None = None
) -> Header | None:
    """Imports that are missing and, where asked for, the helpers themselves.

    libcst's AddImportsVisitor would put an import behind the first unbroken row of imports, and so above
    `os.environ["OMP_NUM_THREADS"] = "1"` or `sys.path.insert(...)` between imports: torch would be imported, by the
    helpers, before what it reads then is set.
    """
    helpers = {lift.helper for lift in plan.lifts} - _present(facts)
    imports = {ImportLine(line.module, line.name, line.alias) for line in plan.imports}
    library = library or all_templates()
    block: list[str] = []
    if place is HelperPlace.IN_SCRIPT and helpers:
        block = _block(facts, helpers, library.lift(helpers), imports)
    elif helpers:
        imports |= {_import_of(facts, library, place, helper) for helper in helpers}
    lines = [*import_texts(_missing(facts, imports)), *block]
    return Header(tuple(lines), _anchor(facts)) if lines else None


def _block(facts: Facts, helpers: Set[str], lifted: Lifted, above: set[ImportLine]) -> list[str]:
    """The helpers with the imports that they alone need, between two comment lines: one thing to move."""
    _refuse_clashes(facts, helpers, lifted)
    opening = "\n".join(
        (
            OPENING.format(modules=", ".join(lifted.modules)),
            "",
            *import_texts(_missing(facts, set(lifted.imports) - above)),
        )
    )
    return ["", "", *"\n\n\n".join((opening, *lifted.definitions, CLOSING)).split("\n")]


def _refuse_clashes(facts: Facts, helpers: Set[str], lifted: Lifted) -> None:
    """A ConversionError for a script that means something else by a name which the helpers have or need."""
    names, top = facts.names, facts.script.scopes.top
    bound = {*top.values, *top.definitions}  # also behind an import of that name
    taken = {name for name in helpers if names.helper(name) != name}
    for name in lifted.global_names & (names.of_module | bound):
        is_shared = top.imports.get(name) in _same_meaning(name) and name not in bound
        if not is_shared and (name not in helpers or name in taken):
            taken.add(name)
    if taken:
        raise ConversionError(
            f"{facts.script.source.name}: has its own {', '.join(sorted(taken))}, and so have the helpers; they cannot "
            "be pasted into it: let them lie in a file beside it, or use --import"
        )


def _present(facts: Facts) -> set[str]:
    """Helpers that an earlier conversion has put into the script."""
    top = facts.script.scopes.top
    here = set(top.definitions) | {
        name for name, origin in top.imports.items() if origin.startswith(IMPORTED)
    }
    return here if facts.is_converted else set()


def _import_of(facts: Facts, library: Library, place: HelperPlace, helper: str) -> ImportLine:
    library.module_of(helper)  # an error for a helper that there is not
    return ImportLine(PACKAGE if place is HelperPlace.PACKAGE else NAME, helper).renamed(
        facts.names.helper(helper)
    )


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
    "timedelta": ("datetime.timedelta",),
    "DistributedDataParallel": ("torch.nn.parallel.DistributedDataParallel",),
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


def _missing(facts: Facts, lines: Iterable[ImportLine]) -> list[ImportLine]:
    """Imports that the top of the script does not have yet: plain ones first, as isort would."""
    there = set(_imports_above(facts))
    absent = {line for line in lines if line not in there and not _is_covered(line, there)}
    return sorted(absent, key=as_isort)


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


def _anchor(facts: Facts) -> ast.stmt | None:
    """The last import; without one, the docstring."""
    body, last = facts.script.tree.body, facts.entry.last_import
    if last is None and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        return body[0]
    return last
