"""Local looks at a call: what its arguments say, what becomes of what it returns."""

import ast
import re
from collections.abc import Callable, Iterator

from dp2ddp.codemod.knowledge.functions import FunctionRow, what_is
from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import constant, last_name
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.scopes import Binds, Scope, settings

DEPTH = 6  # names for names end somewhere


def is_harmless(module: Module, call: Call, row: FunctionRow) -> bool:
    """Whether the argument that decides says that nothing is to be done: `open(path, "rb")`."""
    if not row.harmless:
        return False
    given = call.argument(row.position, row.keyword)
    said = row.usual if given is None else _said(given)
    if not call.may_have_more and re.fullmatch(row.harmless, said):
        return True
    return bool(row.changed_by) and not _says(module.program, re.compile(row.changed_by))


def _says(program: Program, words: re.Pattern[str]) -> bool:
    """Whether code that can run, or a text in it, says this; comments do not count."""
    return any(
        words.search(module.text(node)) and program.reach.runs(module, node)
        for module in program.modules
        if words.search(module.source.text)
        for node in module.nodes(ast.Call, ast.Attribute, ast.Constant, ast.JoinedStr)
    )


def _said(node: ast.expr) -> str:
    """What an argument says, as far as the text tells: a constant, the constant parts of a text, `os.O_RDONLY`."""
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.JoinedStr(values=values):
            return "".join(str(each.value) if isinstance(each, ast.Constant) else "?" for each in values)
        case ast.Attribute() | ast.BinOp():
            return ast.unparse(node)
    return "?"


def may_be_true(node: ast.AST | None) -> bool:
    """Whether an argument may be true: it is given, and is no constant like False or None."""
    return node is not None and bool(constant(node))


def is_used(module: Module, call: Call) -> bool:
    """Whether anything is done with what a call returns."""
    return not isinstance(module.parents[call.node], ast.Expr)


def row_of(module: Module, call: Call) -> FunctionRow | None:
    """What is known of what is called; of a class of the program, of the first library's class that it is made from."""
    return what_is(call.name) or what_is(base_in_library(module, call.name))


def base_in_library(module: Module, name: str | None) -> str | None:
    """`logging.FileHandler` of `class Log(logging.FileHandler)`, by its dotted name."""
    return next(bases_in_libraries(module, name), None)


def bases_in_libraries(module: Module, name: str | None) -> Iterator[str]:
    """All classes of libraries that a class of the program is derived from."""
    program = module.program
    home, definition = program.definition(name) or (module, None)
    names = (other.name(base) for other, base in program.bases(home, definition))
    return (each for each in names if each and not program.is_local(each))


def is_foreign(module: Module, node: ast.AST | None, depth: int = DEPTH) -> bool:
    """Whether an object surely is a library's: `Image.fromarray(x)`, `ToPILImage()(x).convert("L")`."""
    made = (each for each in module.values(node) if isinstance(each, ast.Call))
    return bool(depth) and any(_is_made_by_library(module, each, depth - 1) for each in made)


def _is_made_by_library(module: Module, made: ast.Call, depth: int) -> bool:
    name = module.name(made.func)
    if name is not None:
        return not name.startswith("builtins.") and not module.program.is_local(name)
    return is_foreign(module, made.func.value if isinstance(made.func, ast.Attribute) else made.func, depth)


_GIVE_PATHS = words("joinpath with_suffix with_name with_stem absolute resolve expanduser relative_to")


def is_path(module: Module, node: ast.AST | None, depth: int = DEPTH) -> bool:
    """Whether an object surely is a pathlib.Path: `Path(x)`, `folder / "x"`, `path.parent`, or a name for one."""
    return bool(depth) and any(_is_made_a_path(module, each, depth - 1) for each in module.values(node))


def _is_made_a_path(module: Module, made: ast.AST, depth: int) -> bool:
    match made:
        case ast.Call(func=ast.Attribute(value=owner, attr=attr)) if attr in _GIVE_PATHS:
            return is_path(module, owner, depth)
        case ast.Call(func=func):
            return (module.name(func) or "").startswith("pathlib.")
        case ast.BinOp(op=ast.Div(), right=ast.JoinedStr() | ast.Constant(value=str())):
            return True
        case ast.BinOp(op=ast.Div(), left=left):
            return is_path(module, left, depth)
        case ast.Attribute(value=owner, attr="parent"):
            return is_path(module, owner, depth)
    return False


def loads(module: Module, target: ast.AST | None) -> Iterator[tuple[Module, ast.expr]]:
    """Where what a name or an attribute holds is read: the name in its scope and by imports, the attribute anywhere."""
    program = module.program
    scope = module.scope(target) if isinstance(target, ast.Name) else None
    if isinstance(target, ast.Attribute) or scope is not None and isinstance(scope.node, ast.ClassDef):
        for each in program.modules:
            words = each.by_word.get(last_name(target), ())
            nodes = (node for node in words if isinstance(node, ast.Attribute))
            yield from ((each, node) for node in nodes if _is_load(each, node))
            yield from ((each, node) for node in _by_getattr(each, last_name(target)))
    if isinstance(target, ast.Name):
        yield from ((module, node) for node in _names_in(module, target.id, scope) if _is_load(module, node))
        for each in program.modules if scope is module.top else ():
            if each is not module:
                yield from (
                    (each, node) for node in _imported(each, module, target.id) if _is_load(each, node)
                )


def _by_getattr(module: Module, name: str) -> Iterator[ast.Call]:
    """`getattr(run, "begin")`."""
    for node in module.by_word.get("getattr", ()):
        match module.parents[node]:
            case ast.Call(func=func, args=[_, ast.Constant(value=text), *_]) as call:
                if func is node and text == name:
                    yield call


def _names_in(module: Module, name: str, scope: Scope | None) -> Iterator[ast.Name]:
    for node in module.by_word.get(name, ()):
        if isinstance(node, ast.Name) and module.scope(node) is scope:
            yield node


def _imported(module: Module, home: Module, name: str) -> Iterator[ast.Name | ast.Attribute]:
    """Where a file says a name of another: `from util import begin as since`, `util.begin`."""
    for node in module.by_word.get(name, ()):
        if (
            isinstance(node, ast.Attribute)
            and module.program.by_name.get(module.name(node.value) or "") is home
        ):
            yield node
    for alias, bindings in module.top.bindings.items():
        froms = [each.dotted.rpartition(".") for each in bindings if each.how is Binds.IMPORT]
        if any(last == name and module.program.by_name.get(first) is home for first, _, last in froms):
            yield from _names_in(module, alias, module.top)


def _is_load(module: Module, node: ast.Name | ast.Attribute) -> bool:
    """Also of `rows += 1`, which changes the object in place."""
    return isinstance(node.ctx, ast.Load) or isinstance(module.parents[node], ast.AugAssign)


Uses = list[tuple[Module, ast.AST]]
Answer = bool | None | Uses
Fine = Callable[[Module, ast.AST, ast.AST], Answer]


def comes_only_to(module: Module, node: ast.AST, fine: Fine) -> bool:
    """Whether all uses of a value are fine, also of what it comes to.

    `fine` says so of what a value stands in, or gives what has the value, too; None: what it stands in has it.
    """
    pending: Uses = [(module, node)]
    seen: set[ast.AST] = set()
    while pending:
        home, each = pending.pop()
        if each in seen:
            continue
        seen.add(each)
        match fine(home, home.parents[each], each):
            case False:
                return False
            case None:
                pending.append((home, home.parents[each]))
            case list() as uses:
                pending += uses
    return True


def kept_uses(module: Module, node: ast.AST) -> Uses | None:
    """The uses of the names and attributes that a value is kept in; None where it is not kept so."""
    kept_in = [*set_to(module, node)]
    if not kept_in or not all(isinstance(target, (ast.Name, ast.Attribute)) for target in kept_in):
        return None
    return [use for target in kept_in for use in loads(module, target)]


def set_to(module: Module, node: ast.AST) -> Iterator[ast.expr]:
    """What a value is set to: `kept` of `kept = value`, of `kept, count = value, 0` and of `with value as kept`."""
    statement = module.parents[node]
    if isinstance(statement, ast.Tuple) and getattr(module.parents[statement], "targets", [None])[1:] == []:
        statement = module.parents[statement]
    if isinstance(statement, ast.NamedExpr):  # has the value, too
        return
    for target, given in settings(statement):
        if {Binds.VALUE: given.node, Binds.CONTEXT: given.whole}.get(given.how) is node:
            yield target


def is_only_written(module: Module, node: ast.AST) -> bool:
    """Whether nothing that comes of an object is looked at: then one that takes every call may stand in for it."""
    return comes_only_to(module, node, _is_written)


def _is_written(module: Module, parent: ast.AST, node: ast.AST) -> Answer:
    if (kept := kept_uses(module, node)) is not None:
        return kept
    match parent:
        case ast.Expr() | ast.Delete() | ast.withitem(optional_vars=None):
            return True
        case ast.Attribute(ctx=ast.Load()):
            return None
        case ast.Attribute(value=value) | ast.Subscript(ctx=ast.Store() | ast.Del(), value=value) if (
            value is node
        ):
            return not isinstance(module.parents[parent], ast.AugAssign)  # which looks at it first
        case ast.Call(func=func) if func is node:
            return None
    return False


def is_only_read(module: Module, node: ast.expr) -> bool:
    """Whether all that is done with a store is `store["x"][:]`, `store.keys()` and `store.close()`."""
    return isinstance(module.parents[node], (ast.Assign, ast.withitem)) and comes_only_to(
        module, node, _is_read
    )


def _is_read(module: Module, parent: ast.AST, node: ast.AST) -> Answer:
    if (kept := kept_uses(module, node)) is not None:
        return kept
    match module.parents[parent]:
        case ast.Call() if isinstance(parent, ast.Attribute):
            return parent.attr in ("close", "keys")
        case ast.Subscript(value=value, slice=ast.Slice() | ast.Tuple(), ctx=ast.Load()):
            return value is parent and isinstance(parent, ast.Subscript) and parent.value is node
    return False
