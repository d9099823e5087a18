"""What is no longer the same in the idiomatic style, and what stays, by local looks: `verify` measures it.

Each difference names the causes (dp2ddp/comparison/causes/entries) that `verify` may find behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.idiomatic.ddp710_idiomatic_remarks import OF_LOSS, REMARKS
from dp2ddp.codemod.idiomatic.loaders import loaders_of, loops_of
from dp2ddp.codemod.idiomatic.looking import calls_in, inside
from dp2ddp.codemod.idiomatic.models import unseeded
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.methods import MethodDoes, method
from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.model.nodes import last_name
from dp2ddp.codemod.model.program import Program

WEIGHTS = ("weight", "ignore_index", "pos_weight")


@dataclass(frozen=True)
class StyleDifference:
    """One thing that is no longer as DataParallel had it, or that is not so for every number of ranks."""

    name: str
    text: str
    causes: tuple[str, ...]  # codes of causes
    certain: bool = True  # False: it depends on what the text does not tell


SIZE = StyleDifference(
    "batch size",
    "where a batch size B is no multiple of the number of ranks W, batches are smaller: W * (B // W) samples",
    ("batch-size", "batch-division", "missing-rows", "other-order", "more-steps"),
    certain=False,
)
OF_LIBRARY = StyleDifference(
    "batch size",
    "each rank takes as many rows as DataParallel's GPUs shared: divide it by the number of ranks",
    ("batch-size", "other-order", "more-steps"),
)
LAST = StyleDifference(
    "last batch",
    "where the samples are no multiple of W, up to W - 1 of them come twice in an epoch (drop_last: are left out)",
    ("padded-rows", "repeated-rows", "missing-rows", "batch-size", "other-order"),
    certain=False,
)
ORDER = StyleDifference(
    "order of samples",
    "other samples make up each batch: DistributedSampler shuffles by its own generator (seed 0 + epoch)",
    ("other-order", "other-inputs", "missing-samples", "batchnorm-rows"),
)
WHOLE = StyleDifference(
    "whole batches",
    "every rank trains on batches that are not shared out (comments say where): nothing is faster, and where ranks "
    "draw apart, the batch is W times as large",
    (
        "other-order",
        "repeated-rows",
        "padded-rows",
        "batch-size",
        "batchnorm-rows",
        "local-numbers",
        "other-output",
    ),
    certain=False,
)
UNSEEDED = StyleDifference(
    "no seed",
    "without a seed, what the script draws (splits, orders) is another on each rank: set one for all of them",
    ("other-inputs", "other-order", "missing-samples", "repeated-rows"),
    certain=False,
)
DRAWS = StyleDifference(
    "random numbers of the loop",
    "what the training loop draws for a batch, each rank draws for its rows",
    ("other-inputs", "repeated-draws", "other-random-numbers", "other-computation"),
)
WEIGHTED = StyleDifference(
    "loss",
    "the mean over what counts (class weights, ignored targets) is each rank's, and then the mean of these",
    OF_LOSS,
)
OF_NAMES = {  # by how the name of what is called begins
    ("BatchNorm", "batch_norm", "InstanceNorm"): StyleDifference(
        "batch norm",
        "BatchNorm sees a rank's rows together, and not a replica's chunk (as many)",
        ("batchnorm-rows", "chunks-otherwise", "buffers-of-another-rank", "other-random-numbers"),
    ),
    ("Dropout", "dropout", "RReLU", "rrelu", "gumbel_softmax", "DropPath"): StyleDifference(
        "dropout",
        "what the model draws falls on other rows: those of a rank, and not a replica's chunk",
        ("chunks-otherwise", "other-random-numbers", "batchnorm-rows"),
    ),
    ("Random", "ColorJitter", "AutoAugment", "RandAugment"): StyleDifference(
        "augmentation",
        "samples are augmented otherwise: each rank draws for its own (with one seed, the same numbers)",
        ("repeated-draws", "other-inputs", "other-order"),
        certain=False,
    ),
}


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
    loops = [loop for loop in loops_of(program) if loop.trains]
    drawn = [call for loop in loops for call in inside(loop.module, loop.node) if _draws(call)]
    for _, call in calls_in(program):
        word = last_name(call.node.func)
        yield from (each for heads, each in OF_NAMES.items() if word.startswith(heads))
        if word.lower().endswith(("loss", "entropy")) and any(map(call.keyword, WEIGHTS)):
            yield WEIGHTED
    if drawn:
        yield DRAWS
    if unseeded(program):
        yield UNSEEDED


def _draws(call: Call) -> bool:
    return does(call.name) is Does.DRAW or method(call.method) is MethodDoes.DRAW


def _of_remarks(program: Program) -> Iterator[StyleDifference]:
    for each in REMARKS:
        if each.name and any(any(True for _ in each.look(module)) for module in program.modules):
            yield StyleDifference(each.name, each.text, each.causes, each.certain)


def find_kept(program: Program) -> tuple[str, ...]:
    """What stays as DataParallel had it, which a reader may wonder about."""
    kept = []
    if any(loader.is_shared for loader in loaders_of(program)):
        kept += [
            "the samples of a step, 1/W of them on each of W ranks; so learning rates and their schedule"
        ]
    if any(not each.trains for through in loops_of(program).values() for each in through):
        kept += ["evaluation: every rank goes through all samples, and all ranks decide alike by its figures"]
    if any(does(call.name) is Does.SAVE for _, call in calls_in(program)):
        kept += ["checkpoints: the same keys (`module.`), written by rank 0"]
    return tuple(kept)
