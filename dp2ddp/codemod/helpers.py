"""Where the helpers of a conversion live, in a module, the script itself or dp2ddp, and how a file gets them."""

import ast
import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path

from dp2ddp.codemod.edits import Header
from dp2ddp.codemod.lift import ImportLine, Library, Lifted, Template, import_lines, read_templates
from dp2ddp.codemod.looks.ours import is_brought
from dp2ddp.codemod.looks.start import last_import
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.plans.planned import Plan
from dp2ddp.errors import ConversionError
from dp2ddp.source.files import Rewrite, SourceFile
from dp2ddp.source.helper_module import HELPERS_END, HELPERS_START, NAME, OPENING, PACKAGE, is_helper_module
from dp2ddp.source.parsing import parse


class HelperPlace(Enum):
    """Where a converted script finds its helpers."""

    BESIDE = "beside"  # `from ddp_helpers import ...`: a module in the folder that is first on sys.path
    IN_SCRIPT = "in the script"  # pasted behind its imports
    PACKAGE = "package"  # `from dp2ddp.helpers import ...`


@dataclass(frozen=True)
class HelperModule(Rewrite):
    """The module beside the script, before and after a conversion."""

    added: tuple[str, ...] = ()  # definitions that were not there
    kept: tuple[str, ...] = ()  # definitions that its owner has changed, and that stay so
    dropped: tuple[str, ...] = ()  # definitions that were there, and are gone or read otherwise now
    is_renewed: bool = False  # written anew: what was there is not in it

    @property
    def is_new(self) -> bool:
        return not self.before.text

    @property
    def held(self) -> dict[Path, bytes | None]:
        """The file, and what it held when it was read: None where there was none."""
        return {self.before.path: None if self.is_new else self.before.data} if self.before.path else {}


def helper_module(
    place: SourceFile, helpers: Set[str], library: Library, *, is_there: bool, renew: bool = False
) -> HelperModule:
    """The module with these helpers, and all that it had before: other scripts may need it.

    What its owner has changed in it stays as it is. One that another version of dp2ddp wrote is written anew only if
    that is asked for (`renew`): scripts that were converted with that version need what it holds.
    """
    if not is_there:
        return HelperModule(place, module_text(helpers, library), tuple(sorted(helpers)))
    if not is_helper_module(place.text):
        raise ConversionError(
            f"{place.name}: the helpers of the conversion need this name; rename it, or use --one-file or --import"
        )
    parse(place)  # its owner may have broken it
    there = Template(place.name, place.text)
    known = {name for name in library.homes if name in there.definitions}
    if place.text == module_text(known, library):
        return HelperModule(place, module_text(known | helpers, library), tuple(sorted(helpers - known)))
    if renew and not _is_of_this_edition(place):
        return _renewed(place, there, known | helpers, library)
    _refuse_namesakes(place, there, helpers, library)
    changed = _with_missing(place, there, library.lift(helpers))
    if _is_of_this_edition(place) or not (changed.added or changed.kept):
        return changed
    raise ConversionError(
        f"{place.name}: another version of dp2ddp wrote it, and scripts beside it may need it as it is; use --force to "
        "write it anew (then convert those scripts again, too), or -o to write elsewhere"
    )


def _renewed(place: SourceFile, there: Template, helpers: Set[str], library: Library) -> HelperModule:
    """What its owner changed in it cannot be told from what another version wrote: all that goes is named."""
    after = module_text(helpers, library)
    new = Template(place.name, after).texts
    dropped = sorted(name for name, text in there.texts.items() if new.get(name) != text)
    added = sorted(helpers - there.definitions.keys())
    return HelperModule(place, after, tuple(added), dropped=tuple(dropped), is_renewed=True)


def _refuse_namesakes(place: SourceFile, there: Template, helpers: Set[str], library: Library) -> None:
    """A ConversionError where something of the owner's own has the name of a helper: it takes other arguments."""
    for name in sorted(helpers & there.definitions.keys()):
        own = library.template(library.module_of(name)).definitions[name].node
        if _signature(there.definitions[name].node) != _signature(own):
            raise ConversionError(
                f"{place.name}: its {name} takes other arguments than the helper of that name; rename yours"
            )


def _signature(node: ast.stmt) -> str:
    """The kind of a definition and, of a function, its arguments."""
    arguments = ast.unparse(node.args) if isinstance(node, ast.FunctionDef) else ""
    return f"{type(node).__name__} {arguments}"


def _is_of_this_edition(place: SourceFile) -> bool:
    return f"(edition {edition()})" in place.text.partition("\n")[0]


def _with_missing(place: SourceFile, there: Template, lifted: Lifted) -> HelperModule:
    """A module that is not as dp2ddp writes it: what it lacks is added at its end, nothing else changes."""
    missing = {name: text for name, text in lifted.by_name.items() if name not in there.texts}
    kept = tuple(sorted(name for name, text in lifted.by_name.items() if there.texts.get(name, text) != text))
    if not missing:
        return HelperModule(place, place.text, kept=kept)
    had = {line for lines in there.imports.values() for line in lines}
    imports = import_texts(sorted(set(lifted.imports) - had, key=as_isort))
    text = _behind_imports(place.text, there, imports).rstrip()
    after = "\n\n\n".join((text, *dict.fromkeys(missing.values()))) + "\n"
    return HelperModule(place, after, tuple(sorted(missing)), kept)


def _behind_imports(text: str, there: Template, imports: list[str]) -> str:
    if not imports:
        return text
    nodes = (node for node in there.tree.body if isinstance(node, (ast.Import, ast.ImportFrom)))
    last = max((node.end_lineno or node.lineno for node in nodes), default=1)
    lines = text.split("\n")
    return "\n".join([*lines[:last], *imports, *lines[last:]])


def module_text(helpers: Iterable[str], library: Library) -> str:
    """A module that holds helpers and all that they need."""
    lifted = library.lift(helpers)
    opening = f'{OPENING} (edition {edition()}): yours now, it needs torch alone."""'
    return "\n\n\n".join((f"{opening}\n\n{_import_groups(lifted.imports)}", *lifted.definitions)) + "\n"


def _import_groups(lines: Iterable[ImportLine]) -> str:
    """As isort groups them: Python's own, then torch's."""
    groups: dict[bool, list[ImportLine]] = {True: [], False: []}
    for line in sorted(lines, key=as_isort):
        groups[line.module.split(".")[0] in sys.stdlib_module_names].append(line)
    return "\n\n".join("\n".join(import_texts(group)) for group in groups.values() if group)


@lru_cache(maxsize=1)
def edition() -> str:
    """Which text the helpers have: a digest of all templates."""
    texts: Mapping[str, str] = read_templates()
    joined = "\0".join(f"{name}\0{text}" for name, text in sorted(texts.items()))
    return hashlib.sha256(joined.encode()).hexdigest()[:8]


def import_texts(lines: list[ImportLine]) -> list[str]:
    """One line a module, as isort would write it."""
    texts = [line.text for line in lines if not line.name]
    groups: dict[str, list[str]] = {}
    for line in lines:
        if line.name:
            groups.setdefault(line.module, []).append(line.text.partition(" import ")[2])
    return texts + [f"from {module} import {', '.join(sorted(names))}" for module, names in groups.items()]


def as_isort(line: ImportLine) -> tuple[bool, str, str, str]:
    return bool(line.name), line.module, line.name or "", line.alias or ""


# --- at the top of a file: the import of the helpers or, where asked for, their text


def make_header(each: Plan, place: HelperPlace, library: Library) -> Header | None:
    """`from ddp_helpers import ...`, for what is not there yet; behind the imports that a file begins with.

    In any case above what uses it.

    libcst's AddImportsVisitor would put an import behind the first unbroken row of imports, and so above
    `os.environ["OMP_NUM_THREADS"] = "1"` or `sys.path.insert(...)` between imports: torch would be imported, by the
    helpers, before what it reads then is set.
    """
    module = each.module
    missing = sorted(name for name in each.helpers if not _is_here(module, name))
    if not missing:
        return None
    if place is HelperPlace.IN_SCRIPT:
        lines = _pasted(each, library.lift(missing))
    else:
        imports = [ImportLine(_home(place, library, name), name, each.renamed.get(name)) for name in missing]
        lines = import_texts(imports)
    using = {edit.node for edit in each.text_edits if edit.helpers} | {*_taking_paths(module)}
    return Header(tuple(lines), last_import(module, {*map(module.top_statement, using)}))


def _taking_paths(module: Module) -> Iterator[ast.AST]:
    """Where the folder in which the helpers lie may go from `sys.path`: they are imported before."""
    for node in module.mentions.get("sys.path", ()):
        parent = module.parents[node]
        is_set = isinstance(parent, ast.Subscript) and not isinstance(parent.ctx, ast.Load)
        if is_set or getattr(parent, "attr", "") in ("pop", "remove", "clear"):
            yield node


def _home(place: HelperPlace, library: Library, name: str) -> str:
    """The module that a helper is imported from."""
    library.module_of(name)  # an error for a helper that there is not
    return NAME if place is HelperPlace.BESIDE else PACKAGE


def _is_here(module: Module, name: str) -> bool:
    """Whether an earlier conversion has brought a helper."""
    return is_brought(module, module.top.bindings.get(name, ()))


def _pasted(each: Plan, lifted: Lifted) -> list[str]:
    """The helpers with the imports that they alone need, between two comment lines: one thing to move."""
    _refuse_clashes(each, lifted)
    there = {line for statement in each.module.tree.body for line in import_lines(statement)}
    imports = import_texts([line for line in lifted.imports if line not in there])
    opening = "\n".join((f"{HELPERS_START}: yours now, they need torch alone", "", *imports))
    missing = (text for name, text in lifted.by_name.items() if not _is_here(each.module, name))
    return ["", "", *"\n\n\n".join((opening, *dict.fromkeys(missing), HELPERS_END)).split("\n")]


def _refuse_clashes(each: Plan, lifted: Lifted) -> None:
    """A ConversionError for a script that means something else by a name which the helpers have or need."""
    module, taken = each.module, set(each.renamed)
    meant = {line.bound: line.dotted for line in lifted.imports}
    for name in lifted.global_names:
        bound = {binding.dotted for binding in module.top.bindings.get(name, ())}
        if not _is_here(module, name) and bound - {meant.get(name)}:
            taken.add(name)
    if taken:
        raise ConversionError(
            f"{module.source.name}: has its own {', '.join(sorted(taken))}, and so have the helpers; they cannot be "
            "pasted into it: let them lie in a file beside it, or use --import"
        )
