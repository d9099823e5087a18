"""What an earlier conversion, or dp2ddp itself, has brought into a program: no rule looks at it."""

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.scopes import Binding
from dp2ddp.errors import ConversionError
from dp2ddp.source.helper_module import FILE, IMPORTED, NAME, PACKAGE, is_helper_module, pasted_lines

JOINS = ("init_distributed", "join_ranks")
JOIN_IMPORTS = {home + name for home in IMPORTED for name in JOINS}


def of_the_user(program: Program) -> tuple[Module, ...]:
    """The files of a program that a conversion looks at."""
    return tuple(module for module in program.modules if not _is_pasted(module))


def is_of_dp2ddp(dotted: str) -> bool:
    return dotted == "dp2ddp" or dotted.startswith("dp2ddp.")


def _is_pasted(module: Module) -> bool:
    return is_helper_module(module.source.text)


def is_brought(module: Module, bindings: Iterable[Binding]) -> bool:
    """Whether an earlier conversion has brought what a name is bound to: a helper, imported or pasted."""
    pasted = pasted_lines(module.source)
    return any(
        each.dotted.startswith(IMPORTED) or getattr(each.node, "lineno", 0) in pasted for each in bindings
    )


def has_joined(module: Module) -> bool:
    """Whether an earlier conversion of the script lets the ranks join; a function of that name may be its own."""
    called = (call.func for call in module.all(ast.Call))
    return any(isinstance(each, ast.Name) and _joins(module, each) for each in called)


def _joins(module: Module, called: ast.Name) -> bool:
    scope = module.scope_of[called].lookup(called.id)
    bindings = scope.bindings[called.id] if scope else ()
    is_helper = called.id in JOINS and (not bindings or is_brought(module, bindings))
    return is_helper or any(each.dotted in JOIN_IMPORTS for each in bindings)


def refuse_other_helpers(program: Program, helpers: frozenset[str]) -> None:
    """A ConversionError where a local module calls helpers that these are not: another version converted it."""
    for module in program.modules[1:]:
        unknown = sorted(set(_imported_helpers(module)) - helpers)
        if unknown and not _is_pasted(module):
            raise ConversionError(
                f"{program.entry.source.name}: {module.source.name} was converted with another script, by a version of "
                f"dp2ddp with other helpers ({', '.join(unknown)}); convert this one in the project as it was before "
                "(-o FOLDER)"
            )


def refuse_lone_script(program: Program) -> None:
    """A ConversionError for a script whose model was wrapped for ranks with another script: it was not converted."""
    for module in program.modules[1:]:
        wraps = [name for name in _imported_helpers(module) if name.startswith("WholeBatch")]
        if wraps and not _is_pasted(module) and not has_joined(program.entry):
            raise ConversionError(
                f"{program.entry.source.name}: {module.source.name} was converted with another script, and this one "
                "was not; convert it in the project as it was before (-o FOLDER)"
            )


def refuse_hidden_helpers(program: Program) -> None:
    """A ConversionError where a folder that comes first on sys.path has another file of the helpers' name."""
    inserts = any(call.name == "sys.path.insert" for _, call in program.calls)
    own = program.project.helper_path.resolve()
    hiding = [folder / FILE for folder in program.project.added if (folder / FILE).is_file()]
    if inserts and any(each != own for each in hiding):
        raise ConversionError(
            f"{program.entry.source.name}: it puts a folder on sys.path that has a {FILE} of its own ({hiding[0]}), "
            "which would be imported in the helpers' place; use --one-file or --import"
        )


def _imported_helpers(module: Module) -> Iterator[str]:
    for node in module.all(ast.ImportFrom):
        if node.module in (NAME, PACKAGE):
            yield from (alias.name for alias in node.names if alias.name != "*")
