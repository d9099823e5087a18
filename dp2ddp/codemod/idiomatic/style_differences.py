"""What is no longer the same in the idiomatic style, with numbers where the text tells them, and what stays.

Each difference names the causes (docs/causes.md) that `verify` may find behind it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dp2ddp.codemod.idiomatic.deciding_figures import deciding_figures, shown_figures, swallowing
from dp2ddp.codemod.idiomatic.draws import (
    augments,
    drawn_in_loops,
    draws_unseeded,
    is_seeded,
    unseeded_orders,
)
from dp2ddp.codemod.idiomatic.loaders import FoundLoader, loaders_of
from dp2ddp.codemod.idiomatic.looking import calls_in, last_word
from dp2ddp.codemod.idiomatic.losses import Mean, losses_of, sums
from dp2ddp.codemod.idiomatic.models import wraps_of
from dp2ddp.codemod.idiomatic.sizes import number_of, samples_of
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.wraps import find_wraps, largest_count

DROPOUTS = ("Dropout", "dropout", "RReLU", "rrelu", "gumbel_softmax", "DropPath")
NORMS = ("BatchNorm", "batch_norm", "InstanceNorm")
LIBRARIES = ("torchvision.models.", "timm.", "transformers.", "efficientnet_pytorch.", "torch.hub.")


@dataclass(frozen=True)
class StyleDifference:
    """One thing that is no longer as DataParallel had it, or that is not so for every number of ranks."""

    name: str
    text: str
    causes: tuple[str, ...]  # codes of docs/causes.md
    certain: bool = True  # False: it depends on what the text does not tell


def find_differences(program: Program) -> tuple[StyleDifference, ...]:
    """From how DataParallel trains: in the order of cause and effect."""
    groups = (_of_data(program), _of_draws(program), _of_losses(program), _of_figures(program))
    return tuple(dict.fromkeys(difference for each in groups for difference in each))


# --- data


def _of_data(program: Program) -> Iterator[StyleDifference]:
    loaders = [loader for loader in loaders_of(program) if loader.trains]
    shared = [loader for loader in loaders if loader.is_shared]
    for loader in shared:
        yield from _of_loader(loader)
    if not loaders or len(shared) < len(loaders):
        text = (
            "every rank trains on batches that are not shared out (comments say where): nothing is faster, and where "
            "ranks draw apart, the batch is W times as large"
        )
        causes = (
            "other-order",
            "repeated-rows",
            "padded-rows",
            "batch-size",
            "batchnorm-rows",
            "other-random-numbers",
        )
        yield StyleDifference(
            "whole batches", text, (*causes, "local-numbers", "other-output"), certain=False
        )
    if any(not loader.shuffles for loader in shared):
        yield from _of_layers(program)
    if augments(program):
        text = f"samples are augmented otherwise: each rank draws {_numbers(program)}"
        yield StyleDifference(
            "augmentation", text, ("repeated-draws", "other-inputs", "other-order"), certain=False
        )


def _of_loader(loader: FoundLoader) -> Iterator[StyleDifference]:
    world = largest_count(find_wraps(loader.module.program))
    yield from _of_size(loader, world)
    yield from _of_last_batch(loader, world)
    if loader.shuffles:
        text = "other samples make up each batch: DistributedSampler shuffles by its own generator (seed 0 + epoch)"
        certain = isinstance(loader.argument("shuffle"), ast.Constant)
        causes = ("other-order", "other-inputs", "missing-samples", "batchnorm-rows")
        yield StyleDifference("order of samples", text, causes, certain=certain)


def _of_size(loader: FoundLoader, world: int | None) -> Iterator[StyleDifference]:
    size = loader.argument("batch_size")
    assert size is not None
    batch, what = number_of(loader.module, size), loader.module.text(size)
    causes = ("batch-size", "missing-rows", "other-order", "more-steps")
    if not world or not batch:
        text = f"where {what} is no multiple of the number of ranks W, batches are smaller: W * ({what} // W) samples"
        yield StyleDifference("batch size", text, causes, certain=False)
    elif batch % world:
        each = batch // world
        text = f"batches have {each * world} samples and not {batch}: "
        text += f"{batch} // {world} = {each} on each of {world} ranks"
        yield StyleDifference("batch size", f"{text}; more steps make an epoch", causes)


def _of_last_batch(loader: FoundLoader, world: int | None) -> Iterator[StyleDifference]:
    samples, drop = samples_of(loader.module, loader.argument("dataset")), loader.argument("drop_last")
    drops = drop is not None and not (isinstance(drop, ast.Constant) and not drop.value)
    causes = ("padded-rows", "repeated-rows", "missing-rows", "batch-size", "other-order")
    if not world or samples is None:
        gone = "are left out" if drops else "come twice"
        text = f"where the samples are no multiple of W, up to W - 1 of them {gone} in each epoch"
        yield StyleDifference("last batch", text, causes, certain=False)
    elif rest := samples % world:
        text = f"{world - rest} of {samples} samples come twice in each epoch"
        if drops:
            text = f"{rest} of {samples} samples of each epoch are left out"
        yield StyleDifference("last batch", f"{text}, so that {world} ranks have as many", causes)


def _of_layers(program: Program) -> Iterator[StyleDifference]:
    """Without shuffling: batches are the same, and rows are not."""
    norms, drops, foreign = _named(program, NORMS), _named(program, DROPOUTS), _has_foreign_model(program)
    if norms or foreign:
        text = "BatchNorm sees a rank's rows together: every W-th of a batch, and not a replica's chunk (as many)"
        causes: tuple[str, ...] = (
            "batchnorm-rows",
            "chunks-otherwise",
            "buffers-of-another-rank",
            "other-random-numbers",
        )
        yield StyleDifference("batch norm", text, causes, certain=norms)
    if drops or foreign:
        text = "what the model draws falls on other rows: rank r has every W-th of a batch, and not a replica's chunk"
        causes = ("chunks-otherwise", "other-random-numbers", "batchnorm-rows")
        yield StyleDifference("dropout", text, causes, certain=drops)


# --- draws, losses, figures


def _of_draws(program: Program) -> Iterator[StyleDifference]:
    call = drawn_in_loops(program)
    if call is not None:
        text = f"what the training loop draws for a batch ({ast.unparse(call.node.func)}), each rank draws for its rows"
        causes = ("other-inputs", "repeated-draws", "other-random-numbers", "other-computation")
        yield StyleDifference("random numbers of the loop", text, causes)
    if draws_unseeded(program) or any(any(True for _ in unseeded_orders(each)) for each in program.modules):
        text = "without a seed, what the script draws is another on each rank: set one for all of them"
        causes = ("other-inputs", "other-order", "missing-samples", "repeated-rows")
        yield StyleDifference("no seed", text, causes, certain=False)


def _numbers(program: Program) -> str:
    return "the same numbers for other samples" if is_seeded(program) else "numbers of its own"


def _of_losses(program: Program) -> Iterator[StyleDifference]:
    kinds = {kind for _, _, kind in losses_of(program)}
    text, causes = "", ("local-counts", "mean-of-means")
    if Mean.OF_PAIRS in kinds:
        text = "rows are compared with each other in the loss, and a rank has 1/W of them"
    elif Mean.WEIGHTED in kinds:
        text = "the mean over what counts (class weights, ignored targets) is each rank's, and then the mean of these"
    elif any(any(True for _ in sums(module)) for module in program.modules):
        text = (
            "of a sum over rows, DDP makes the mean of the ranks' sums: gradients are 1/W of what they were"
        )
    if text:
        yield StyleDifference("loss", text, (*causes, "gradient-scale"))
    elif Mean.UNKNOWN in kinds:
        text = "where the loss is no mean over rows (a sum, pairs of rows, a mean of some), it is another one"
        yield StyleDifference("loss", text, causes, certain=False)


def _of_figures(program: Program) -> Iterator[StyleDifference]:
    if any(any(True for _ in shown_figures(module)) for module in program.modules):
        text = "losses and hits of training that are printed, logged or saved are rank 0's: of 1/W of the samples"
        causes: tuple[str, ...] = ("local-numbers", "other-output", "local-counts", "mean-of-means")
        yield StyleDifference("training figures", text, causes)
    if any(any(True for _ in deciding_figures(module)) for module in program.modules):
        text = "what hangs on losses of training (schedules, stopping), each rank decides by its own: ranks drift apart"
        yield StyleDifference(
            "decisions", text, ("local-numbers", "other-computation", "more-steps"), certain=False
        )
    if any(any(True for _ in swallowing(module)) for module in program.modules):
        text = "a rank that swallows an error in a step leaves the others without its gradients: ranks drift apart"
        yield StyleDifference(
            "swallowed errors", text, ("missing-rows", "more-steps", "other-computation"), certain=False
        )


def _named(program: Program, words: Iterable[str]) -> bool:
    """Whether a function or layer of such a name is called anywhere."""
    names = (str(call.name or last_word(call.node.func)).rpartition(".")[2] for _, call in calls_in(program))
    return any(name.startswith(tuple(words)) for name in names)


def _has_foreign_model(program: Program) -> bool:
    """Whether the wrapped model may have layers that no file of the program names."""
    return any((call.name or "").startswith(LIBRARIES) for _, call in calls_in(program))


# --- what stays


def find_kept(program: Program) -> tuple[str, ...]:
    """What stays as DataParallel had it, which a reader may wonder about."""
    return tuple(dict.fromkeys(_kept(program)))


def _kept(program: Program) -> Iterator[str]:
    world = largest_count(find_wraps(program))
    for loader in loaders_of(program):
        size = loader.argument("batch_size")
        if loader.is_shared and size is not None:
            batch = number_of(loader.module, size)
            if world and batch and not batch % world:
                yield f"a step takes {batch} samples: {batch // world} on each of {world} ranks"
            else:
                yield f"a step takes {loader.module.text(size)} samples, 1/W of them on each of W ranks"
        elif loader.loops and not loader.trains:
            yield "evaluation: every rank goes through all samples, so figures stay, and all ranks decide alike by them"
    if any(loader.is_shared for loader in loaders_of(program)):
        yield "learning rates and their schedule, as the batch of all ranks together is what it was"
    if wraps_of(program) and any(does(call.name) is Does.SAVE for _, call in calls_in(program)):
        yield "checkpoints: the same keys (`module.`), written by rank 0"
