"""DDP710: what DDP makes other numbers of, and a person must look at."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import LOOPS
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.rule import Finding, Rewrites, Untouched
from dp2ddp.codemod.small_idiomatic.loaders import loaders_of
from dp2ddp.codemod.small_idiomatic.looking import calls_in, last_word
from dp2ddp.codemod.small_idiomatic.models import wraps_of
from dp2ddp.codemod.small_idiomatic.training import trains
from dp2ddp.codemod.small_idiomatic.words import IdiomaticRule, remark

SEEDS = ("torch.manual_seed", "numpy.random.seed", "random.seed", "torch.cuda.manual_seed_all")
SPLIT = "torch.utils.data.random_split"
FIGURES = "rank 0's figures, of its share of the samples; all_reduce sums and counts to show those of all"


class Remarks(IdiomaticRule):
    """Say where numbers are a rank's own.

    ## What it does
    Puts a comment above a loss that is a sum (DDP averages gradients over the ranks: they are 1 / W of what they were),
    above training figures that are printed or logged, and above a random split without a seed.

    ## Why
    What to do depends on what the owner wants: no code is right for all.

    ## Safety
    Nothing is changed.

    ## References
    docs/idiomatic.md.
    """

    code = "DDP710"
    name = "idiomatic-remarks"
    nodes = ("BaseStatement",)
    examples = (
        Rewrites(
            before="""
                from torch import nn
                net = nn.DataParallel(net)
                criterion = nn.CrossEntropyLoss(reduction="sum")
            """,
            after="""
                from torch import nn
                net = nn.DataParallel(net)
                # dp2ddp: a sum, and DDP averages over the ranks: multiply by the world size for the gradients of before
                criterion = nn.CrossEntropyLoss(reduction="sum")
            """,
        ),
        Untouched("from torch import nn\ncriterion = nn.CrossEntropyLoss()"),
    )

    def find(self, module: Module) -> Iterator[Finding]:
        if not wraps_of(module.program):
            return
        yield from _sums(module)
        yield from _splits(module)
        if any(loader.is_shared for loader in loaders_of(module.program)):
            yield from _figures(module)


def _sums(module: Module) -> Iterator[Finding]:
    text = "a sum, and DDP averages over the ranks: multiply by the world size for the gradients of before"
    for call in module.calls:
        given = call.keyword("reduction")
        is_sum = given is not None and isinstance(given.value, ast.Constant) and given.value.value == "sum"
        if is_sum or call.method == "sum" and _is_differentiated(module, call):
            yield remark(module.statement(call.node), text)


def _is_differentiated(module: Module, call: Call) -> bool:
    """`loss = (...).sum()` and then `loss.backward()`, or both at once: the sum is the outermost call."""
    parent = module.parents[call.node]
    if isinstance(parent, ast.Attribute):
        return parent.attr == "backward"
    if not isinstance(parent, ast.Assign) or not isinstance(parent.targets[0], ast.Name):
        return False
    name, scope = parent.targets[0].id, module.scope_of[parent.targets[0]]
    owners = (each.node.func.value for each in module.calls if each.method == "backward")  # type: ignore[attr-defined]
    return any(
        isinstance(each, ast.Name) and each.id == name and module.scope_of[each] is scope for each in owners
    )


def is_seeded(program: Program) -> bool:
    """Whether the program sets a seed anywhere."""
    return any(call.name in SEEDS for _, call in calls_in(program))


def _splits(module: Module) -> Iterator[Finding]:
    seeded = is_seeded(module.program)
    for call in module.calls:
        if call.name == SPLIT and not seeded and call.argument(2, "generator") is None:
            text = "without a seed each rank splits otherwise, and tests on what others train: set one"
            yield remark(module.statement(call.node), text)


def _figures(module: Module) -> Iterator[Finding]:
    """One comment a function, above the first line that shows a figure of training."""
    functions: set[ast.AST | None] = set()
    for call in module.calls:
        word = last_word(call.node.func)
        if word not in ("print", "info", "add_scalar", "log", "set_postfix", "set_description"):
            continue
        function, loop = module.function_around(call.node), _loop_before(module, call.node)
        is_figure = any(
            isinstance(each, ast.Name) and "loss" in each.id.lower() for each in ast.walk(call.node)
        )
        if function not in functions and loop is not None and is_figure:
            functions.add(function)
            yield remark(module.statement(call.node), FIGURES)


def _loop_before(module: Module, node: ast.AST) -> ast.AST | None:
    """The loop that trains in the same function, in which a line stands or which it follows."""
    function = module.function_around(node)
    loops = (each for each in module.nodes(*LOOPS) if module.function_around(each) is function)
    shared = {
        loop.node
        for loader in loaders_of(module.program)
        if loader.is_shared
        for loop in loader.loops
        if loop.trains
    }
    before = [
        each
        for each in loops
        if each in shared and each.lineno < node.lineno and trains(module, each)  # type: ignore[attr-defined]
    ]
    return before[-1] if before else None
