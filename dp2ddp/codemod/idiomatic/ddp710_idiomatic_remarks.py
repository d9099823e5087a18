"""DDP710: what DDP makes other numbers of, and a person must look at."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from dp2ddp.codemod.edits import InsertBefore, Replace
from dp2ddp.codemod.idiomatic.loaders import EVALUATES, loaders_of
from dp2ddp.codemod.idiomatic.looking import trains, words_in
from dp2ddp.codemod.idiomatic.models import wraps_of
from dp2ddp.codemod.idiomatic.new_names import names_cuda, remark, words_of
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import LOOPS, last_name
from dp2ddp.codemod.rule import Change, Finding, Rule, Untouched, diff
from dp2ddp.codemod.rules.ddp506_own_clock import OwnClock

FIGURE = re.compile(r"loss|acc(uracy)?$|correct|hits|(^|_)acc", re.IGNORECASE)
SHOWING = ("print", "info", "add_scalar", "log", "set_postfix", "set_description", "write")
OF_A_BATCH = re.compile(rf"{FIGURE.pattern}|^(isnan|isinf|isfinite|item|any|all|len)$", re.IGNORECASE)
SKIPPED = "all ranks skip a batch, or none"


class Remarks(Rule):
    """Say where numbers are a rank's own, and skip a batch on all ranks or on none.

    ## What it does
    Puts a comment above a loss that is a sum (DDP averages gradients over the ranks: they are 1 / W of what they were)
    or that compares rows, above training figures that are shown or decide something,
    errors that are swallowed in a step, and clocks that name files. Where a loop that trains goes on or ends by
    what a batch holds (`if torch.isnan(loss): continue`), the ranks add up what each finds, and do what one has to do.

    ## Why
    What to do depends on what the owner wants: no code is right for all. A rank that skips a backward pass by itself
    leaves the others waiting for its gradients.

    ## Safety
    The looks are local, and by names: a comment may be missing, or be needless.

    ## References
    docs/idiomatic.md.
    """

    code = "DDP710"
    name = "idiomatic-remarks"
    nodes = ("BaseStatement", "If")
    examples = (
        diff("""
              from torch import nn
              net = nn.DataParallel(net)
            + # dp2ddp: a sum, and DDP averages over the ranks: multiply by the world size for the gradients of before
              criterion = nn.CrossEntropyLoss(reduction="sum")
        """),
        diff("""
              import torch
              import torch.distributed as dist
              net = torch.nn.DataParallel(net.cuda())
              for x, y in batches:
                  loss = criterion(net(x), y)
            -     if torch.isnan(loss):
            +     skips = torch.tensor(float(torch.isnan(loss)), device="cuda")
            +     dist.all_reduce(skips)  # what one rank does, all do
            +     if skips > 0:
                      continue
                  loss.backward()
        """),
        Untouched("from torch import nn\ncriterion = nn.CrossEntropyLoss()"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        if not wraps_of(module.program):
            return
        for each in REMARKS:
            for statement in dict.fromkeys(map(module.statement, each.look(module))):
                yield remark(module, statement, each.text)
        device = ', device="cuda"' if names_cuda(module.program) else ""
        words = words_of(module)
        for node in skipping(module):
            code = f"skips = {words['torch']}.tensor(float({module.text(node.test)}){device})\n"
            code += f"{words['dist']}.all_reduce(skips)  # what one rank does, all do"
            yield Change(InsertBefore(node, code, SKIPPED, apart=False))
            yield Change(Replace(node.test, "skips > 0", SKIPPED))


def skipping(module: Module) -> Iterator[ast.If]:
    """`if torch.isnan(loss): continue`: where a loop that trains goes on or ends by what a batch holds."""
    for node in module.all(ast.If):
        parent = module.parents[node]
        loop = next((each for each in module.around(node) if isinstance(each, LOOPS)), None)
        leaves = isinstance(node.body[-1], (ast.Continue, ast.Break)) and not node.orelse
        is_elif = isinstance(parent, ast.If) and node in parent.orelse
        asks = any(map(OF_A_BATCH.search, words_in(node.test)))
        if loop is not None and leaves and asks and not is_elif and trains(module, loop):
            yield node


def sums(module: Module) -> Iterator[ast.AST]:
    """Losses that are sums, of which DDP makes 1 / W; no `cross_entropy(..., reduction="sum") / n`."""
    goes_back = (each.node.func for each in module.calls if each.method == "backward")
    losses = (each.value for each in goes_back if isinstance(each, ast.Attribute))
    differentiated = {origin for each in losses for _, origin in module.program.flow.origins(module, each)}
    for call in module.calls:
        given, parent = call.keyword("reduction"), module.parents[call.node]
        is_sum = given is not None and isinstance(given.value, ast.Constant) and given.value.value == "sum"
        is_divided = isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div)
        if is_sum and not is_divided or call.method == "sum" and call.node in differentiated:
            yield call.node


def pairs(module: Module) -> Iterator[ast.AST]:
    """`z @ z.t()`, `torch.cdist(a, b)`: rows that are compared with each other, where it is no weight of a layer."""
    for node in module.nodes(ast.BinOp, ast.Call):
        called = last_name(node.func) if isinstance(node, ast.Call) else ""
        parts = [node.right] if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) else []
        parts += node.args if isinstance(node, ast.Call) and called in ("mm", "matmul") else []
        turned = (each.func if isinstance(each, ast.Call) else each for each in parts)
        turns = (isinstance(each, ast.Attribute) and each.attr in ("t", "T") for each in turned)
        if called in ("cdist", "pdist") or any(turns) and not words_in(node) & {"self", "weight"}:
            yield node


def shown_figures(module: Module) -> Iterator[ast.AST]:
    """The first line of each function that shows a figure of training, where ranks train on shares."""
    shown: dict[object, ast.AST] = {}
    if any(each.is_shared for each in loaders_of(module.program)):
        for call in module.calls:
            if last_name(call.node.func) in SHOWING and _is_of_training(module, call.node):
                shown.setdefault(module.function_around(call.node), call.node)
    yield from shown.values()


def deciding_figures(module: Module) -> Iterator[ast.AST]:
    """`scheduler.step(loss)`, `if loss > 1:`, where more hangs on it than a line that is shown."""
    tests = {node: node.test for kind in (ast.If, ast.IfExp, ast.While) for node in module.all(kind)}  # type: ignore[attr-defined]
    for known in (*skipping(module), *filter(_only_shows, module.all(ast.If))):
        tests.pop(known, None)
    steps = {call.node: each for call in module.calls if call.method == "step" for each in call.node.args}
    for node, expression in (*tests.items(), *steps.items()):
        if _is_of_training(module, expression):
            yield node


def _only_shows(node: ast.If) -> bool:
    values = [each.value if isinstance(each, ast.Expr) else None for each in node.body]
    return all(isinstance(each, ast.Call) and last_name(each.func) in SHOWING for each in values)


def _is_of_training(module: Module, node: ast.AST) -> bool:
    """Whether an expression has a figure that a loop with a backward pass in its function has made."""
    words = {word for word in words_in(node) if FIGURE.search(word) and not EVALUATES.search(word)}
    return bool(words and words & _made_in_training(module, module.function_around(node)))


@lru_cache(maxsize=1000)
def _made_in_training(module: Module, function: ast.AST | None) -> frozenset[str]:
    """The names that are set in loops that train, in one function."""
    backward = (call.node for call in module.calls if call.method == "backward")
    loops = {loop for node in backward for loop in module.around(node) if isinstance(loop, LOOPS)}
    made: list[ast.AST] = []
    for each in (
        node for loop in loops if module.function_around(loop) is function for node in ast.walk(loop)
    ):
        if isinstance(each, (ast.Name, ast.Attribute)) and isinstance(each.ctx, ast.Store):
            made.append(each)
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
            made.append(each.func.value)  # `losses.append(loss)`, `meter.update(loss)`
    return frozenset(map(last_name, made))


def swallowing(module: Module) -> Iterator[ast.AST]:
    """`try:` around a backward pass, whose error lets the rank go on."""
    for node in module.all(ast.Try):
        goes_on = [each for each in node.handlers if not _ends(each)]
        is_within = any(isinstance(each, LOOPS) for each in module.around(node))
        if goes_on and is_within and any(trains(module, each) for each in node.body):
            yield node


def _ends(handler: ast.ExceptHandler) -> bool:
    nodes = [each for statement in handler.body for each in ast.walk(statement)]
    return any(isinstance(each, ast.Raise) or last_name(each) in ("exit", "_exit") for each in nodes)


def clocks(module: Module) -> Iterator[ast.AST]:
    """The first clock or process number of each function on which more hangs than a line that is shown."""
    clocks_there = (
        each.edit.node if isinstance(each, Change) else each.node for each in OwnClock().look(module)
    )
    first: dict[object, ast.AST] = {}
    for node in clocks_there:
        first.setdefault(module.function_around(node), node)
    yield from first.values()


@dataclass(frozen=True)
class Remark:
    """A look at a file, the comment on what it finds; and the report's name for it, with causes that `verify` finds."""

    look: Callable[[Module], Iterator[ast.AST]]
    text: str
    name: str = ""
    causes: tuple[str, ...] = ()
    certain: bool = False


OF_LOSS = ("local-counts", "mean-of-means", "gradient-scale")
REMARKS = (
    Remark(
        sums,
        "a sum, and DDP averages over the ranks: multiply by the world size for the gradients of before",
        "loss",
        OF_LOSS,
        certain=True,
    ),
    Remark(
        pairs,
        "a product of matrices: where rows are compared with each other, a rank has 1/W of them (all_gather them?)",
        "loss",
        OF_LOSS,
    ),
    Remark(
        shown_figures,
        "rank 0's figures, of its share of the samples; all_reduce sums and counts to show those of all",
        "training figures",
        ("local-numbers", "other-output", "local-counts", "mean-of-means"),
        certain=True,
    ),
    Remark(
        deciding_figures,
        "each rank's own figure: if more than a line hangs on it, dist.all_reduce it, or ranks decide differently",
        "decisions",
        ("local-numbers", "other-computation", "more-steps"),
    ),
    Remark(
        swallowing,
        "a rank that swallows an error here leaves the others without its gradients: let it raise",
        "swallowed errors",
        ("missing-rows", "more-steps", "other-computation"),
    ),
    Remark(clocks, "each rank's own clock, or process: take rank 0's (dist.broadcast_object_list)"),
)
