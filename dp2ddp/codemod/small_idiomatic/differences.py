"""What is no longer the same in the idiomatic style, with numbers where the text tells them, and what stays.

Each difference names the causes (docs/causes.md) that `verify` may find behind it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.small_idiomatic.ddp710_idiomatic_remarks import is_seeded
from dp2ddp.codemod.small_idiomatic.loaders import Loader, loaders_of
from dp2ddp.codemod.small_idiomatic.looking import last_word
from dp2ddp.codemod.small_idiomatic.models import wraps_of

DROPOUTS = ("Dropout", "dropout", "RReLU", "rrelu", "gumbel_softmax", "DropPath")
NORMS = ("BatchNorm", "batch_norm", "InstanceNorm")
DRAWS = (
    "rand",
    "randn",
    "rand_like",
    "randn_like",
    "randint",
    "randperm",
    "normal",
    "uniform",
    "bernoulli",
    "beta",
)
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
    return tuple(dict.fromkeys(_differences(program)))


def _differences(program: Program) -> Iterator[StyleDifference]:
    loaders = [loader for loader in loaders_of(program) if loader.trains]
    for loader in loaders:
        if loader.is_shared:
            yield from _of_loader(loader)
    if not loaders or not all(loader.is_shared for loader in loaders):
        text = "every rank trains on batches that are not shared out (comments say where): nothing is faster, and "
        text += "where ranks draw apart, the batch is W times as large"
        yield StyleDifference(
            "whole batches", text, ("other-order", "repeated-rows", "batch-size"), certain=False
        )
    causes: tuple[str, ...]
    norms, drops, foreign = _named(program, NORMS), _named(program, DROPOUTS), _has_foreign_model(program)
    if norms or foreign:
        text = "BatchNorm sees a rank's rows together, which are others than a replica's (as many)"
        causes = ("batchnorm-rows", "chunks-otherwise", "buffers-of-another-rank", "other-random-numbers")
        yield StyleDifference("batch norm", text, causes, certain=norms)
    if drops or foreign:
        text = "what the model draws falls on other rows than in a replica"
        causes = ("chunks-otherwise", "other-random-numbers", "batchnorm-rows")
        yield StyleDifference("dropout", text, causes, certain=drops)
    if _named(program, DRAWS):
        how = "draws the same numbers, for other samples" if is_seeded(program) else "has numbers of its own"
        text = f"what the script draws, each rank draws for itself: it {how}"
        causes = ("other-inputs", "repeated-draws", "other-random-numbers", "other-computation")
        yield StyleDifference("random numbers", text, causes, certain=False)
    text = "losses and hits of training that are printed, logged or saved are rank 0's: of 1/W of the samples"
    causes = ("local-numbers", "other-output", "local-counts", "mean-of-means")
    yield StyleDifference("training figures", text, causes, certain=False)


def _of_loader(loader: Loader) -> Iterator[StyleDifference]:
    size = loader.argument("batch_size")
    assert size is not None
    what = loader.module.text(size)
    text = f"where {what} is no multiple of the number of ranks W, batches are smaller: W * ({what} // W) samples"
    causes: tuple[str, ...] = ("batch-size", "missing-rows", "other-order", "more-steps")
    yield StyleDifference("batch size", text, causes, certain=False)
    gone = "are left out" if loader.argument("drop_last") is not None else "come twice"
    text = f"where the samples are no multiple of W, up to W - 1 of them {gone} in each epoch"
    causes = ("padded-rows", "repeated-rows", "missing-rows", "batch-size", "other-order")
    yield StyleDifference("last batch", text, causes, certain=False)
    if loader.shuffles:
        text = "other samples make up each batch: DistributedSampler shuffles by its own generator (seed 0 + epoch)"
        causes = ("other-order", "other-inputs", "missing-samples")
        certain = isinstance(loader.argument("shuffle"), ast.Constant)
        yield StyleDifference("order of samples", text, causes, certain=certain)


def _named(program: Program, words: Iterable[str]) -> bool:
    """Whether a function or layer of such a name is called anywhere."""
    names = (
        str(call.name or last_word(call.node.func)).rpartition(".")[2]
        for module in program.modules
        for call in module.calls
    )
    return any(name.startswith(tuple(words)) for name in names)


def _has_foreign_model(program: Program) -> bool:
    """Whether the wrapped model may have layers that no file of the program names."""
    return any((call.name or "").startswith(LIBRARIES) for module in program.modules for call in module.calls)


def find_kept(program: Program) -> tuple[str, ...]:
    """What stays as DataParallel had it, which a reader may wonder about."""
    return tuple(dict.fromkeys(_kept(program)))


def _kept(program: Program) -> Iterator[str]:
    for loader in loaders_of(program):
        size = loader.argument("batch_size")
        if loader.is_shared and size is not None:
            yield f"a step takes {loader.module.text(size)} samples, 1/W of them on each of W ranks"
        elif loader.loops and not loader.trains:
            yield "evaluation: every rank goes through all samples, so figures stay, and all ranks decide alike by them"
    if wraps_of(program):
        yield "checkpoints: the same keys (`module.`), written by rank 0"
