"""What is no longer the same in the idiomatic style, with numbers where the text tells them, and what stays.

Each difference names the causes (docs/causes.md) that `verify` may find behind it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import partial

from dp2ddp.codemod.idiomatic.style_differences import StyleDifference
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.small_idiomatic.ddp710_idiomatic_remarks import SEEDS
from dp2ddp.codemod.small_idiomatic.loaders import Loader, loaders_of
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


def find_differences(program: Program) -> tuple[StyleDifference, ...]:
    """From how DataParallel trains: in the order of cause and effect."""
    return tuple(dict.fromkeys(_differences(program)))


def _differences(program: Program) -> Iterator[StyleDifference]:
    shared = [loader for loader in loaders_of(program) if loader.is_shared]
    for loader in shared:
        yield from _of_batches(loader)
        yield from _of_order(loader)
    if any(not loader.is_shared and loader.trains for loader in loaders_of(program)) or not shared:
        yield StyleDifference(
            "whole batches",
            "every rank trains on batches that are not shared out (comments say where): nothing is faster, and "
            "where ranks draw apart, the batch is W times as large",
            ("other-order", "repeated-rows", "batch-size"),
            certain=False,
        )
    norms, drops, foreign = _named(program, NORMS), _named(program, DROPOUTS), _has_foreign_model(program)
    if norms or foreign:
        yield StyleDifference(
            "batch norm",
            "BatchNorm sees a rank's rows together, which are others than a replica's (as many)",
            ("batchnorm-rows", "chunks-otherwise", "buffers-of-another-rank", "other-random-numbers"),
            certain=norms,
        )
    if drops or foreign:
        yield StyleDifference(
            "dropout",
            "what the model draws falls on other rows than in a replica",
            ("chunks-otherwise", "other-random-numbers", "batchnorm-rows"),
            certain=drops,
        )
    seeded = any(call.name in SEEDS for module in program.modules for call in module.calls)
    if _named(program, DRAWS):
        how = "draws the same numbers, for other samples" if seeded else "has random numbers of its own"
        yield StyleDifference(
            "random numbers",
            f"what the script draws, each rank draws for itself: it {how}",
            ("other-inputs", "repeated-draws", "other-random-numbers", "other-computation"),
            certain=False,
        )
    yield StyleDifference(
        "training figures",
        "losses and hits of training that are printed, logged or saved are rank 0's: of 1/W of the samples",
        ("local-numbers", "other-output", "local-counts", "mean-of-means"),
        certain=False,
    )


def _of_batches(loader: Loader) -> Iterator[StyleDifference]:
    size, text = loader.argument("batch_size"), partial(loader.module.text)
    assert size is not None
    what = text(size)
    yield StyleDifference(
        "batch size",
        f"where {what} is no multiple of the number of ranks W, batches are smaller: W * ({what} // W) samples",
        ("batch-size", "missing-rows", "other-order", "more-steps"),
        certain=False,
    )
    drop = loader.argument("drop_last")
    gone = "are left out" if drop is not None else "come twice"
    yield StyleDifference(
        "last batch",
        f"where the samples are no multiple of W, up to W - 1 of them {gone} in each epoch",
        ("padded-rows", "repeated-rows", "missing-rows", "batch-size", "other-order"),
        certain=False,
    )


def _of_order(loader: Loader) -> Iterator[StyleDifference]:
    if loader.shuffles:
        yield StyleDifference(
            "order of samples",
            "other samples make up each batch: DistributedSampler shuffles by a generator of its own (seed 0 + epoch)",
            ("other-order", "other-inputs", "missing-samples"),
            certain=isinstance(loader.argument("shuffle"), ast.Constant),
        )


def _named(program: Program, words: Iterable[str]) -> bool:
    """Whether a function or layer of such a name is called anywhere."""
    names = (
        (call.name or call.method or getattr(call.node.func, "id", "")).rpartition(".")[2]
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
