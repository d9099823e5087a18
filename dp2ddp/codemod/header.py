"""What a conversion adds at the top of a file: the import of the helpers or, where asked for, their text."""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Header
from dp2ddp.codemod.helpers import HelperPlace, import_texts
from dp2ddp.codemod.lift import ImportLine, Library, Lifted, import_lines
from dp2ddp.codemod.looks.ours import is_brought
from dp2ddp.codemod.looks.start import last_import
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.plans.planned import Plan
from dp2ddp.errors import ConversionError
from dp2ddp.source.helper_module import HELPERS_END, HELPERS_START, NAME, PACKAGE


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
