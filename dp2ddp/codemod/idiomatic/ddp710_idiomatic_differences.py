"""Say what is no longer the same: in comments where it stands, and in the report, which `verify` measures.

Puts a comment above a loss that is a sum (DDP averages gradients over the ranks: they are 1 / W of what they were)
or that compares rows, above training figures that are shown or decide something, errors that are swallowed in a step,
and clocks that name files. Where a loop that trains goes on or ends by what a batch holds (`if torch.isnan(loss):
continue`), the ranks add up what each finds, and do what one has to do.

What to do depends on what the owner wants: no code is right for all. A rank that skips a backward pass by itself
leaves the others waiting for its gradients.

The looks are local, and by names: a comment may be missing, or be needless.

docs/idiomatic.md.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from dp2ddp.codemod.edits import Finding, InsertBefore, Replace
from dp2ddp.codemod.idiomatic.ddp702_idiomatic_wrap import unseeded, wraps_of
from dp2ddp.codemod.idiomatic.ddp704_idiomatic_training_loader import EVALUATES, loaders_of, loops_of
from dp2ddp.codemod.idiomatic.looking import trains, words_in
from dp2ddp.codemod.idiomatic.new_names import remark, words_of
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.methods import MethodDoes, method
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import LOOPS, inside, last_name
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.rule import Rule, Untouched, diff
from dp2ddp.codemod.rules.ddp506_own_clock import OwnClock

WEIGHTS = ("weight", "ignore_index", "pos_weight")
FIGURE = re.compile(r"loss(?!_f)|correct|hits|accuracy|(^|_)accs?\d?$", re.IGNORECASE)
SHOWING = ("print", "info", "add_scalar", "log", "set_postfix", "set_description", "write")
SKIPPED = "all ranks skip a batch, or none"
OF_A_BATCH = re.compile(rf"{FIGURE.pattern}|^(isnan|isinf|isfinite|item|any|all|len)$", re.IGNORECASE)


class Differences(Rule):
    examples = (
        diff("""
              import torch
              import torch.distributed as dist
              from torch import nn
              net = nn.DataParallel(net.cuda())
            + # dp2ddp: a sum, and DDP averages over the ranks: multiply by the world size for the gradients of before
              criterion = nn.CrossEntropyLoss(reduction="sum")
              for x, y in batches:
                  loss = criterion(net(x), y)
            -     if torch.isnan(loss):
            +     skips = torch.tensor(float(torch.isnan(loss)), device="cuda")
            +     dist.all_reduce(skips)
            +     if skips > 0:
                      continue
                  loss.backward()
        """),
        Untouched("from torch import nn\ncriterion = nn.CrossEntropyLoss()"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for look, each in REMARKS.items() if wraps_of(module.program) else ():
            for statement in dict.fromkeys(map(module.statement, look(module))):
                yield remark(module, statement, each.text)
        words = words_of(module)
        for node in skipping(module):
            code = words.code(
                'skips = {torch}.tensor(float({{test}}), device="cuda")\n{dist}.all_reduce(skips)'
            )
            yield InsertBefore(node, code.format(test=module.text(node.test)), SKIPPED, apart=False)
            yield Replace(node.test, "skips > 0", SKIPPED)


@dataclass(frozen=True)
class StyleDifference:
    """One thing that is no longer as DataParallel had it, or that is not so for every number of ranks."""

    name: str
    text: str
    causes: tuple[str, ...]  # codes of causes
    certain: bool = True  # False: it depends on what the text does not tell


def _differs(name: str, causes: str, text: str, certain: bool = True) -> StyleDifference:
    return StyleDifference(name, text, tuple(causes.split()), certain)


_perhaps = partial(_differs, certain=False)
# fmt: off
SIZE = _perhaps("batch size", "batch-size batch-division missing-rows other-order more-steps",
    "where a batch size B is no multiple of the number of ranks W, batches are smaller: W * (B // W) samples")
LAST = _perhaps("last batch", "padded-rows repeated-rows missing-rows batch-size other-order",
    "where the samples are no multiple of W, up to W - 1 of them come twice in an epoch (drop_last: are left out)")
ORDER = _differs("order of samples", "other-order other-inputs missing-samples batchnorm-rows",
    "other samples make up each batch: DistributedSampler shuffles by its own generator (seed 0 + epoch)")
WHOLE = _perhaps("whole batches",
    "other-order repeated-rows padded-rows batch-size batchnorm-rows local-numbers other-output",
    "every rank trains on batches that are not shared out (comments say where): nothing is faster, and where ranks "
    "draw apart, the batch is W times as large")
UNSEEDED = _perhaps("no seed", "other-inputs other-order missing-samples repeated-rows",
    "without a seed, what the script draws (splits, orders) is another on each rank: set one for all of them")
DRAWS = _differs("random numbers of the loop",
    "other-inputs repeated-draws other-random-numbers other-computation",
    "what the training loop draws for a batch, each rank draws for its rows")
OF_LOSS = "local-counts mean-of-means gradient-scale"
WEIGHTED = _differs("loss", OF_LOSS,
    "the mean over what counts (class weights, ignored targets) is each rank's, and then the mean of these")
OF_NAMES = {  # by how the name of what is called begins
    ("BatchNorm", "batch_norm", "InstanceNorm"): _differs("batch norm",
        "batchnorm-rows chunks-otherwise buffers-of-another-rank other-random-numbers",
        "BatchNorm sees a rank's rows together, and not a replica's chunk (as many)"),
    ("Dropout", "dropout", "RReLU", "rrelu", "gumbel_softmax", "DropPath"): _differs("dropout",
        "chunks-otherwise other-random-numbers batchnorm-rows",
        "what the model draws falls on other rows: those of a rank, and not a replica's chunk"),
    ("Random", "ColorJitter", "AutoAugment", "RandAugment"): _perhaps("augmentation",
        "repeated-draws other-inputs other-order",
        "samples are augmented otherwise: each rank draws for its own (with one seed, the same numbers)"),
}
# fmt: on


def find_differences(program: Program) -> tuple[StyleDifference, ...]:
    """From how DataParallel trains: in the order of cause and effect."""
    return tuple(dict.fromkeys([*_of_data(program), *_of_calls(program), *_of_remarks(program)]))


def _of_data(program: Program) -> Iterator[StyleDifference]:
    loaders = [loader for loader in loaders_of(program) if loader.trains]
    shared = [loader for loader in loaders if loader.is_shared]
    if shared:
        yield from (SIZE, LAST)
    if any(loader.shuffles for loader in shared):
        yield ORDER
    if not shared or len(shared) < len(loaders):
        yield WHOLE


def _of_calls(program: Program) -> Iterator[StyleDifference]:
    for _, call in program.calls:
        word = last_name(call.node.func)
        yield from (each for heads, each in OF_NAMES.items() if word.startswith(heads))
        if word.lower().endswith(("loss", "entropy")) and any(map(call.keyword, WEIGHTS)):
            yield WEIGHTED
    calls = (call for loop in loops_of(program) if loop.trains for call in loop.module.calls_in(loop.node))
    if any(does(each.name) is Does.DRAW or method(each.method) is MethodDoes.DRAW for each in calls):
        yield DRAWS
    if unseeded(program):
        yield UNSEEDED


def _of_remarks(program: Program) -> Iterator[StyleDifference]:
    for look, each in REMARKS.items():
        if each.name and any(True for module in program.modules for _ in look(module)):
            yield each


def find_kept(program: Program) -> Iterator[str]:
    """What stays as DataParallel had it, which a reader may wonder about."""
    if any(loader.is_shared for loader in loaders_of(program)):
        yield "the samples of a step, 1/W of them on each of W ranks; so learning rates and their schedule"
    if any(not each.trains for through in loops_of(program).values() for each in through):
        yield "evaluation: every rank goes through all samples, and all ranks decide alike by its figures"
    if any(does(call.name) is Does.SAVE for _, call in program.calls):
        yield "checkpoints: the same keys (`module.`), written by rank 0"


# --- where comments stand


def sums(module: Module) -> Iterator[ast.AST]:
    """Losses that are sums, of which DDP makes 1 / W; no `cross_entropy(..., reduction="sum") / n`."""
    losses = [each.node.func.value for each in module.calls if each.method == "backward"]  # type: ignore[attr-defined]
    differentiated = {origin for each in losses for _, origin in module.program.flow.origins(module, each)}
    for call in module.calls:
        given, operation = call.keyword("reduction"), getattr(module.parents[call.node], "op", None)
        is_sum = given is not None and getattr(given.value, "value", "") == "sum"
        if (
            is_sum
            and not isinstance(operation, ast.Div)
            or call.method == "sum"
            and call.node in differentiated
        ):
            yield call.node


def pairs(module: Module) -> Iterator[ast.AST]:
    """`z @ z.t()`, `torch.cdist(a, b)`: rows that are compared with each other, where it is no weight of a layer."""
    for node in module.nodes(ast.BinOp, ast.Call):
        words, called = words_in(node), last_name(getattr(node, "func", None))
        is_product = called in ("mm", "matmul") or isinstance(getattr(node, "op", None), ast.MatMult)
        compares = is_product and words & {"t", "T"} and not words & {"self", "weight"}
        if called in ("cdist", "pdist") or compares:
            yield node


def shown_figures(module: Module) -> Iterator[ast.AST]:
    """The first line of each function that shows a figure of training, where ranks train on shares."""
    if any(each.is_shared for each in loaders_of(module.program)):
        shows = (call.node for call in module.calls if last_name(call.node.func) in SHOWING)
        yield from _first_of_functions(module, (node for node in shows if _is_of_training(module, node)))


def deciding_figures(module: Module) -> Iterator[ast.AST]:
    """`scheduler.step(loss)`, `if loss > 1:`."""
    skips = {*skipping(module)}
    steps = ((call.node, each) for call in module.calls if call.method == "step" for each in call.node.args)
    tests = ((each, each.test) for each in module.nodes(ast.If, ast.IfExp, ast.While))  # type: ignore[attr-defined]
    for node, figure in (*steps, *tests):
        if node not in skips and _is_of_training(module, figure):
            yield node


def _is_of_training(module: Module, node: ast.AST) -> bool:
    """Whether an expression has a figure of training, by its name, in a function with a backward pass."""
    backward = (call.node for call in module.calls if call.method == "backward")
    words = (word for word in words_in(node) if FIGURE.search(word) and not EVALUATES.search(word))
    return any(words) and module.function_around(node) in map(module.function_around, backward)


def skipping(module: Module) -> Iterator[ast.If]:
    """`if torch.isnan(loss): continue`: where a loop that trains goes on or ends by what a batch holds."""
    for node in module.all(ast.If):
        parent, loop = module.parents[node], module.enclosing(node, *LOOPS)
        leaves = isinstance(node.body[-1], (ast.Continue, ast.Break)) and not node.orelse
        is_elif = isinstance(parent, ast.If) and node in parent.orelse
        asks = any(map(OF_A_BATCH.search, words_in(node.test)))
        if leaves and asks and not is_elif and loop is not None and trains(module, loop):
            yield node


def swallowing(module: Module) -> Iterator[ast.AST]:
    """`try:` in a loop, around a backward pass, whose error lets the rank go on."""
    for node in module.all(ast.Try):
        ends = (any(inside(each, ast.Raise)) or words_in(each) & {"exit", "_exit"} for each in node.handlers)
        goes_on = module.enclosing(node, *LOOPS) is not None and not all(ends)
        if goes_on and any(trains(module, each) for each in node.body):
            yield node


def clocks(module: Module) -> Iterator[ast.AST]:
    """The first clock or process number of each function on which more hangs than a line that is shown."""
    return _first_of_functions(module, (each.node for each in OwnClock().look(module)))


def _first_of_functions(module: Module, nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    first: dict[object, ast.AST] = {}
    for node in nodes:
        first.setdefault(module.function_around(node), node)
    return iter(first.values())


# fmt: off
REMARKS: dict[Callable[[Module], Iterator[ast.AST]], StyleDifference] = {
    sums: _differs("loss", OF_LOSS,
        "a sum, and DDP averages over the ranks: multiply by the world size for the gradients of before"),
    pairs: _perhaps("loss", OF_LOSS,
        "a product of matrices: where rows are compared with each other, a rank has 1/W of them (all_gather them?)"),
    shown_figures: _differs("training figures", "local-numbers other-output local-counts mean-of-means",
        "rank 0's figures, of its share of the samples; all_reduce sums and counts to show those of all"),
    deciding_figures: _perhaps("decisions", "local-numbers other-computation more-steps",
        "each rank's own figure: if more than a line hangs on it, dist.all_reduce it, or ranks decide differently"),
    swallowing: _perhaps("swallowed errors", "missing-rows more-steps other-computation",
        "a rank that swallows an error here leaves the others without its gradients: let it raise"),
    clocks: _perhaps("", "", "each rank's own clock, or process: take rank 0's (dist.broadcast_object_list)"),
}
# fmt: on
