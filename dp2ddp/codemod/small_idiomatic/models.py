"""The wraps of a program, and what is done with a wrapped model."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import DEFINITIONS
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.small_idiomatic.training import training_functions

WRAP = "torch.nn.DataParallel"
MOVES = ("cuda", "to")


@dataclass(frozen=True, eq=False)
class Wrap:
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
    def chain(self) -> ast.Call | None:
        """`DataParallel(net).cuda()`: the call around the wrap that moves it."""
        method = self.module.parents[self.call.node]
        call = self.module.parents[method]
        if isinstance(method, ast.Attribute) and method.attr in MOVES and isinstance(call, ast.Call):
            return call
        return None


@lru_cache(maxsize=8)
def wraps_of(program: Program) -> tuple[Wrap, ...]:
    """Every wrap, file by file."""
    return tuple(
        Wrap(module, call) for module in program.modules for call in module.calls if call.name == WRAP
    )


def wrapped_names(program: Program) -> set[str]:
    """The last words of variables that hold wrapped models: "net" of `self.net`."""
    return {name for wrap in wraps_of(program) if (name := last_word(wrap.target))}


def last_word(node: ast.AST | None) -> str:
    """The name of a variable, or of an attribute."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def runs(program: Program, names: set[str]) -> Iterator[tuple[Module, Call]]:
    """Where a wrapped model is called."""
    for module in program.modules:
        for call in module.calls:
            if last_word(call.node.func) in names:
                yield module, call


def move_of(wrap: Wrap) -> str | None:
    """What moves the model to its device behind the wrap (".cuda()"), or "" where it is there before."""
    model, module = wrap.model, wrap.module
    assert model is not None
    if wrap.chain:
        inner = ast.unparse(wrap.chain).removeprefix(ast.unparse(wrap.call.node))
        return inner
    if any(each.func.attr in MOVES for each in ast.walk(model) if _is_method(each)):  # type: ignore[attr-defined]  # of a call
        return ""
    word = last_word(model)
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


def runs_often(wrap: Wrap) -> bool:
    """Whether the model runs more than once in a function that trains: two forwards before a backward."""
    name = last_word(wrap.target)
    program = wrap.module.program
    if not name:
        return False
    training = training_functions(program)
    count: dict[ast.AST | None, int] = {}
    for module, call in runs(program, {name}):
        function = module.function_around(call.node)
        if getattr(function, "name", None) in training or function is None:
            count[function] = count.get(function, 0) + 1
    return any(each > 1 for each in count.values())
