"""CUDA_VISIBLE_DEVICES, where a script sets it itself: the ranks may only join, and choose devices, behind that."""

import ast
from dataclasses import dataclass

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.methods import method
from dp2ddp.codemod.model.modules import Module

VISIBLE = "CUDA_VISIBLE_DEVICES"
NEW_START = ("os.execv", "os.execl")
# What draws a number, or asks for a device.
DRAWS = ("torch.", "numpy.random.", "random.", "uuid.", "secrets.", "os.urandom")
HARMLESS = (
    "torch.no_grad",
    "torch.set_printoptions",
    "torch.backends.",
    "torch.device",
    "torch.cuda.is_available",
)
LOUD = ("builtins.print", "builtins.open", "builtins.input")
LOUD_METHODS = ("info", "warning", "debug")


@dataclass(frozen=True)
class Join:
    """The statement before which the ranks join; the setting of visible devices that this cannot be behind."""

    before: ast.stmt
    late: ast.stmt | None = None


def settings(module: Module) -> list[ast.stmt]:
    """Where a file sets CUDA_VISIBLE_DEVICES."""
    statements: list[ast.stmt] = []
    for text in module.all(ast.Constant):
        statement = module.statement(text) if text.value == VISIBLE and text in module.parents else None
        match statement:
            case ast.Assign(targets=[ast.Subscript(value=value)]) if module.name(value) == "os.environ":
                statements.append(statement)
            case ast.Expr(value=ast.Call(func=func)) if module.name(func) in (
                "os.putenv",
                "os.environ.setdefault",
                "os.environ.update",
            ):
                statements.append(statement)
    return statements


def devices_set(module: Module) -> ast.expr | None:
    """What a script sets CUDA_VISIBLE_DEVICES to."""
    for statement in settings(module):
        match statement:
            case ast.Assign(value=value):
                return value
            case ast.Expr(value=ast.Call(args=[_, value, *_])):
                return value
    return None


def visible_text(module: Module) -> str | None:
    """The devices that a script makes visible, where they are written there."""
    value = devices_set(module)
    return next(module.texts(value), None) if value is not None else None


def join_place(module: Module, act: ast.stmt) -> Join:
    """Where the ranks join: behind a new start of the script, and behind the setting of visible devices."""
    act = _behind_new_start(module, act)
    assignments = settings(module)
    if (
        not assignments
        or module.function_around(assignments[-1]) is None
        and assignments[-1].lineno < act.lineno
    ):
        return Join(act)
    last = assignments[-1]
    way = _way_to(module, act, last)
    block = module.block_of(last)
    following = block[block.index(last) + 1 :]
    if way is None or not following or any(_acts(module, each, set()) for each in way):
        return Join(act, last)
    return Join(following[0])


def _behind_new_start(module: Module, act: ast.stmt) -> ast.stmt:
    """A process that starts the script anew (PYTHONHASHSEED) must not have joined; ranks join in its second start."""
    while isinstance(act, ast.If) and any(_takes_the_place(module, node) for node in ast.walk(act)):
        block = module.block_of(act)
        following = block[block.index(act) + 1 :]
        if not following:
            return act
        act = following[0]
    return act


def _takes_the_place(module: Module, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and (module.name(node.func) or "").startswith(NEW_START)


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


def _acts(module: Module, statement: ast.AST, seen: set[ast.AST]) -> bool:
    """Whether running this draws, prints, writes or asks for a device, functions of the program included."""
    seen.add(statement)
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call):
            continue
        name = module.name(node.func) or ""
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in LOUD or called in LOUD_METHODS or method(called) is not None:
            return True
        if (
            does(name) not in (None, Does.MAKE_DEVICE)
            or name.startswith(DRAWS)
            and not name.startswith(HARMLESS)
        ):
            return True
        definition = module.definition(node.func)
        if definition and definition[1] not in seen and _acts(*definition, seen):
            return True
    return False
