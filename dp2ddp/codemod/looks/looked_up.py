"""DataParallel, fetched by a name that stands elsewhere: `getattr(nn, config["parallel"])`, `instantiate(config)`.

It may be the class where the program's own texts, or files of settings beside it, name DataParallel as a value.
"""

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.looks.ours import of_the_user
from dp2ddp.codemod.model.modules import IMPORTING, Call, Module
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.reasons import Reason
from dp2ddp.source.projects import leading_texts
from dp2ddp.source.settings_files import find_mentions, names_data_parallel

HOMES = ("torch.nn", "torch.nn.parallel", "torch.nn.parallel.data_parallel")
PATHS = re.compile(r"(torch\.)?(nn\.)?(parallel\.)?(data_parallel\.)?DataParallel")
HYDRA = tuple(f"hydra.utils.{name}" for name in words("instantiate get_class get_object get_method call"))
FINDERS = ("pydoc.locate", "builtins.eval", *HYDRA)  # what finds a class of any module by its whole name
RUNS_TEXT = ("builtins.eval", "builtins.exec")
IN_TEXT = re.compile(r"(?<!Distributed)(?<!FullySharded)\bDataParallel\b")
NAME = (
    "write nn.DataParallel where it is meant (`nn.DataParallel if name == ... else ...`), then convert again"
)
LOOKED_UP = Reason(
    "looked-up", "this may be DataParallel, looked up by its name: `{key}`, and {place} names it", NAME
)
RUN_AS_TEXT = Reason("run-as-text", "this runs a text that names DataParallel: {text}", NAME)


def may_look_up(text: str) -> bool:
    """Whether a file may fetch a class of torch.nn by a name that is not written there."""
    return (
        re.search(
            r"\bgetattr\(|__dict__|\bvars\(|\beval\(|\bexec\(|attrgetter|import_module|hydra|locate", text
        )
        is not None
    )


def lookups(module: Module) -> Iterator[tuple[ast.expr, Reason]]:
    """Expressions that may be the class, and why."""
    for node in module.nodes(ast.Call, ast.Subscript):
        assert isinstance(node, (ast.Call, ast.Subscript))
        key = _key(module, node)
        if key is None:
            continue
        text = next(module.texts(key), None)
        if text is None and (place := _first_mention(module.program)):
            yield node, LOOKED_UP.of(key=ast.unparse(key), place=place)
        elif text is not None and IN_TEXT.search(text) and _finds_by_text(module, node):
            yield node, RUN_AS_TEXT.of(text=repr(text.strip()))


def imports_unread(module: Module, call: Call) -> bool:
    """Whether a module is imported whose name stands elsewhere: `import_module(args.model)`."""
    given = call.argument(0, "name") if call.name in IMPORTING else None
    if given is None or any(module.texts(given)):
        return False
    return not any("." in text for text in leading_texts(module.value(given)))


def _key(module: Module, node: ast.expr) -> ast.expr | None:
    """What a class is asked for with: `name` of `getattr(nn, name)`, `vars(nn)[name]`, `locate(name)`."""
    match node:
        case ast.Call(func=ast.Call(func=made, args=[key]), args=[home]) if (
            module.name(made) == "operator.attrgetter"
        ):
            return key if _is_home(module, home) else None
        case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[key, *_]):
            return key if _is_table(module, table) else None
        case ast.Call(func=func, args=[home, key, *_]) if module.name(func) == "builtins.getattr":
            return key if _is_home(module, home) else None
        case ast.Call(func=func, args=[key, *_]) if module.name(func) in (*FINDERS, *RUNS_TEXT):
            return key
        case ast.Subscript(value=table, slice=key):
            return key if _is_table(module, table) else None
    return None


def _is_table(module: Module, node: ast.expr) -> bool:
    """`vars(nn)`, `nn.__dict__`."""
    match node:
        case ast.Call(func=ast.Name(id="vars"), args=[home]) | ast.Attribute(value=home, attr="__dict__"):
            return _is_home(module, home)
    return False


def _is_home(module: Module, node: ast.expr) -> bool:
    """torch.nn, by its name or as `import_module("torch.nn")`; a module whose name is computed may be it, too."""
    if (name := module.name(node)) is not None:
        return name in HOMES
    made = module.value(node)
    return isinstance(made, ast.Call) and module.name(made.func) in (
        "importlib.import_module",
        "builtins.__import__",
    )


def _finds_by_text(module: Module, node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and module.name(node.func) in (*FINDERS, *RUNS_TEXT)


def _first_mention(program: Program) -> str:
    """Where the program names DataParallel as a value; an empty text: nowhere."""
    for module in of_the_user(program):
        for node in module.all(ast.Constant):
            if isinstance(node.value, str) and _is_value(module, node, node.value):
                return f"line {node.lineno}" if module is program.entry else f"{module.shown}:{node.lineno}"
    path = program.entry.source.path
    return next((str(mention) for mention in find_mentions(path.parent)), "") if path else ""


def _is_value(module: Module, node: ast.Constant, text: str) -> bool:
    """`"DataParallel"`, `"nn.DataParallel"`, or a text of settings that has it; no docstring."""
    if isinstance(module.parents.get(node), ast.Expr):
        return False
    return PATHS.fullmatch(text.strip()) is not None or names_data_parallel(text) is not None
