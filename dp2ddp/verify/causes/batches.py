"""Which rows went through the model in the step: by 64 bits of each row's values, and by the samplers' "
"indices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from dp2ddp.trace.records import Step, Trace
from dp2ddp.verify.causes.cause import Found, found
from dp2ddp.verify.causes.evidence import Evidence, Scene
from dp2ddp.verify.causes.words import names_text, numbers_text, sum_text

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
    padding = _padding(evidence, wrong)
    if padding is not None:
        yield padding
        return
    yield from _sizes(evidence, wrong)
    yield from _contents(evidence, wrong)
    yield from _replacement(evidence)


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
    figures = _rows_of(evidence, batch)
    if later == batch.theirs and evidence.before is not None:
        yield found("drop-last", 0.97, figures, f"they are DataParallel's rows of step {scene.number + 1}")
    elif batch.theirs.keys() == batch.ours.keys() or (batch.part and not _comes_later(evidence, batch)):
        return
    else:
        factor = sum(theirs) / ours
        words = f"{factor:.4g} times as many" + (": W" if factor == evidence.world else "")
        counts = evidence.comparison.rank_steps
        steps = f"steps: {numbers_text(counts)} on the ranks, {evidence.comparison.steps} under DataParallel"
        yield found("batch-size", 0.96, figures, words, *[steps] * ({*counts} != {evidence.comparison.steps}))


def _padding(evidence: Evidence, batch: Batch) -> Found | None:
    """A batch of DataParallel that is shorter than those before, whole on the ranks, and a few rows more."""
    scene = evidence.scene
    assert scene is not None
    extra = batch.theirs - batch.ours
    longest = max((rows.total() for rows in _reference_rows(evidence, 0)), default=0)
    if batch.ours - batch.theirs or not extra or len(batch.reference) >= longest:
        return None
    if extra.total() >= evidence.world and batch.theirs.total() > longest:
        return None
    everywhere = set().union(*_reference_rows(evidence, 0))
    if any(row not in everywhere for row in extra):
        return None
    rows = "1 row is" if extra.total() == 1 else f"{extra.total()} rows are"
    return found(
        "padded-rows",
        0.97,
        f"{_rows_of(evidence, batch)}: a short batch",
        f"{rows} there a second time{_which(list(extra), _samples_of_all(evidence))}",
    )


def _rows_of(evidence: Evidence, batch: Batch) -> str:
    assert evidence.scene is not None
    theirs = [len(rows) for rows in batch.ranks]
    step = evidence.scene.number
    return (
        f"rows in step {step}: {sum_text(theirs)} = {sum(theirs)}, under DataParallel {len(batch.reference)}"
    )


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
    again = again or _taken_before(evidence)
    everywhere = set().union(*_reference_rows(evidence, 0))
    strangers = [row for row in foreign if row not in everywhere]
    untaken = _untaken(evidence, strangers)
    rows = f"of {sum(batch.theirs.values())} rows of step {scene.number}"
    share = f"{len(foreign)} {rows} are not in DataParallel's batch"
    if again:
        yield found("same-order-each-epoch", 0.98, share, f"they are those of step {again[0]}, all of them")
    if len(strangers) == len(untaken):
        known = _samples_of_all(evidence) | untaken
        instead = [row for row in batch.ours if row not in batch.theirs]
        indices = _which(foreign, known)
        indices += f"; instead of{_which(instead, known)[1:]}" if indices and instead else ""
        where = f", and {len(untaken)} of them in none" if untaken else ""
        told = f"DataParallel has them in other steps{where}{indices}"
        yield found("other-order", 0.94, share, told, *_shuffled_on_one_side(evidence))
    else:
        yield found(
            "other-inputs",
            0.93 if len(strangers) == len(foreign) else 0.9,
            f"{len(strangers)} of {sum(batch.theirs.values())} rows of step {scene.number} have values that "
            "no row "
            "has under DataParallel",
        )


def _taken_before(evidence: Evidence) -> list[int]:
    """Steps whose samples the ranks take again, perhaps with another augmentation, where DataParallel takes others."""
    assert evidence.scene is not None
    ours, theirs = _drawn(evidence.scene.reference), [_drawn(rank) for rank in evidence.scene.ranks]
    return [
        scene.number
        for scene in _earlier(evidence)
        if all(theirs)
        and [_drawn(rank) for rank in scene.ranks] == theirs
        and sorted(_drawn(scene.reference)) != sorted(ours)
    ]


def _shuffled_on_one_side(evidence: Evidence) -> Iterator[str]:
    assert evidence.scene is not None
    steps = evidence.scene.reference, *evidence.scene.ranks
    traces = evidence.reference, *evidence.ranks
    ours, *theirs = (_indices(trace, _loader(step)) for trace, step in zip(traces, steps, strict=True))
    if not ours or not all(theirs):
        return
    if is_in_order(ours) and not any(map(is_in_order, theirs)):
        yield "DataParallel takes samples in order, the ranks shuffle them: DistributedSampler(..., shuffle=False)"
    if all(map(is_in_order, theirs)) and not is_in_order(ours):
        yield "DataParallel shuffles, the ranks take samples in order: shuffle=True for the sampler"


def is_in_order(indices: Sequence[int]) -> bool:
    """Whether the first epoch, up to the first sample that comes again, is sorted."""
    seen: dict[int, None] = {}
    for index in indices:
        if index in seen:
            break
        seen[index] = None
    return [*seen] == sorted(seen)


def _drawn(step: Step) -> list[int]:
    """Of the data set that is trained on: evaluation comes before the step's own batch."""
    trained = {draw.loader for draw in step.draws[-1:]}
    return [index for draw in step.draws if draw.loader in trained for index in draw.indices or ()]


def _earlier(evidence: Evidence) -> Iterator[Scene]:
    assert evidence.scene is not None
    for scene in evidence.scenes():
        if scene.number >= evidence.scene.number:
            return
        yield scene


def _reference_rows(evidence: Evidence, begin: int) -> Iterator[Counter[int]]:
    """Of each step of DataParallel from one on."""
    for step in evidence.reference_steps():
        if step.number >= begin:
            yield Counter(row for rows in _calls(step) for row in rows)


def samples(step: Step) -> dict[int, int]:
    """digest of a row -> index of the sample, where the batches of the loader are what the model was given."""
    indices = [index for draw in step.draws for index in draw.indices or ()]
    rows = [row for calls in _calls(step)[:1] for row in calls]
    return dict(zip(rows, indices, strict=True)) if len(indices) == len(rows) else {}


def _samples_of_all(evidence: Evidence) -> dict[int, int]:
    return {row: index for one in evidence.reference_steps() for row, index in samples(one).items()}


def _untaken(evidence: Evidence, strangers: list[int]) -> dict[int, int]:
    """Of these rows, those of samples that DataParallel takes in no step: digest -> index."""
    assert evidence.scene is not None
    taken = {*_indices(evidence.reference, _loader(evidence.scene.reference))}
    own = {row: index for rank in evidence.scene.ranks for row, index in samples(rank).items()}
    return {row: own[row] for row in strangers if row in own and own[row] not in taken}


def _replacement(evidence: Evidence) -> Iterator[Found]:
    """A sampler that takes a sample again before it has taken the others, on one side only."""
    assert evidence.scene is not None
    steps = evidence.scene.reference, *evidence.scene.ranks
    traces = evidence.reference, *evidence.ranks
    ours, *theirs = (_indices(trace, _loader(step)) for trace, step in zip(traces, steps, strict=True))
    if not ours or not all(theirs):
        return
    again = takes_again(ours), ranks_take_again(theirs)
    if not any(again):
        yield from _left_out(evidence, ours, theirs)
    if again[0] == again[1]:
        return
    often, times = Counter(ours if again[0] else theirs[0]).most_common(1)[0]
    sides = ("under DataParallel", "on the ranks") if again[0] else ("on the ranks", "under DataParallel")
    yield found(
        "sampler-weights",
        0.965,
        f"{sides[0]} sample {often} is taken {times} times before others are taken once; {sides[1]} each is taken "
        "once an epoch",
    )


def _left_out(evidence: Evidence, ours: list[int], theirs: list[list[int]]) -> Iterator[Found]:
    """Samples that no rank takes, though ranks go through theirs more than once."""
    taken = {index for indices in theirs for index in indices}
    known, there = _samples_of_all(evidence), _all_rows(evidence)  # a rank's own data set counts from 0 again
    missing = sorted({*ours} - taken - {index for row, index in known.items() if row in there})
    times = sum(map(len, theirs)) / len(taken)
    if len(missing) > evidence.world and times > 1.5:
        yield found(
            "missing-samples",
            0.945,
            f"{len(missing)} of the {len({*ours})} samples that DataParallel takes are on no rank in the whole run: "
            f"{names_text(missing)}",
        )


def _all_rows(evidence: Evidence) -> set[int]:
    """Digests of what the ranks train on."""
    ranks = (rank for scene in evidence.scenes() for rank in scene.ranks)
    return {row for rank in ranks for calls in _calls(rank) for row in calls}


def ranks_take_again(ranks: Sequence[Sequence[int]]) -> bool:
    """Each by itself, and all together: one that has a share of each epoch has other samples in the next one."""
    together = [index for indices in zip_longest(*ranks) for index in indices if index is not None]
    return all(map(takes_again, ranks)) and takes_again(together)


def takes_again(indices: Sequence[int]) -> bool:
    """Whether the first repetition comes before half of the samples; an epoch without replacement has none."""
    seen: set[int] = set()
    for index in indices:
        if index in seen:
            return 2 * len(seen) < len({*indices})
        seen.add(index)
    return False


def _loader(step: Step) -> int:
    return next((draw.loader for draw in step.draws if draw.indices), -1)


def _indices(trace: Trace, loader: int) -> list[int]:
    """That a loader's sampler gave in the whole run."""
    draws = (draw for line in trace.lines for draw in line["draws"])
    return [index for of, indices, _ in draws if of == loader for index in indices or ()]


def _which(rows: list[int], known: dict[int, int]) -> str:
    indices = [known[row] for row in rows if row in known]
    return f": sample{'s' * (len(indices) > 1)} {names_text(sorted(indices))}" if indices else ""


def _repeated_draws(evidence: Evidence) -> Iterator[Found]:
    """Two ranks that load different samples with the same random streams, as the comparison has found."""
    first = evidence.comparison.first
    if first is not None and first.kind == "random streams":
        yield found("repeated-draws", 0.97, f"random streams on rank {first.rank} are {first.name}")
