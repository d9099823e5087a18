"""DataParallel, fetched by a name that stands elsewhere: `getattr(nn, config["parallel"])`, `instantiate(config)`.

That is wherever torch.nn itself is a value, and no part is taken of it that the model follows. It may be the class
where the program's own texts, or files of settings beside it, name DataParallel as a value. Where nothing names it,
nobody can tell: a name may be put together, or come from outside.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.knowledge.derived import DATA_PARALLEL
from dp2ddp.codemod.knowledge.names import HYDRA
from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.looks.mentions import LOOKS, is_handed_on
from dp2ddp.codemod.looks.ours import of_the_user
from dp2ddp.codemod.model.modules import IMPORTING, Call, Module
from dp2ddp.codemod.model.nodes import inside
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.texts import pattern_of
from dp2ddp.codemod.reasons import Reason
from dp2ddp.source.neighbours import find_mentions, names_data_parallel
from dp2ddp.source.said_places import leading_text

LOOKS_UP = re.compile(
    r"getattr|__dict__|attrgetter|methodcaller|import_module|__import__|sys\.modules|getmembers|__subclasses__|hydra"
    r"|locate|resolve_name|runpy|\b(vars|globals|locals|dir|eval|exec)\b"
)
HOMES = {"torch.nn", "torch.nn.parallel", "torch.nn.parallel.data_parallel"}
PATHS = re.compile(r"(torch[.:])?(nn[.:])?(parallel\.)?(data_parallel\.)?DataParallel")
FINDERS = (
    "builtins.eval",
    "builtins.exec",
    "pydoc.locate",
    "pkgutil.resolve_name",
    *HYDRA,
)  # of what a text says
RUNNERS = ("runpy.run_path", "runpy.run_module")
TAKERS = ("builtins.getattr", "builtins.vars", "builtins.dir", "inspect.getmembers")  # of a part of a module
TABLES = words("__dict__ __getattribute__ get items keys values copy")  # and what is asked of one
OWN_TABLES = ("builtins.globals", "builtins.locals", "builtins.vars")
IN_TEXT = re.compile(r"(?<!Distributed)(?<!FullySharded)\bDataParallel\b")
PUT_TOGETHER = re.compile(r"(?=.*Data)(?=.*Parallel)(?!.*(Distributed|FullySharded))", re.DOTALL)
NAME = (
    "write nn.DataParallel where it is meant (`nn.DataParallel if name == ... else ...`), then convert again"
)
LOOKED_UP = Reason(
    "looked-up", "this may be DataParallel, looked up by its name: `{key}`, and {place} names it", NAME
)
NAMED_ELSEWHERE = Reason(
    "named-elsewhere", "this takes DataParallel by its name, which is a text: `{key}`", NAME
)
RUNS_OTHER = Reason(
    "runs-script", "this runs a script that was not looked at", "convert that script, or import it"
)
NOT_SEEN = ": if it is DataParallel, it was not seen"
ANY_OF_ALL = Reason("any-of-all", "whatever torch.nn has may be taken here" + NOT_SEEN)
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
    for node, key in (*_parts_taken(module), *_found_in_texts(module)):
        if key is None:
            yield _somewhere(module, node, ANY_OF_ALL)
            continue
        is_run = isinstance(node, ast.Call) and module.name(node.func) in FINDERS
        texts = [*module.texts(key)]
        text = " ".join(texts) or _constants(module.value(key))
        if IN_TEXT.search(text) or not texts and PUT_TOGETHER.match(text):
            yield Lookup(node, NAMED_ELSEWHERE.of(key=ast.unparse(key)))
        elif not texts and (is_run or _may_be_class(module, key)):
            lookup = _somewhere(module, node, UNREADABLE.of(key=ast.unparse(key)), key)
            if lookup.is_named or not _is_of_others(module, key):
                yield lookup
    yield from (Lookup(call.node, RUNS_OTHER) for call in module.calls if call.name in RUNNERS)


def _somewhere(module: Module, node: ast.expr, why: Reason, key: ast.expr | None = None) -> Lookup:
    """What is looked up by a name that stands elsewhere: DataParallel's, where the program names that as a value."""
    if place := _first_mention(module.program):
        return Lookup(node, LOOKED_UP.of(key=ast.unparse(key or node), place=place))
    return Lookup(node, why, is_named=False)


def imports_unread(module: Module, call: Call) -> bool:
    """Whether a module is imported whose name stands elsewhere: `import_module(args.model)`."""
    given = call.argument(0, "name") if call.name in IMPORTING else None
    return given is not None and not module_names(module, given)


def module_names(module: Module, key: ast.expr) -> list[str]:
    """The names that a module may be fetched by, or what they begin with; none where they stand elsewhere."""
    return [*module.texts(key)] or [text for text in [leading_text(module.value(key))] if "." in text]


def _constants(value: ast.expr | None) -> str:
    """The texts in an expression: `Data` and `Parallel`, in whatever way they are put together."""
    texts = (each.value for each in inside(value, ast.Constant) if isinstance(each.value, str))
    return "".join(map(str, texts))


def _may_be_class(module: Module, key: ast.expr) -> bool:
    """Whether a name that is put together may be DataParallel, or lead to it: `f"Conv{n}d"` cannot."""
    may_be = pattern_of(module.value(key)).fullmatch
    return any(map(may_be, ("DataParallel", "data_parallel", "parallel", "modules", "nn")))


def _is_of_others(module: Module, key: ast.expr) -> bool:
    """Whether a text begins with a name that is none of torch.nn's: `eval("models." + name)`."""
    text = leading_text(module.value(key))
    return "." in text and not text.startswith(".") and re.search(r"\bnn\b|\btorch\b", text) is None


def _found_in_texts(module: Module) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """`eval(text)`, with the text; where such a function is handed on, nobody knows with what."""
    for name in FINDERS:
        for node in module.mentions.get(name, ()):
            match module.parents[node]:
                case ast.Call(func=func, args=[text, *_]) as call if func is node:
                    yield call, text
                case parent if is_handed_on(module, node, name) and getattr(parent, "arg", "") != "type":
                    yield node, None


def _parts_taken(module: Module) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Where a part of torch.nn may be taken that is not followed, and what it is asked for with, if that is seen.

    `getattr(nn, name)`, `vars(nn)[name]`, `build(nn, name)`, `methodcaller(name, net)(nn)`; `dir(nn)`, `[nn, models]`.
    """
    for node in module.nodes(ast.Name, ast.Attribute, ast.Call, ast.Subscript):
        assert isinstance(node, ast.expr)
        if isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and _goes_on(module, node):
            whole, key = _key(module, node)
            if whole is node or module.name(whole, follow=False) is None:
                yield whole, key


def _key(module: Module, home: ast.expr) -> tuple[ast.expr, ast.expr | None]:
    """The expression in which something is asked for a part, and what with."""
    node, keys = home, list[ast.expr]()
    while not keys and isinstance(parent := module.parents[node], (ast.Attribute, ast.Call, ast.Subscript)):
        match parent:
            case ast.Subscript(value=value, slice=key) if value is node:
                keys = [key]
            case ast.Call(func=func, args=args) if func is node:
                keys = args
            case ast.Call(func=ast.Call(args=args)):
                keys = args
            case ast.Call(args=args):
                keys = [each for each in args if each is not node]
        node = parent
    return node, keys[0] if keys else None


def _goes_on(module: Module, node: ast.expr) -> bool:
    """Whether torch.nn, or what may be it, goes where a part may be taken of it: no part is named at once."""
    name = module.name(node)
    is_home = name in HOMES or _has_class(module, node, name)
    match module.parents[node]:
        case ast.Expr() | ast.Compare():
            return False
        case ast.Attribute(attr="__subclasses__"):
            return (name or "").startswith("torch.nn.")
        case ast.Attribute(attr=attr):
            return attr in TABLES and (is_home or _may_be_home(module, node, name))
        case ast.Call(func=func) if func is node or module.name(func) in LOOKS:
            return False
        case ast.Call(func=func):
            takes = module.name(func) in TAKERS
            may_be = (takes or isinstance(func, ast.Call)) and _may_be_home(module, node, name)
            return is_home or may_be or name == "torch" and not takes
        case ast.Subscript(ctx=context):
            return is_home and isinstance(context, ast.Load)
        case ast.Assign(targets=targets) if all(module.name(each) == name for each in targets):
            return False  # a second name, which is followed
    return is_home


def _has_class(module: Module, node: ast.expr, name: str | None) -> bool:
    """Whether a file of the program has DataParallel under that name: by its name, or as `globals()`."""
    match node:
        case ast.Call(func=func, args=[]) if module.name(func) in OWN_TABLES:
            name = module.dotted
        case ast.Subscript(slice=ast.Name(id="__name__")) if module.module_key(node) is not None:
            name = module.dotted
    program = module.program
    return name in program.by_name and program.canonical(f"{name}.DataParallel") == DATA_PARALLEL


def _may_be_home(module: Module, node: ast.expr, name: str | None) -> bool:
    """`import_module(name)`, `library.nn`: a module whose name is not known."""
    value = module.value(node)
    if name is None and (key := module.module_key(value)) is not None:
        is_own = ast.unparse(key) == "__name__" or _is_of_others(module, key)
        texts = [*module.texts(key)]
        return not is_own and (not texts or not HOMES.isdisjoint(texts))
    return name is None and isinstance(value, ast.Attribute) and value.attr == "nn"


def _first_mention(program: Program) -> str:
    """Where the program names DataParallel as a value; an empty text: nowhere."""
    for module in of_the_user(program):
        for node in module.all(ast.Constant):
            if isinstance(node.value, str) and _is_value(module, node, node.value):
                return f"line {node.lineno}" if module is program.entry else f"{module.shown}:{node.lineno}"
    path = program.entry.source.path
    return next(find_mentions(path.parent), "") if path else ""


def _is_value(module: Module, node: ast.Constant, text: str) -> bool:
    """`"DataParallel"`, `"nn.DataParallel"`, or a text of settings; no docstring, no question for a `__name__`."""
    question = module.enclosing(node, ast.Compare, ast.stmt)
    is_question = isinstance(question, ast.Compare) and "__name__" in ast.unparse(question)
    if is_question or isinstance(module.parents.get(node), ast.Expr):
        return False
    return PATHS.fullmatch(text.strip()) is not None or names_data_parallel(text) is not None
