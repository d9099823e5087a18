"""Where a file names a thing of a library, to call it, to derive from it, to ask for it, or to hand it on."""

import ast
from collections.abc import Container, Iterable, Iterator, Mapping

from dp2ddp.codemod.edits import Finding
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.looks.uses import loads
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import hand_on, rename
from dp2ddp.source.helper_module import NAME as HELPERS

ASKING = ("builtins.isinstance", "builtins.issubclass")
GENERIC = ("typing.", "builtins.")  # `Optional[Logger]`, `list[Logger]`
LOOKS = (*ASKING, *(f"builtins.{name}" for name in ("callable", "hasattr", "id", "super", "print", "repr")))


def mentions(module: Module, names: Iterable[str]) -> Iterator[tuple[ast.expr, str]]:
    """Expressions that mean one of these names themselves (not a variable that holds it), with the name.

    Not what an earlier conversion has put over a helper: `rebase(DataListLoader, Rank0Loader)`.
    """
    named = ((node, name) for name in names for node in module.mentions.get(name, ()))
    return ((node, name) for node, name in named if not _is_rebased(module, node))


def _is_rebased(module: Module, node: ast.expr) -> bool:
    parent = module.parents[node]
    called = parent.func if isinstance(parent, ast.Call) and parent.func is not node else None
    return (module.name(called) or "").endswith(".rebase")


def replaced(module: Module, helpers: Mapping[str, str], because: str | Reason) -> Iterator[Finding]:
    """Wherever one of these is named, its helper takes its place."""
    return (rename(node, helpers[name], because) for node, name in mentions(module, helpers))


def handed_on(module: Module, *kinds: Does, names: Container[str] = ()) -> Iterator[tuple[ast.expr, str]]:
    """Where functions of some kinds (names) are values, also by a second name. Who calls them is not seen."""
    items = module.mentions.items()
    named = ((name, nodes) for name, nodes in items if does(name) in kinds or name in names)
    return ((use, name) for name, nodes in named for node in nodes for use in _values(module, node, name))


def handed_to(module: Module, helpers: Mapping[Does, str], because: str) -> Iterator[Finding]:
    """Wherever a function of one of these kinds is a value, its helper calls it."""
    values = ((node, does(name)) for node, name in handed_on(module, *helpers))
    return (hand_on(module, node, helpers[kind], because) for node, kind in values if kind)


def _values(module: Module, node: ast.expr, name: str) -> Iterator[ast.expr]:
    """A thing where it is a value; where it is given a second name, the values that this is."""
    if is_handed_on(module, node, name):
        yield node
    match module.parents[node]:
        case ast.Assign(targets=targets) if all(_is_followed(module, each, name) for each in targets):
            uses = (use for each in targets for home, use in loads(module, each) if home is module)
            yield from (each for use in uses for each in _values(module, use, name))


def is_handed_on(module: Module, node: ast.expr, name: str) -> bool:
    """Whether a thing is a value: chosen, kept in a table or by a class, given to `partial`.

    Not where it is called, derived from, given a second name (which is followed), or only looked at.
    """
    match module.parents[node]:
        case ast.Attribute() | ast.Compare() | ast.Expr() | ast.ClassDef() | ast.FormattedValue():
            return False
        case ast.Assign(targets=targets) if all(_is_followed(module, each, name) for each in targets):
            return False
        case ast.Call() as call if call.func is node or _only_looks(module, call):
            return False
    return not (is_type_test(module, node) or _is_compared(module, node))


def _is_compared(module: Module, node: ast.AST) -> bool:
    """Whether a thing is only what others are compared with: `type(x) in (A, B)`, `{A: 1}[type(x)]`, `A | None`."""
    match module.parents[node]:
        case ast.MatchClass() | ast.ExceptHandler() | ast.BinOp(op=ast.BitOr()):
            return True
        case ast.Tuple() | ast.List() | ast.Set() as several:
            return isinstance(module.parents[several], ast.Compare)
        case ast.Dict(keys=keys):
            return node in keys
    return False


def _is_followed(module: Module, target: ast.expr, name: str) -> bool:
    """Whether a variable is a second name of a thing: what a class keeps is read as an attribute."""
    return module.name(target) == name and not isinstance(module.scope_of[target].node, ast.ClassDef)


def _only_looks(module: Module, call: ast.Call) -> bool:
    """`callable(np.save)`, or what is converted already: `run_on_rank0(np.save, path)`."""
    name = module.name(call.func) or ""
    return name in LOOKS or name.startswith((f"{HELPERS}.", "inspect."))


def is_type_test(module: Module, node: ast.AST) -> bool:
    """`isinstance(x, DataLoader)`, an annotation: true of what is derived from it as well."""
    for parent, child in module.steps(node):
        match parent:
            case ast.Call(func=func):
                return func is not child and module.name(func) in ASKING
            case ast.AnnAssign(annotation=annotation):
                return annotation is child
            case ast.arg():
                return True
            case ast.FunctionDef(returns=returns):
                return returns is child
            case ast.Subscript(value=value) if (module.name(value) or "").startswith(GENERIC):
                return True
            case ast.stmt():
                return False
    return False
