"""Which rows went through the model in the step: by 64 bits of each row's values, and by the samplers' "
"indices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from dp2ddp.trace.records import Step
from dp2ddp.verify.causes.cause import Found, found
from dp2ddp.verify.causes.evidence import Evidence, Scene
from dp2ddp.verify.causes.words import names_text, sum_text

Rows = tuple[int, ...]  # digests


@dataclass(frozen=True)
class Batch:
    """What one forward call of a step was given: DataParallel's rows, and those of each rank."""

    reference: Rows
    ranks: tuple[Rows, ...]

    @cached_property
    def ours(self) -> Counter[int]:
        return Counter(self.reference)

    @cached_property
    def theirs(self) -> Counter[int]:
        return Counter(row for rows in self.ranks for row in rows)

    @property
    def same(self) -> bool:
        return self.ours == self.theirs

    @property
    def part(self) -> bool:
        """Whether the ranks have some of the rows, and no others."""
        return not self.theirs - self.ours and bool(self.ours - self.theirs)


def signatures(evidence: Evidence) -> Iterator[Found]:
    scene = evidence.scene
    if scene is None:
        return
    wrong = different_batch(evidence)
    if wrong is None:
        yield from _repeated_draws(evidence)
        return
    yield from _sizes(evidence, wrong)
    yield from _contents(evidence, wrong)


def different_batch(evidence: Evidence) -> Batch | None:
    """The first forward call of the step that was given other rows.

    What another model computed (a generator's pictures) may differ in a last digit: calls that were given other bits
    in the step before, which was right, say nothing.
    """
    if evidence.scene is None:
        return None
    before = batches_of(evidence.before) if evidence.before else ()
    for place, batch in enumerate(batches_of(evidence.scene)):
        if not batch.same and (place >= len(before) or before[place].same):
            return batch
    return None


def batches_of(scene: Scene) -> tuple[Batch, ...]:
    """Call by call where all made as many, else all rows of the step together; nothing where they are not "
    "known."""
    ours, theirs = _calls(scene.reference), [_calls(rank) for rank in scene.ranks]
    if not ours or not all(theirs):
        return ()
    if any(len(calls) != len(ours) for calls in theirs):
        batch = Batch(sum(ours, ()), tuple(sum(calls, ()) for calls in theirs))
        # a model that is called without its wrapper, or a step that was skipped: not other rows
        passes = {len(scene.reference.losses), *(len(rank.losses) for rank in scene.ranks)}
        skipped = any(step.skipped for step in (scene.reference, *scene.ranks))
        return () if batch.part and (skipped or len(passes) == 1) else (batch,)
    return tuple(Batch(rows, tuple(calls[place] for calls in theirs)) for place, rows in enumerate(ours))


def _calls(step: Step) -> list[Rows]:
    """Of the forward calls in training; of all, if none is."""
    training = [forward.digests for forward in step.forwards if forward.training and forward.digests]
    return training or [forward.digests for forward in step.forwards if forward.digests]


def _sizes(evidence: Evidence, batch: Batch) -> Iterator[Found]:
    scene = evidence.scene
    assert scene is not None
    ours, theirs = len(batch.reference), [len(rows) for rows in batch.ranks]
    if sum(theirs) == ours:
        return
    later = next((one for one in _reference_rows(evidence, scene.number + 1)), None)
    figures = f"rows in step {scene.number}: {sum_text(theirs)} = {sum(theirs)}, under DataParallel {ours}"
    if later == batch.theirs and evidence.before is not None:
        yield found("drop-last", 0.97, figures, f"they are DataParallel's rows of step {scene.number + 1}")
    elif batch.theirs.keys() == batch.ours.keys() or (batch.part and not _comes_later(evidence, batch)):
        return
    else:
        factor = sum(theirs) / ours
        words = f"{factor:.4g} times as many" + (": W" if factor == evidence.world else "")
        yield found("batch-size", 0.96, figures, words)


def _comes_later(evidence: Evidence, batch: Batch) -> bool:
    """Whether rows that are missing are what the ranks train on next."""
    assert evidence.scene is not None
    for scene in evidence.scenes():
        if scene.number > evidence.scene.number:
            later = {row for rank in scene.ranks for calls in _calls(rank) for row in calls}
            return any(row in later for row in batch.ours - batch.theirs)
    return False


def _contents(evidence: Evidence, batch: Batch) -> Iterator[Found]:
    scene = evidence.scene
    assert scene is not None
    doubled = [row for row, count in batch.theirs.items() if count > max(batch.ours.get(row, 0), 1)]
    missing = [row for row in batch.ours if row not in batch.theirs]
    foreign = [row for row in batch.theirs if row not in batch.ours]
    known = samples(scene.reference)
    if doubled:
        yield found(
            "repeated-rows",
            0.95,
            f"{len(doubled)} rows of step {scene.number} are there more than once{_which(doubled, known)}",
            *(
                [f"{len(missing)} of DataParallel's rows are missing{_which(missing, known)}"]
                if missing
                else []
            ),
        )
    if missing and not foreign and not doubled:
        yield found(
            "missing-rows",
            0.95,
            f"{len(missing)} of {len(batch.reference)} rows of step {scene.number} are on no "
            f"rank{_which(missing, known)}",
        )
    if foreign:
        yield from _foreign(evidence, batch, foreign)


def _foreign(evidence: Evidence, batch: Batch, foreign: list[int]) -> Iterator[Found]:
    scene = evidence.scene
    assert scene is not None
    past = [sum((each.theirs for each in batches_of(one)), Counter()) for one in _earlier(evidence)]
    again = [number for number, rows in enumerate(past) if batch.theirs and batch.theirs == rows]
    everywhere = set().union(*_reference_rows(evidence, 0))
    strangers = [row for row in foreign if row not in everywhere]
    rows = f"of {sum(batch.theirs.values())} rows of step {scene.number}"
    share = f"{len(foreign)} {rows} are not in DataParallel's batch"
    if again:
        yield found("same-order-each-epoch", 0.98, share, f"they are those of step {again[0]}, all of them")
    if not strangers:
        known = {row: index for one in evidence.reference.steps() for row, index in samples(one).items()}
        instead = [row for row in batch.ours if row not in batch.theirs]
        indices = f"{_which(foreign, known)}; instead of{_which(instead, known)[1:]}" if known else ""
        yield found("other-order", 0.94, share, f"DataParallel has them in other steps{indices}")
    else:
        yield found(
            "other-inputs",
            0.93 if len(strangers) == len(foreign) else 0.9,
            f"{len(strangers)} of {sum(batch.theirs.values())} rows of step {scene.number} have values that "
            "no row "
            "has under DataParallel",
        )


def _earlier(evidence: Evidence) -> Iterator[Scene]:
    assert evidence.scene is not None
    for scene in evidence.scenes():
        if scene.number >= evidence.scene.number:
            return
        yield scene


def _reference_rows(evidence: Evidence, begin: int) -> Iterator[Counter[int]]:
    """Of each step of DataParallel from one on."""
    for step in evidence.reference.steps():
        if step.number >= begin:
            yield Counter(row for rows in _calls(step) for row in rows)


def samples(step: Step) -> dict[int, int]:
    """digest of a row -> index of the sample, where the batches of the loader are what the model was given."""
    indices = [index for draw in step.draws for index in draw.indices or ()]
    rows = [row for calls in _calls(step)[:1] for row in calls]
    return dict(zip(rows, indices, strict=True)) if len(indices) == len(rows) else {}


def _which(rows: list[int], known: dict[int, int]) -> str:
    indices = [known[row] for row in rows if row in known]
    return f": samples {names_text(sorted(indices))}" if indices else ""


def _repeated_draws(evidence: Evidence) -> Iterator[Found]:
    """Two ranks that load different samples with the same random streams, as the comparison has found."""
    first = evidence.comparison.first
    if first is not None and first.kind == "random streams":
        yield found("repeated-draws", 0.97, f"random streams on rank {first.rank} are {first.name}")
