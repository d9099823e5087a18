"""What is no longer the same in the idiomatic style, with numbers where the text tells them, and what stays.

Each difference names the causes (docs/causes.md) that `verify` may find behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.draws import draws
from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.facts.script import CallSite, literal
from dp2ddp.codemod.idiomatic.ddp713_idiomatic_unseeded_split import SEEDS, is_seeded
from dp2ddp.codemod.idiomatic.loading import Loading, in_training, read_loaders
from dp2ddp.codemod.idiomatic.local import shows_local
from dp2ddp.codemod.idiomatic.losses import LossKind, read_losses
from dp2ddp.codemod.idiomatic.numbers import number_of, samples_of
from dp2ddp.codemod.launch import world_of
from dp2ddp.codemod.small_idiomatic.differences import StyleDifference

DROPOUTS = ("Dropout", "dropout", "RReLU", "rrelu", "gumbel_softmax", "DropPath")
NORMS = ("BatchNorm", "batch_norm", "InstanceNorm")
LIBRARIES = ("torchvision.models.", "timm.", "transformers.", "efficientnet_pytorch.", "torch.hub.")


@dataclass(frozen=True)
class _Numbers:
    """What is known of one training loader."""

    world: int | None
    batch: int | None
    samples: int | None


def find_differences(facts: Facts) -> tuple[StyleDifference, ...]:
    """From how DataParallel trains: in the order of cause and effect."""
    differences: list[StyleDifference] = []
    for loading in read_loaders(facts):
        if loading.trains:
            differences += _loader_differences(facts, loading)
    differences += _loop_differences(facts)
    differences += _loss_differences(facts)
    differences += _log_differences(facts)
    return tuple(dict.fromkeys(differences))


def _loader_differences(facts: Facts, loading: Loading) -> Iterator[StyleDifference]:
    numbers = _Numbers(
        world_of(facts), number_of(facts, loading.batch_size), samples_of(facts, loading.dataset)
    )
    yield from _batch_differences(numbers)
    yield from _padding_differences(loading, numbers)
    yield from _order_differences(facts, loading)
    yield from _augmentation_differences(facts, loading)


def _batch_differences(numbers: _Numbers) -> Iterator[StyleDifference]:
    world, batch = numbers.world, numbers.batch
    if world and batch:
        if batch % world:
            each = batch // world
            yield StyleDifference(
                "batch size",
                f"batches have {each * world} samples and not {batch}: {batch} // {world} = {each} on each of {world} "
                "ranks; more steps make an epoch",
                ("batch-size", "missing-rows", "other-order", "more-steps"),
            )
        return
    size = f"{batch}" if batch else "the batch size"
    yield StyleDifference(
        "batch size",
        f"where {size} is no multiple of the number of ranks W, batches are smaller: W * ({size} // W) samples",
        ("batch-size", "missing-rows", "other-order", "more-steps"),
        certain=False,
    )


def _padding_differences(loading: Loading, numbers: _Numbers) -> Iterator[StyleDifference]:
    world, samples = numbers.world, numbers.samples
    drops = loading.drop_last is not None and literal(loading.drop_last) is not False
    if world and samples is not None:
        rest = samples % world
        if rest == 0:
            return
        if drops:
            text = (
                f"{rest} of {samples} samples of each epoch are left out, so that {world} ranks have as many"
            )
        else:
            text = f"{world - rest} of {samples} samples come twice in each epoch, so that {world} ranks have as many"
        yield StyleDifference(
            "last batch", text, ("padded-rows", "repeated-rows", "missing-rows", "batch-size", "other-order")
        )
        return
    what = "are left out" if drops else "come twice"
    of = f"{samples} samples" if samples is not None else "the samples"
    yield StyleDifference(
        "last batch",
        f"where {of} are no multiple of W, up to W - 1 of them {what} in each epoch, so that ranks have "
        "as many",
        ("padded-rows", "repeated-rows", "missing-rows", "batch-size", "other-order"),
        certain=False,
    )


def _order_differences(facts: Facts, loading: Loading) -> Iterator[StyleDifference]:
    if loading.shuffles:
        yield StyleDifference(
            "order of samples",
            "other samples make up each batch: DistributedSampler shuffles by a generator of its own (seed 0 + epoch), "
            "not by the script's",
            ("other-order", "other-inputs", "missing-samples"),
            certain=literal(loading.shuffle) is True,
        )
        return
    norms, drops = _named(facts, NORMS), _named(facts, DROPOUTS) or _draws_in_forward(facts)
    unknown = _has_foreign_model(facts)
    if norms or unknown:
        yield StyleDifference(
            "batch norm",
            "batches are the same, but rank r has every W-th row of one, and DataParallel's replica a chunk: BatchNorm "
            "sees other rows together (as many as before)",
            ("batchnorm-rows", "chunks-otherwise", "buffers-of-another-rank", "other-random-numbers"),
            certain=norms,
        )
    if drops or unknown:
        yield StyleDifference(
            "dropout",
            "batches are the same, but rank r has every W-th row of one, and DataParallel's replica a chunk: what the "
            "model draws falls on other rows",
            ("chunks-otherwise", "other-random-numbers", "batchnorm-rows"),
            certain=drops,
        )


def _augmentation_differences(facts: Facts, loading: Loading) -> Iterator[StyleDifference]:
    stopper = next(
        (loader.stopper for loader in facts.loaders if loader.call.node is loading.call.node), None
    )
    others = (
        loader.stopper
        for file in facts.files
        for loader in file.loaders
        if loader.call.node is loading.call.node
    )
    stopper = stopper or next(others, None)
    if stopper is None or "draw" not in stopper:
        return
    seeded = any(is_seeded(facts, names) for names in SEEDS.values())
    how = (
        "the seed is the same on all ranks, so each draws the same numbers for other samples"
        if seeded
        else "each rank has random numbers of its own"
    )
    yield StyleDifference(
        "augmentation",
        f"samples are augmented otherwise, if they are at all: {how}",
        ("repeated-draws", "other-inputs", "other-order"),
        certain=False,
    )


def _loop_differences(facts: Facts) -> Iterator[StyleDifference]:
    """What is drawn for a batch where it is trained on: mixing, noise, scaling."""
    draw = next((call for call in facts.program.calls if _draws_for_batch(facts, call)), None)
    if draw is not None:
        name = draw.name or facts.program.text_of(draw.node.func)
        yield StyleDifference(
            "random numbers of the loop",
            f"what the training loop draws for a batch ({name}), each rank draws for its own rows",
            ("other-inputs", "repeated-draws", "other-random-numbers", "other-computation"),
        )


def _draws_for_batch(facts: Facts, call: CallSite) -> bool:
    if not draws(call.name or "", call.method or "") or facts.places.of(call.node) is not ExecutionPlace.MAIN:
        return False
    return in_training(facts, call.node)


def _loss_differences(facts: Facts) -> Iterator[StyleDifference]:
    if any(loss.kind is LossKind.WEIGHTED for loss in read_losses(facts)):
        yield StyleDifference(
            "loss",
            "the mean over what counts (class weights, ignored targets) is taken on each rank, and then the mean of "
            "these: rows weigh more on a rank that has fewer of them",
            ("local-counts", "mean-of-means"),
        )


def _log_differences(facts: Facts) -> Iterator[StyleDifference]:
    if shows_local(facts) is not None:
        yield StyleDifference(
            "training figures",
            "losses and hits of training that are printed, logged or saved are rank 0's: of 1/W of the samples",
            ("local-numbers", "other-output"),
        )


def _named(facts: Facts, words: tuple[str, ...]) -> bool:
    """Whether a layer of such a name is made or called anywhere in the project."""
    return any(
        any(word in (call.name or facts.program.text_of(call.node.func)).rpartition(".")[2] for word in words)
        for call in facts.program.calls
    )


def _draws_in_forward(facts: Facts) -> bool:
    return any(
        draws(call.name or "", call.method or "") and facts.places.of(call.node) is ExecutionPlace.FORWARD
        for call in facts.program.calls
    )


def _has_foreign_model(facts: Facts) -> bool:
    """Whether the wrapped model may have layers that no file of the project names."""
    return any((call.name or "").startswith(LIBRARIES) for call in facts.program.calls)


def find_kept(facts: Facts) -> tuple[str, ...]:
    """What stays as DataParallel had it, which a reader may wonder about."""
    return tuple(_kept(facts))


def _kept(facts: Facts) -> Iterator[str]:
    world = world_of(facts)
    for loading in read_loaders(facts):
        batch = number_of(facts, loading.batch_size)
        if loading.trains and batch and world and batch % world == 0:
            yield f"a step takes {batch} samples: {batch // world} on each of {world} ranks"
        elif loading.trains and batch:
            yield f"a step takes {batch} samples: {batch} // W on each of W ranks"
    yield "learning rates and their schedule, as the batch of all ranks together is what it was"
    if _named(facts, NORMS):
        yield "BatchNorm sees one rank's rows, as one replica's before; averages are rank 0's, as replica 0's were"
    if any(loading.others for loading in read_loaders(facts) if not loading.trains):
        yield "evaluation: every rank goes through all samples, so figures stay, and all ranks decide alike by them"
    if any(call.name == "torch.save" for call in facts.program.calls):
        yield "checkpoints: the same keys (`module.`), written by rank 0"
