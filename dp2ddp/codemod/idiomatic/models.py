"""The wraps of a program, and what is done with a wrapped model."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from dp2ddp.codemod.idiomatic.looking import calls_in, class_named, last_word, methods_of, nodes_in
from dp2ddp.codemod.idiomatic.training import training_functions
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import DEFINITIONS
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.scopes import Binds

WRAP = "torch.nn.DataParallel"
OWN_WAYS = {"__init__", "forward", "scatter", "gather", "replicate", "parallel_apply"}
MOVES = ("cuda", "to")


@dataclass(frozen=True, eq=False)
class ModelWrap:
    """A call of DataParallel."""

    module: Module
    call: Call

    @property
    def model(self) -> ast.expr | None:
        return self.call.argument(0, "module")

    @property
    def target(self) -> ast.expr | None:
        """The variable that holds the wrapped model."""
        node: ast.AST = self.chain or self.call.node
        parent = self.module.parents[node]
        is_one = isinstance(parent, ast.Assign) and len(parent.targets) == 1
        return parent.targets[0] if is_one else None  # type: ignore[attr-defined]  # an assignment has them

    @property
    def is_inner(self) -> bool:
        """Whether it is a part of a larger expression."""
        return not isinstance(
            self.module.parents[self.chain or self.call.node], (ast.Assign, ast.Return, ast.Call)
        )

    @property
    def chain(self) -> ast.Call | None:
        """`DataParallel(net).cuda()`: the call around the wrap that moves it."""
        method = self.module.parents[self.call.node]
        call = self.module.parents[method]
        if isinstance(method, ast.Attribute) and method.attr in MOVES and isinstance(call, ast.Call):
            return call
        return None


@lru_cache(maxsize=8)
def wraps_of(program: Program) -> tuple[ModelWrap, ...]:
    """Every wrap, file by file."""
    names = {WRAP, *_plain_classes(program)}
    return tuple(
        ModelWrap(module, call) for module in program.modules for call in module.calls if call.name in names
    )


def _plain_classes(program: Program) -> Iterator[str]:
    """Classes that derive from DataParallel, and are made and run as it is."""
    for module, class_ in nodes_in(program, ast.ClassDef):
        if any(module.name(base) == WRAP for base in class_.bases) and not methods_of(class_) & OWN_WAYS:
            yield f"{module.dotted}.{class_.name}"


def trains_nothing(wrap: ModelWrap) -> bool:
    """Whether what is wrapped has no parameters: a loss of torch's, a class that makes no layer."""
    model = _unmoved(wrap)
    name = wrap.module.name(model.func) if isinstance(model, ast.Call) else None
    if name is None or name.startswith("torch.nn."):
        return name is not None and name.endswith("Loss")
    home = class_named(wrap.module.program, name)
    if home is None or [home[0].name(base) for base in home[1].bases] != ["torch.nn.Module"]:
        return False
    inside = set(ast.walk(home[1]))
    names = [
        call.name or "" for call in home[0].calls if call.node in inside and call.name != "builtins.super"
    ]
    layers = (each for each in names if each.startswith("torch.nn.") and ".functional." not in each)
    return all(each.endswith("Loss") for each in layers) and not any(map(wrap.module.program.is_local, names))


def _unmoved(wrap: ModelWrap) -> ast.expr | None:
    """The model without `.cuda()` or `.to(device)`."""
    model = wrap.model
    while isinstance(model, ast.Call) and isinstance(model.func, ast.Attribute) and model.func.attr in MOVES:
        model = model.func.value
    return model


FROZEN = re.compile(r"loss|crit|teacher|percep|vgg|target|_t$|frozen|lpips", re.IGNORECASE)


def may_be_frozen(wrap: ModelWrap) -> str:
    """A variable in which nothing may be left to train, by its name: a teacher, a criterion; else empty."""
    model = _unmoved(wrap)
    if not isinstance(model, (ast.Name, ast.Attribute)):
        return ""
    words = (last_word(wrap.target), last_word(model))
    return ast.unparse(model) if any(map(FROZEN.search, words)) else ""


@lru_cache(maxsize=8)
def may_leave_out(program: Program) -> bool:
    """Whether a forward may leave parameters without gradients: it branches, or somebody freezes some."""
    if any(
        name.startswith("torch.utils.checkpoint") for module in program.modules for name in module.mentions
    ):
        return False  # it runs forwards again, which the search for what is unused does not expect
    for module, node in nodes_in(program, ast.Attribute):
        if node.attr in ("requires_grad", "requires_grad_") and _sets(module, node):
            return True
    for module, function in nodes_in(program, ast.FunctionDef):
        is_forward = function.name == "forward" and isinstance(module.parents[function], ast.ClassDef)
        if is_forward and (function.args.defaults or any(map(_runs_layers, ast.walk(function)))):
            return True
    return any(call.name == "torch.autograd.grad" for _, call in calls_in(program))


def _runs_layers(node: ast.AST) -> bool:
    """Whether it is a branch in which layers run, or which returns without the others."""
    if not isinstance(node, (ast.If, ast.IfExp)):
        return False
    branches = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [*node.body, *node.orelse]
    inside = [each for branch in branches for each in ast.walk(branch)]
    called = [each.func for each in inside if isinstance(each, ast.Call)]
    runs_any = any(
        isinstance(each, (ast.Name, ast.Call)) or ast.unparse(each).startswith("self.") for each in called
    )
    return runs_any or any(isinstance(each, ast.Return) for each in inside)


def _sets(module: Module, node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store) or isinstance(module.parents[node], ast.Call)


def wrapped_names(program: Program) -> set[str]:
    """The last words of variables that hold wrapped models: "net" of `self.net`."""
    return {name for wrap in wraps_of(program) if (name := last_word(wrap.target))}


def has_unwrapped(program: Program) -> bool:
    """Whether an optimizer steps parameters of what is not wrapped: a head beside the features, a loss with centers."""
    names = wrapped_names(program) | {last_word(wrap.model) for wrap in wraps_of(program)}
    names |= set(_returned(program))
    for wrap in wraps_of(program):
        if isinstance(wrap.target, ast.Attribute):  # of `model.features` the rest is not wrapped
            names -= {last_word(wrap.target.value)} - {"self"}
    for module, call in calls_in(program):
        name = call.name or ""
        is_optimizer = name.startswith("torch.optim.") and ".lr_scheduler." not in name
        if is_optimizer and any(last_word(each) not in names for each in _owners(module, call.node)):
            return True
    return False


def _returned(program: Program) -> Iterator[str]:
    """Variables that get what a function with a wrap in it returns."""
    around = (wrap.module.function_around(wrap.call.node) for wrap in wraps_of(program))
    functions = {getattr(each, "name", "") for each in around} - {"", "main", "__init__"}
    for _, node in nodes_in(program, ast.Assign):
        if isinstance(node.value, ast.Call) and last_word(node.value.func) in functions:
            for target in node.targets:
                yield from map(last_word, target.elts if isinstance(target, ast.Tuple) else [target])


def _owners(module: Module, node: ast.AST) -> Iterator[ast.expr]:
    """Whose parameters an expression takes, also through a variable."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and each.attr in ("parameters", "named_parameters"):
            owner = each.value
            yield owner.value if isinstance(owner, ast.Attribute) and owner.attr == "module" else owner
        elif isinstance(each, ast.Name) and (scope := module.scope_of[each].lookup(each.id)):
            for binding in scope.bindings[each.id]:
                if binding.how is Binds.VALUE and binding.node is not None and binding.node is not node:
                    names = (part for part in ast.walk(binding.node) if isinstance(part, ast.Attribute))
                    yield from (
                        part.value for part in names if part.attr in ("parameters", "named_parameters")
                    )


def runs(program: Program, names: set[str]) -> Iterator[tuple[Module, Call]]:
    """Where a wrapped model is called."""
    return (each for each in calls_in(program) if last_word(each[1].node.func) in names)


def move_of(wrap: ModelWrap) -> str | None:
    """What moves the model to its device behind the wrap (".cuda()"), or "" where it is there before."""
    model, module = wrap.model, wrap.module
    assert model is not None
    if wrap.chain:
        return ast.unparse(wrap.chain).removeprefix(ast.unparse(wrap.call.node))
    if any(each.func.attr in MOVES for each in ast.walk(model) if _is_method(each)):  # type: ignore[attr-defined]  # of a call
        return ""
    word = last_word(model)
    for each in module.all(ast.Assign):
        is_it = (
            any(last_word(target) == word for target in each.targets) and each.lineno < wrap.call.node.lineno
        )
        if is_it and any(_is_method(part) and part.func.attr in MOVES for part in ast.walk(each.value)):  # type: ignore[attr-defined]
            return ""
    scope = next(
        (each for each in module.around(wrap.call.node) if isinstance(each, DEFINITIONS)), module.tree
    )
    for call in module.calls:
        owner = call.node.func
        is_of_it = _is_method(call.node) and call.method in MOVES and last_word(owner.value) == word != ""  # type: ignore[attr-defined]
        if is_of_it and call.node.lineno <= wrap.call.node.lineno and call.node in set(ast.walk(scope)):
            return ""
    return ".cuda()"


def _is_method(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)


def changed_behind(wrap: ModelWrap) -> list[ast.stmt]:
    """What still changes the model behind the wrap, in its block: `net.module.fc = ...`, `net.apply(init)`."""
    module, target = wrap.module, wrap.target
    statement = module.statement(wrap.call.node)
    if target is None or ast.unparse(target) != ast.unparse(wrap.model or target):
        return []
    text, siblings = ast.unparse(target), getattr(module.parents[statement], "body", [])
    behind = siblings[siblings.index(statement) + 1 :] if statement in siblings else []
    changing: list[ast.stmt] = []
    for each in behind:
        match each:
            case ast.Assign(targets=[ast.Attribute(value=owner)]) if ast.unparse(owner).startswith(
                f"{text}.module"
            ):
                changing.append(each)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr="apply"))) if (
                ast.unparse(owner) == text
            ):
                changing.append(each)
    return changing


def runs_often(wrap: ModelWrap) -> bool:
    """Whether the model runs more than once in a function that trains: two forwards before a backward."""
    program = wrap.module.program
    names = {last_word(wrap.target)} - {""} or set(_returned(program))
    training = training_functions(program)
    count: dict[tuple[str, ast.AST | None], int] = {}
    for module, call in runs(program, names):
        function = module.function_around(call.node)
        if getattr(function, "name", None) in training or function is None:
            key = last_word(call.node.func), function
            count[key] = count.get(key, 0) + 1
    return any(each > 1 for each in count.values())


def asks_devices(module: Module, test: ast.expr) -> bool:
    """Whether a condition is about devices: `if torch.cuda.device_count() > 1:`, `if device.type == "cuda":`."""
    flow = module.program.flow
    named = (each for each in ast.walk(test) if isinstance(each, (ast.Name, ast.Attribute)))
    origins = [(module, test), *(origin for each in named for origin in flow.origins(module, each))]
    return any(_is_of_devices(home, part) for home, origin in origins for part in ast.walk(origin))


def _is_of_devices(module: Module, node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.startswith("cuda")
    return isinstance(node, ast.Call) and (module.name(node.func) or "").startswith("torch.cuda.")
