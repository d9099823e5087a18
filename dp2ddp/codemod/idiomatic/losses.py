"""What a loss averages over: the mean of the ranks' means is the mean of all rows only where each row counts alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from enum import Enum, auto

from dp2ddp.codemod.idiomatic.looking import calls_in
from dp2ddp.codemod.idiomatic.models import wraps_of
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.program import Program

WEIGHTS = {"weight", "ignore_index", "pos_weight"}
PAIRS = {"mm", "matmul", "cdist", "pdist", "t", "einsum"}
LOSSES = ("Loss", "_loss", "entropy", "entropy_with_logits", "kl_div")
NEUTRAL = ("torch.", "builtins.", "numpy.", "math.")
Part = tuple[Module, ast.AST]


class Mean(Enum):
    """What a loss is."""

    OF_ROWS = auto()
    WEIGHTED = auto()  # over what counts: class weights, ignored targets
    OF_PAIRS = auto()  # rows are compared with each other
    UNKNOWN = auto()


def losses_of(program: Program) -> Iterator[tuple[Module, ast.stmt, Mean]]:
    """The loss of each backward pass."""
    for module, call in calls_in(program):
        if call.method == "backward":
            owner = call.node.func.value  # type: ignore[attr-defined]  # it is a method
            yield module, module.statement(call.node), _mean(module, owner)


def _mean(module: Module, loss: ast.expr) -> Mean:
    outer = list(_parts(module, [loss]))  # down to the means
    means = [part for part in outer if _is_mean(*part)]
    inner = [part for mean in means for part in _parts(mean[0], _given(mean[1]), through_means=True)]
    makers = [part for home, mean in means for part in _made(home, mean.func)]  # type: ignore[attr-defined]  # a call
    if any(_is_weighted(*part) for part in (*means, *makers)):
        return Mean.WEIGHTED
    if any(_compares_rows(node) for _, node in (*outer, *inner)):
        return Mean.OF_PAIRS
    is_whole = any(_is_of_the_batch(node) for _, node in inner)
    is_known = (
        not is_whole
        and means
        and not any(_is_foreign(*part) for part in outer)
        and not any(_is_mean(*part) for part in inner)
    )
    return Mean.OF_ROWS if is_known else Mean.UNKNOWN


def _is_mean(module: Module, node: ast.AST) -> bool:
    """`criterion(out, y)`, `F.cross_entropy(out, y)`, `x.mean()`: a mean over rows that torch takes."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == "mean" and not node.args:
        return True
    names = {
        module.name(node.func) or "",
        *(home.name(each.func) or "" for home, each in _made(module, node.func)),
    }
    return any(name.startswith("torch.nn.") and name.endswith(LOSSES) for name in names)


def _made(module: Module, node: ast.expr) -> Iterator[tuple[Module, ast.Call]]:
    """The calls that make an object, without what moves it to a device."""
    for home, origin in module.program.flow.origins(module, node):
        each: ast.AST = origin
        while isinstance(each, ast.Call):
            yield home, each
            each = each.func.value if isinstance(each.func, ast.Attribute) else each.func


def _given(node: ast.AST) -> list[ast.expr]:
    """What a mean is taken of."""
    assert isinstance(node, ast.Call)
    owner = [node.func.value] if isinstance(node.func, ast.Attribute) and node.func.attr == "mean" else []
    return [*node.args, *owner]


def _is_weighted(module: Module, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    names = {each.arg for each in node.keywords} & WEIGHTS
    name = module.name(node.func) or ""
    return bool(names) or bool(node.args) and name in ("torch.nn.CrossEntropyLoss", "torch.nn.NLLLoss")


def _compares_rows(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in PAIRS
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult)


def _is_of_the_batch(node: ast.AST) -> bool:
    """`z.mean(0)`: a figure of all rows inside of the loss."""
    match node:
        case ast.Call(
            func=ast.Attribute(attr="mean" | "std" | "var" | "sum"), args=[ast.Constant(value=0), *_]
        ):
            return True
        case ast.Call(keywords=[ast.keyword(arg="dim" | "axis", value=ast.Constant(value=0))]):
            return True
    return False


def _is_foreign(module: Module, node: ast.AST) -> bool:
    """Whether what is called is of another library than torch."""
    names = [module.name(node.func)] if isinstance(node, ast.Call) else []
    return any(name and not name.startswith(NEUTRAL) and not module.program.is_local(name) for name in names)


def _parts(
    module: Module, nodes: Sequence[ast.expr], through_means: bool = False, seen: set[ast.AST] | None = None
) -> Iterator[Part]:
    """All that a value is computed from, up to the model; functions of the program by what they return."""
    seen = set() if seen is None else seen
    models = {wrap.call.node for wrap in wraps_of(module.program)}
    pending: list[Part] = [part for node in nodes for part in module.program.flow.origins(module, node)]
    while pending:
        home, node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        made = {each for _, each in _made(home, node.func)} if isinstance(node, ast.Call) else set()
        if made & models:
            continue
        yield home, node
        if isinstance(node, ast.Call) and (inner := _returned(home, node)):
            pending += [part for where, each in inner for part in where.program.flow.origins(where, each)]
        elif isinstance(node, ast.Name):
            pending += home.program.flow.origins(home, node)
        elif through_means or not _is_mean(home, node):
            pending += [(home, each) for each in ast.iter_child_nodes(node)]


def _returned(module: Module, call: ast.Call) -> list[tuple[Module, ast.expr]]:
    """What a function of the program returns, or the forward of an object."""
    named = [(module, call.func), *((home, each.func) for home, each in _made(module, call.func))]
    definitions = [definition for home, each in named if (definition := home.definition(each))]
    functions = [
        (home, node)
        for home, each in definitions
        for node in (each.body if isinstance(each, ast.ClassDef) else [each])
        if isinstance(node, ast.FunctionDef) and (node is each or node.name == "forward")
    ]
    returns = ((home, each) for home, node in functions for each in ast.walk(node))
    return [(home, each.value) for home, each in returns if isinstance(each, ast.Return) and each.value]


def sums(module: Module) -> Iterator[ast.stmt]:
    """Losses that are sums, of which DDP makes 1 / W."""
    for call in module.calls:
        given = call.keyword("reduction")
        is_sum = given is not None and isinstance(given.value, ast.Constant) and given.value.value == "sum"
        if (
            is_sum
            and not _is_divided(module, call)
            or call.method == "sum"
            and _is_differentiated(module, call)
        ):
            yield module.statement(call.node)


def _is_divided(module: Module, call: Call) -> bool:
    """`cross_entropy(out, y, reduction="sum") / x.size(0)`: a mean, after all."""
    parent = module.parents[call.node]
    return isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div) and parent.left is call.node


def _is_differentiated(module: Module, call: Call) -> bool:
    """`loss = (...).sum()` and then `loss.backward()`, or both at once: the sum is the outermost call."""
    flow = module.program.flow
    return any(
        call.node is origin
        for each in module.calls
        if each.method == "backward"
        for _, origin in flow.origins(module, each.node.func.value)  # type: ignore[attr-defined]  # it is a method
    )
