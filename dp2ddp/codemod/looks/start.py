"""What a program does first: the statement before which the ranks join.

Where a script sets CUDA_VISIBLE_DEVICES itself, the ranks may only join, and choose devices, behind that.
"""

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from dp2ddp.codemod.knowledge.functions import Does, does, what_is
from dp2ddp.codemod.knowledge.methods import method
from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import IMPORTS, defaults, is_main_guard, is_text

VISIBLE = "CUDA_VISIBLE_DEVICES"
SETTERS = ("os.putenv", "os.environ.setdefault", "os.environ.update")
# What draws a number, or asks for a device.
DRAWS = ("torch.", "numpy.random.", "random.", "uuid.", "secrets.", "os.urandom")
HARMLESS = tuple(
    words("torch.no_grad torch.set_printoptions torch.backends. torch.device torch.cuda.is_available")
)
LOUD_METHODS = ("info", "warning", "debug")
# What asks who started it: ranks forget that when they join, so they join before.
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
QUIET_HOMES = (
    *("argparse.", "os.path.", "collections.", "typing.", "string.", "math.", "logging.getLogger"),
    *("re.compile", "os.environ", "os.getenv", "pathlib.", "functools.", "warnings.", "sys.path"),
    *("matplotlib.use", "builtins.", "enum.", "dataclasses.", "os.chdir", "torch.device"),
    *("torch.cuda.is_available", "abc.", "itertools."),
    # as decorators
    *("torch.no_grad", "torch.inference_mode", "torch.enable_grad", "torch.autocast"),
    *("torch.amp.autocast", "torch.cuda.amp.autocast"),
)
LOUD = {f"builtins.{name}" for name in ("print", "open", "input", "exec", "eval", "breakpoint", "__import__")}
QUIET = (
    *(ast.If, ast.Try, ast.For, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr),
    *(ast.Pass, ast.Global, ast.Delete),
)  # if what they are made of is
QUIET_METHODS = {
    *("add_argument", "add_argument_group", "add_mutually_exclusive_group", "set_defaults"),
    *("parse_args", "parse_known_args", "split", "join", "format", "strip", "items", "keys", "values"),
    *("get", "update", "append", "insert", "setdefault", "lower", "upper", "replace"),
}


@dataclass(frozen=True)
class Join:
    """The statement before which the ranks join; the setting of visible devices that this cannot be behind."""

    before: ast.stmt
    late: ast.stmt | None = None


def join_of(entry: Module) -> Join | None:
    """Where the ranks join; None where nothing runs."""
    act = first_act(entry) or _first_of_command(entry)
    return join_place(entry, act) if act is not None else None


def _first_of_command(entry: Module) -> ast.stmt | None:
    """The first statement of the function that a console script starts."""
    starts = entry.program.starts
    functions = (
        each for each in entry.tree.body if isinstance(each, ast.FunctionDef) and each.name in starts
    )
    for function in functions:
        body = function.body[is_text(function.body[0]) :]
        return _first_loud(entry, body) or function.body[-1]
    return None


def first_act(entry: Module) -> ast.stmt | None:
    """The first statement of a script that does more than define: prints, draws, writes, asks for devices."""
    act = _first_loud(entry, entry.tree.body)
    if act is not None and is_main_guard(act):
        body = act.body  # type: ignore[attr-defined]  # an `if` has one
        act = _first_loud(entry, body) or body[0]
    return act


def last_import(module: Module, using: Collection[ast.stmt] = ()) -> ast.stmt | None:
    """The last of the imports that a file begins with, above the place where the ranks join; or the docstring.

    `using`: statements of the file that need what comes behind it. An import may, since that comes right behind.
    """
    act = first_act(module) if module is module.program.entry else None
    anchor = None
    for place, statement in enumerate(module.tree.body):
        is_import = isinstance(statement, IMPORTS)
        if statement is act or isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            break
        # `import warnings; warnings.simplefilter("ignore")` stays one line
        shares_line = anchor is not None and statement.lineno == anchor.end_lineno and statement not in using
        if is_import or not place and is_text(statement) or shares_line:
            anchor = statement
        if statement in using:
            break
    return anchor


# --- visible devices


def settings(module: Module) -> Iterator[tuple[ast.stmt, ast.expr | None]]:
    """Where a file sets CUDA_VISIBLE_DEVICES, and to what."""
    texts = (each for each in module.all(ast.Constant) if each.value == VISIBLE and each in module.parents)
    keywords = (each for each in module.all(ast.keyword) if each.arg == VISIBLE)
    places: list[ast.Constant | ast.keyword] = [*texts, *keywords]
    for named in sorted(places, key=lambda each: each.lineno):
        match statement := module.statement(named):
            case ast.Assign(targets=[ast.Subscript(value=owner)], value=value):
                if module.name(owner) == "os.environ":
                    yield statement, value
            case ast.Expr(value=ast.Call(func=func, args=given)) if module.name(func) in SETTERS:
                by_keyword = named.value if isinstance(named, ast.keyword) else None
                yield statement, given[1] if len(given) > 1 else by_keyword


def devices_set(module: Module) -> ast.expr | None:
    """What a script sets CUDA_VISIBLE_DEVICES to."""
    return next((value for _, value in settings(module) if value is not None), None)


def visible_text(module: Module) -> str | None:
    """The devices that a script makes visible, where they are written there."""
    value = devices_set(module)
    return next(module.texts(value), None) if value is not None else None


def visible_count(module: Module) -> int | None:
    """How many devices these are."""
    visible = visible_text(module)
    return len([each for each in visible.split(",") if each.strip()]) if visible is not None else None


def join_place(module: Module, act: ast.stmt) -> Join:
    """Where the ranks join: behind the setting of visible devices."""
    last = next(reversed([setting for setting, _ in settings(module)]), None)
    if last is None or module.function_around(last) is None and last.lineno < act.lineno:
        return Join(act)
    way, behind = _way_to(module, act, last), module.behind(last)
    if way is None or not behind or any(_acts(module, each) for each in way):
        return Join(act, last)
    return Join(behind[0])


def _way_to(module: Module, act: ast.stmt, setting: ast.stmt) -> list[ast.stmt] | None:
    """The statements that run between the first act and the setting; None if that cannot be told."""
    block = module.block_of(act)
    rest = block[block.index(act) :]
    if setting in rest:
        return rest[: rest.index(setting)]
    function = module.function_around(setting)
    if not isinstance(function, ast.FunctionDef) or setting not in function.body:
        return None
    calls = list(module.program.calls_of(module, function))
    statement = module.statement(calls[0][1].node) if len(calls) == 1 and calls[0][0] is module else None
    if statement not in rest or not isinstance(statement, (ast.Expr, ast.Assign)):
        return None
    return [*rest[: rest.index(statement)], *function.body[: function.body.index(setting)]]


def _acts(module: Module, statement: ast.stmt) -> bool:
    """Whether running this draws, prints, writes or asks for a device, functions of the program included."""
    parts = module.program.closure(module, statement)
    return any(_is_act(call) for home, part in parts for call in home.calls_in(part))


def _is_act(call: Call) -> bool:
    name = call.name or ""
    draws = name.startswith(DRAWS) and not name.startswith(HARMLESS)
    writes = method(call.method) is not None or call.method in LOUD_METHODS
    return draws or writes or does_something(name)


# --- what only defines: every rank may run it by itself, before the ranks join


def _first_loud(entry: Module, body: Iterable[ast.stmt]) -> ast.stmt | None:
    """The first statement that does more; an import runs the module."""
    seen = {entry}
    return next((each for each in body if not _is_quiet(entry, each, seen)), None)


def _is_quiet(entry: Module, statement: ast.stmt, seen: set[Module]) -> bool:
    """Whether a statement of the script is quiet, and whatever it imports that was not seen before."""
    pending: list[tuple[Module, ast.AST]] = [(entry, statement)]
    while pending:  # not recursive: modules import each other by the hundred
        module, node = pending.pop()
        parts: Iterable[ast.AST] = ast.iter_child_nodes(node)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                usual = defaults(node).values()
                if any(does_something(call.name) for value in usual for call in module.calls_in(value)):
                    return False
                parts = node.decorator_list
            case ast.ClassDef(body=body):
                parts = body
            case ast.Import() | ast.ImportFrom():
                others = dict.fromkeys(each for each in _imported(module, node) if each not in seen)
                seen |= others.keys()
                pending += ((other, each) for other in others for each in other.tree.body)
            case ast.Lambda():  # runs when it is called
                parts = ()
            case ast.If() if is_main_guard(node):
                if module is entry:
                    return False
                parts = ()
            case ast.Constant(value=value) if value in LAUNCHER:
                return False
            case ast.Call() if not _is_quiet_call(module, node):
                return False
            case ast.stmt() if not isinstance(node, QUIET):
                return False
        pending += ((module, each) for each in parts)
    return True


def _is_quiet_call(module: Module, call: ast.Call) -> bool:
    name, method = module.name(call.func), Call(call, None).method
    is_known = name.startswith(QUIET_HOMES) if name else method in QUIET_METHODS
    return is_known and not does_something(name)


def does_something(name: str | None) -> bool:
    """Whether a function is known to do something."""
    return name in LOUD or what_is(name) is not None and does(name) is not Does.MAKE_DEVICE


def _imported(module: Module, node: ast.Import | ast.ImportFrom) -> Iterator[Module]:
    """The files that an import runs: those of packages, too."""
    home = f"{module.home_of(node)}." if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        parts = f"{home}{alias.name}".split(".")
        names = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
        yield from (module.program.by_name[name] for name in names if name in module.program.by_name)
