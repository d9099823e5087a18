"""The kinds of nodes that the model tells apart: the one table of them."""

import ast
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeAlias, TypeVar

from dp2ddp.source.parsing import nodes_in

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

NAMED_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (*NAMED_FUNCTIONS, ast.Lambda)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (*FUNCTIONS, ast.ClassDef, *COMPREHENSIONS)  # of their own names
LOOPS = (ast.For, ast.AsyncFor, ast.While)
IMPORTS = (ast.Import, ast.ImportFrom)
# Methods that make an object.
BUILDING = ("__init__", "__new__", "__post_init__", "__init_subclass__", "__setstate__")


Each = TypeVar("Each", bound=Hashable)
Node = TypeVar("Node", bound=ast.AST)


def all_from(begin: Iterable[Each], following: Callable[[Each], Iterable[Each]]) -> Iterator[Each]:
    """Some things, and what follows from each, and so on, each once."""
    pending, seen = [*begin], set()
    while pending:
        each = pending.pop()
        if each not in seen:
            seen.add(each)
            yield each
            pending += following(each)


def inside(code: ast.AST | None, *kinds: type[Node]) -> Iterator[Node]:
    """The nodes of some kinds that a piece of code is made of, itself too."""
    return (each for each in (nodes_in(code) if code else ()) if isinstance(each, kinds))


def last_name(node: ast.AST | None) -> str:
    """`model` of `model` and of `self.model`; "" of anything else."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def constant(node: ast.AST | None) -> object:
    """The value of a constant; of anything else `...`, which stands for what the text does not tell."""
    return node.value if isinstance(node, ast.Constant) else ...


def looked_up(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """`models` and `name` of `getattr(models, name)`, `models.__dict__[name]` and `vars(models)[name]`."""
    match node:
        case (
            ast.Call(func=ast.Name(id="getattr"), args=[owner, key, *_])
            | ast.Subscript(value=ast.Attribute(value=owner, attr="__dict__"), slice=key)
            | ast.Subscript(value=ast.Call(func=ast.Name(id="vars"), args=[owner]), slice=key)
        ):
            return owner, key
    return None


def places(function: ast.AST) -> list[ast.arg]:
    """The parameters of a function that arguments come in by, one after the other."""
    given = getattr(function, "args", None)
    return [*given.posonlyargs, *given.args] if isinstance(given, ast.arguments) else []


def defaults(function: ast.AST) -> dict[str, ast.expr]:
    """What parameters are where a call does not give them."""
    if not isinstance(function, FUNCTIONS):
        return {}
    positional, given = places(function), function.args
    plain = positional[len(positional) - len(given.defaults) :]
    pairs = [*zip(plain, given.defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return {each.arg: value for each, value in pairs if value is not None}


def handed(call: ast.Call) -> list[tuple[ast.expr | ast.keyword, ast.expr]]:
    """The arguments and the keywords of a call, with what they give."""
    return [*((each, each) for each in call.args), *((each, each.value) for each in call.keywords)]


def values_of(call: ast.Call) -> list[ast.expr]:
    """All that a call is given."""
    return [value for _, value in handed(call)]


def root_name(node: ast.expr | None) -> str:
    """`found` of `found[i].rows`; "" where it is no name."""
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def stored_names(node: ast.AST) -> set[str]:
    """The names that code sets."""
    return {each.id for each in inside(node, ast.Name) if isinstance(each.ctx, ast.Store)}


def functions_of(node: ast.ClassDef) -> list[ast.FunctionDef]:
    """Methods of a class, also those under `if`."""
    choices = (each for each in node.body if isinstance(each, (ast.If, ast.Try)))
    inner = (each for choice in choices for each in ast.walk(choice))
    return [each for each in (*node.body, *inner) if isinstance(each, ast.FunctionDef)]


def is_static(function: ast.AST, *kinds: str) -> bool:
    """Whether a method has no `self`."""
    kinds = kinds or ("staticmethod", "classmethod")
    return any(getattr(each, "id", "") in kinds for each in getattr(function, "decorator_list", []))


def is_text(statement: ast.stmt) -> bool:
    """Whether a statement is a text that stands alone, as a docstring does."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def is_main_guard(node: ast.AST) -> bool:
    """`if __name__ == "__main__":`, which runs in the script that is started and in no import of it."""
    match node:
        case ast.If(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
            sides = {ast.unparse(left), ast.unparse(right)}
            return sides == {"__name__", "'__main__'"}
    return False
