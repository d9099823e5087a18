"""DataParallel, fetched by a name that stands elsewhere: `getattr(nn, config["parallel"])`, `instantiate(config)`.

It may be the class where the program's own texts, or files of settings beside it, name DataParallel as a value. Where
nothing names it, nobody can tell: a name may be put together, or come from outside.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.looks.ours import of_the_user
from dp2ddp.codemod.model.modules import IMPORTING, Call, Module
from dp2ddp.codemod.model.nodes import table_of
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.reasons import Reason
from dp2ddp.source.projects import leading_texts
from dp2ddp.source.settings_files import find_mentions, names_data_parallel

LOOKS_UP = re.compile(
    r"\bgetattr\(|__dict__|\bvars\(|\beval\(|\bexec\(|attrgetter|import_module|hydra|locate|\bdir\(|getmembers"
)
HOMES = ("torch.nn", "torch.nn.parallel", "torch.nn.parallel.data_parallel")
PATHS = re.compile(r"(torch\.)?(nn\.)?(parallel\.)?(data_parallel\.)?DataParallel")
HYDRA = tuple(f"hydra.utils.{name}" for name in words("instantiate get_class get_object get_method call"))
FINDERS = ("pydoc.locate", "builtins.eval", *HYDRA)  # what finds a class of any module by its whole name
TABLES = ("builtins.vars", "builtins.dir", "inspect.getmembers")
RUNS_TEXT = ("builtins.eval", "builtins.exec")
IN_TEXT = re.compile(r"(?<!Distributed)(?<!FullySharded)\bDataParallel\b")
NAME = (
    "write nn.DataParallel where it is meant (`nn.DataParallel if name == ... else ...`), then convert again"
)
LOOKED_UP = Reason(
    "looked-up", "this may be DataParallel, looked up by its name: `{key}`, and {place} names it", NAME
)
RUN_AS_TEXT = Reason("run-as-text", "this runs a text that names DataParallel: {text}", NAME)
NAMED_ELSEWHERE = Reason(
    "named-elsewhere", "this is DataParallel, whose name stands elsewhere: `{key}`", NAME
)
NOT_SEEN = ": if it is DataParallel, it was not seen"
ANY_OF_ALL = Reason("any-of-all", "this looks through all of torch.nn" + NOT_SEEN)
UNREADABLE = Reason(
    "unreadable-name", "this is looked up by a name that nobody can read here, `{key}`" + NOT_SEEN
)


def may_look_up(text: str) -> bool:
    """Whether a file may fetch a class of torch.nn by a name that is not written there."""
    return LOOKS_UP.search(text) is not None


@dataclass(frozen=True)
class Lookup:
    """An expression that may be the class, and why; `is_named`: something names DataParallel."""

    node: ast.expr
    why: Reason
    is_named: bool = True


def lookups(module: Module) -> Iterator[Lookup]:
    """Expressions that may be the class."""
    for node in module.nodes(ast.Call, ast.Subscript, ast.Attribute):
        assert isinstance(node, (ast.Call, ast.Subscript, ast.Attribute))
        if _is_whole_table(module, node):
            yield Lookup(node, ANY_OF_ALL, is_named=False)
        if (key := _key(module, node)) is None:
            continue
        text = _written(module, key)
        if text is None and (place := _first_mention(module.program)):
            yield Lookup(node, LOOKED_UP.of(key=ast.unparse(key), place=place))
        elif text is None and not _is_of_others(module, key):
            yield Lookup(node, UNREADABLE.of(key=ast.unparse(key)), is_named=False)
        elif text is not None and IN_TEXT.search(text):
            if _finds_by_text(module, node):
                yield Lookup(node, RUN_AS_TEXT.of(text=repr(text.strip())))
            elif not isinstance(key, ast.Constant):  # a name that is written there is followed
                yield Lookup(node, NAMED_ELSEWHERE.of(key=ast.unparse(key)))


def imports_unread(module: Module, call: Call) -> bool:
    """Whether a module is imported whose name stands elsewhere: `import_module(args.model)`."""
    given = call.argument(0, "name") if call.name in IMPORTING else None
    return given is not None and not module_names(module, given)


def module_names(module: Module, key: ast.expr) -> list[str]:
    """The names that a module may be fetched by, or what they begin with; none where they stand elsewhere."""
    return [*module.texts(key)] or [text for text in leading_texts(module.value(key)) if "." in text]


def _written(module: Module, node: ast.expr) -> str | None:
    """The text that an expression is, also one that is put together of texts; None where a part stands elsewhere."""
    if texts := [*module.texts(node)]:
        return " ".join(texts)  # one after the other, in a loop over them
    match module.value(node):
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _joined(module, "", [left, right])
        case ast.JoinedStr(values=parts) | ast.FormattedValue(value=ast.expr() as parts):
            return _joined(module, "", parts if isinstance(parts, list) else [parts])
        case ast.Call(
            func=ast.Attribute(value=between, attr="join"),
            args=[ast.List(elts=parts) | ast.Tuple(elts=parts)],
        ):
            return _joined(module, _written(module, between), parts)
    return None


def _joined(module: Module, between: str | None, parts: Iterable[ast.expr]) -> str | None:
    texts = [_written(module, each) for each in parts]
    known = [each for each in texts if each is not None]
    return between.join(known) if between is not None and len(known) == len(texts) else None


def _is_of_others(module: Module, key: ast.expr) -> bool:
    """Whether a text begins with a name that is none of torch.nn's: `eval("models." + name)`."""
    text = next(leading_texts(module.value(key)), "")
    return "." in text and not text.startswith(".") and re.search(r"\bnn\b|\btorch\b", text) is None


def _key(module: Module, node: ast.expr) -> ast.expr | None:
    """What a class is asked for with: `name` of `getattr(nn, name)`, `vars(nn)[name]`, `locate(name)`."""
    match node:
        case ast.Call(func=ast.Call(func=made, args=[key]), args=[home]) if (
            module.name(made) == "operator.attrgetter"
        ):
            return key if _is_home(module, home) or module.name(home) == "torch" else None
        case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[key, *_]):
            return key if _is_table(module, table) else None
        case ast.Call(func=func, args=[home, key, *_]) if module.name(func) == "builtins.getattr":
            return key if _is_home(module, home) else None
        case ast.Call(func=func, args=[key, *_]) if module.name(func) in (*FINDERS, *RUNS_TEXT):
            return key
        case ast.Subscript(value=table, slice=key):
            return key if _is_table(module, table) else None
    return None


def _is_whole_table(module: Module, node: ast.expr) -> bool:
    """`vars(nn).items()`, `dir(nn)`: not `vars(nn)["ReLU"]`, of which only that is taken."""
    match node:
        case ast.Call(func=func, args=[home, *_]) if module.name(func) in TABLES:
            pass
        case ast.Attribute(value=home, attr="__dict__"):
            pass
        case _:
            return False
    parent = module.parents[node]
    is_one_taken = isinstance(parent, ast.Subscript) or getattr(parent, "attr", "") == "get"
    return module.name(home) in HOMES and not is_one_taken


def _is_table(module: Module, node: ast.expr) -> bool:
    """`vars(nn)`, `nn.__dict__`."""
    owner = table_of(node)
    return owner is not None and _is_home(module, owner)


def _is_home(module: Module, node: ast.expr) -> bool:
    """torch.nn, by its name or as `import_module("torch.nn")`; a module whose name is computed may be it, too."""
    if (name := module.name(node)) is not None:
        return name in HOMES
    value = module.value(node)
    if (key := module.module_key(value)) is not None:
        return ast.unparse(key) != "__name__" and _written(module, key) in (None, *HOMES)
    return isinstance(value, ast.Attribute) and value.attr == "nn"


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
