"""Which rows went through the model in the step: by 64 bits of each row's values, and by the samplers' indices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from dp2ddp.comparison.causes.catalogue import Finding, finding
from dp2ddp.comparison.causes.evidence import Batch, Evidence, MatchedStep, calls_of, draws_of, samples_of
from dp2ddp.trace.records import Step
from dp2ddp.words import names_text, numbers_text, ranks_text, sum_text

_PADDED = 0.1  # of an epoch's samples; DistributedSampler repeats some, so that all ranks have as many


def signatures(evidence: Evidence) -> Iterator[Finding]:
    """The findings of this family that fit the evidence."""
    if not evidence.is_at_step:
        return
    batch, first = evidence.other_batch, evidence.comparison.first
    if batch is None:  # two ranks that load different samples with the same random streams
        if first is not None and first.kind == "random streams":
            yield finding("repeated-draws", 0.97, f"random streams on rank {first.rank} are {first.name}")
        return
    yield from _split_twice(evidence)
    if padding := _padding(evidence, batch):
        yield padding
        return
    yield from _sizes(evidence, batch)
    yield from _contents(evidence, batch)
    yield from _of_whole_run(evidence)


# ---- how many rows


def _sizes(evidence: Evidence, batch: Batch) -> Iterator[Finding]:
    expected, actual = len(batch.reference), [len(rows) for rows in batch.ranks]
    if sum(actual) == expected:
        return
    next_step, figures = evidence.here.number + 1, _rows_of(evidence, batch)
    if evidence.before is not None and batch.actual in evidence.reference_rows[next_step : next_step + 1]:
        yield finding("drop-last", 0.97, figures, f"they are DataParallel's rows of step {next_step}")
    elif batch.actual.keys() == batch.expected.keys() or (batch.part and not _comes_later(evidence, batch)):
        return
    elif divided := _division(expected, actual):
        yield finding("batch-division", 0.965, figures, divided)
    else:
        factor = sum(actual) / expected
        words = f"{factor:.4g} times as many" + ": W" * (factor == evidence.world)
        counts, steps = evidence.comparison.rank_steps, evidence.comparison.steps
        text = f"steps: {numbers_text(counts)} on the ranks, {steps} under DataParallel"
        yield finding("batch-size", 0.96, figures, words, *[text] * ({*counts} != {steps}))


def _rows_of(evidence: Evidence, batch: Batch) -> str:
    actual = [len(rows) for rows in batch.ranks]
    counts = f"{sum_text(actual)} = {sum(actual)}, under DataParallel {len(batch.reference)}"
    return f"rows in step {evidence.here.number}: {counts}"


def _comes_later(evidence: Evidence, batch: Batch) -> bool:
    """Whether rows that are missing are what the ranks train on next."""
    later = (step for step in evidence.steps_of_all if step.number > evidence.here.number)
    following = next(later, None)
    return following is not None and not following.rows_on_ranks.isdisjoint(batch.expected - batch.actual)


def _division(whole: int, ranks: Sequence[int]) -> str:
    """How each rank's batch is DataParallel's, divided by another number than there are ranks, or rounded; else ""."""
    rows, world = ranks[0], len(ranks)
    parts = round(whole / rows) if rows and {*ranks} == {rows} else 1
    if parts == 1 or rows not in (whole // parts, -(-whole // parts)):
        return ""
    if parts != world and parts % world == 0:  # divided twice, or a step in each micro-batch
        return ""
    if parts == world:
        chunks = [chunk_size(whole, rank, world) for rank in range(world)]
        return f"{world} does not divide {whole}: DataParallel's chunks are {sum_text(chunks)}"
    return f"each rank has {whole} // {parts}, and there are {world} ranks"


def chunk_size(rows: int, rank: int, world: int) -> int:
    """The length of torch.chunk(batch, world)[rank]; 0 where there is no such chunk."""
    size = -(-rows // world)
    return max(min(size, rows - rank * size), 0)


def _split_twice(evidence: Evidence) -> Iterator[Finding]:
    """A sampler's part of the data for each rank, of which the rank's model gets a chunk; or that of rank 0, which
    alone loads, for all."""
    here, world = evidence.here, evidence.world
    # of each rank: the samples of the first batch of the loader that is trained on
    loaded = [next((draw.indices or () for draw in draws_of(rank)), ()) for rank in here.ranks]
    if len(loaded) < 2 or not loaded[0]:
        return
    if not any(loaded[1:]):
        expected, actual = evidence.orders[:2]
        whole, part, epoch = len(expected), len(actual), len({*expected})
        has_whole_epoch = len({*actual[:epoch]}) == epoch  # and then fewer epochs
        if abs(world * part - whole) <= _PADDED * whole and not has_whole_epoch:
            about = "about " * (world * part != whole)
            text = f"rank 0 loads each batch for all ranks, and takes {part} samples in the whole run"
            yield finding("split-twice", 0.985, f"{text}; DataParallel takes {whole}, {about}W times as many")
        return
    rows = [len(calls[0]) if (calls := calls_of(rank)) else 0 for rank in here.ranks]
    chunks = [chunk_size(len(indices), rank, len(loaded)) for rank, indices in enumerate(loaded)]
    own = len({index for indices in loaded for index in indices}) == sum(map(len, loaded))
    if own and rows == chunks and max(chunks) < max(map(len, loaded)):
        samples_loaded = f"the ranks load {sum_text(map(len, loaded))} samples, each its own"
        text = f"in step {here.number} {samples_loaded}; their models get {sum_text(rows)} of them"
        yield finding("split-twice", 0.985, text)


def _padding(evidence: Evidence, batch: Batch) -> Finding | None:
    """A batch of DataParallel that is shorter than those before, whole on the ranks, and a few rows more."""
    extra, of_steps = batch.actual - batch.expected, evidence.reference_rows
    longest = max((rows.total() for rows in of_steps), default=0)
    if batch.expected - batch.actual or not extra or len(batch.reference) >= longest:
        return None
    if extra.total() >= evidence.world and batch.actual.total() > longest:
        return None
    if extra.keys() - set().union(*of_steps):
        return None
    rows = "1 row is" if extra.total() == 1 else f"{extra.total()} rows are"
    again = f"{rows} there a second time{_which(list(extra), evidence.samples)}"
    return finding("padded-rows", 0.97, f"{_rows_of(evidence, batch)}: a short batch", again)


# ---- which rows


def _contents(evidence: Evidence, batch: Batch) -> Iterator[Finding]:
    number, known = evidence.here.number, samples_of(evidence.here.reference)
    doubled = [row for row, count in batch.actual.items() if count > max(batch.expected.get(row, 0), 1)]
    missing = [row for row in batch.expected if row not in batch.actual]
    foreign = [row for row in batch.actual if row not in batch.expected]
    if doubled:
        text = f"{len(doubled)} rows of step {number} are there more than once{_which(doubled, known)}"
        lacking = f"{len(missing)} of DataParallel's rows are missing{_which(missing, known)}"
        yield finding("repeated-rows", 0.95, text, *[lacking] * bool(missing))
    elif missing and not foreign:
        rows = f"{len(missing)} of {len(batch.reference)} rows of step {number}"
        yield finding("missing-rows", 0.95, f"{rows} are on no rank{_which(missing, known)}")
    if foreign:
        yield from _foreign(evidence, batch, foreign, missing)


def _foreign(evidence: Evidence, batch: Batch, foreign: list[int], missing: list[int]) -> Iterator[Finding]:
    here = evidence.here
    earlier = [step for step in evidence.steps_of_all if step.number < here.number]
    again = [step.number for step in earlier if batch.actual and batch.actual == step.rows_of_batches]
    again = again or [step.number for step in earlier if _has_the_samples_of(here, step)]
    everywhere = set().union(*evidence.reference_rows)
    strangers = [row for row in foreign if row not in everywhere]
    # those whose samples DataParallel takes in no step
    taken = {*evidence.orders[0]}
    own = {row: index for rank in here.ranks for row, index in samples_of(rank).items()}
    untaken = {row: own[row] for row in strangers if row in own and own[row] not in taken}
    rows = f"of {sum(batch.actual.values())} rows of step {here.number}"
    share = f"{len(foreign)} {rows} are not in DataParallel's batch"
    if again:
        yield finding("same-order-each-epoch", 0.98, share, f"they are those of step {again[0]}, all of them")
    if len(strangers) == len(untaken):
        known = evidence.samples | untaken
        indices = _which(foreign, known)
        indices += f"; instead of{_which(missing, known)[1:]}" if indices and missing else ""
        where = f", and {len(untaken)} of them in none" if untaken else ""
        text = f"DataParallel has them in other steps{where}{indices}"
        yield finding("other-order", 0.94, share, text, *_shuffled_on_one_side(evidence.orders))
    else:
        text = f"{len(strangers)} {rows} have values that no row has under DataParallel"
        ranks = [rank for rank, each in enumerate(batch.ranks) if not {*strangers}.isdisjoint(each)]
        if len(ranks) < len(batch.ranks):  # those that draw something by themselves
            text += f": on {ranks_text(ranks)} alone"
        # each rank may have padded its own to the longest of them
        same = "of the same samples: padded to another width, or made with other random numbers"
        expected, *actual = map(drawn, here.all)
        are_same = any(actual) and sorted(sum(actual, [])) == sorted(expected)
        weight = 0.93 if len(strangers) == len(foreign) else 0.9
        yield finding("other-inputs", weight, text, *[same] * are_same)


def _has_the_samples_of(here: MatchedStep, earlier: MatchedStep) -> bool:
    """Whether the ranks take an earlier step's samples again, perhaps with another augmentation, where DataParallel
    takes others."""
    (expected, *actual), (before, *own) = (map(drawn, step.all) for step in (here, earlier))
    return all(actual) and own == actual and sorted(before) != sorted(expected)


def drawn(step: Step) -> list[int]:
    """Indices drawn from the data set that is trained on."""
    return [index for draw in draws_of(step) for index in draw.indices or ()]


def _which(rows: list[int], known: dict[int, int]) -> str:
    indices = [known[row] for row in rows if row in known]
    return f": sample{'s' * (len(indices) > 1)} {names_text(sorted(indices))}" if indices else ""


# ---- which samples, in the whole run


def _of_whole_run(evidence: Evidence) -> Iterator[Finding]:
    """A sampler that takes a sample again before it has taken the others, on one side only; or leaves some out."""
    expected, *actual = evidence.orders
    if not expected or not all(actual):
        return
    again = takes_again(expected), ranks_take_again(actual)
    if not any(again):
        yield from _left_out(evidence, expected, actual)
    if again[0] != again[1]:
        (sample, times), *_ = Counter(expected if again[0] else actual[0]).most_common(1)
        sides = ("under DataParallel", "on the ranks")
        side, other = sides if again[0] else reversed(sides)
        text = f"{side} sample {sample} is taken {times} times before others are taken once"
        yield finding("sampler-weights", 0.965, f"{text}; {other} each is taken once an epoch")


def _left_out(evidence: Evidence, expected: list[int], actual: list[list[int]]) -> Iterator[Finding]:
    """Samples that no rank takes, though ranks go through theirs more than once."""
    taken = {index for indices in actual for index in indices}
    # a rank's own data set counts from 0 again
    there = set[int]().union(*(step.rows_on_ranks for step in evidence.steps_of_all))
    missing = sorted({*expected} - taken - {index for row, index in evidence.samples.items() if row in there})
    times = sum(map(len, actual)) / len(taken)
    dropped = evidence.here.rows_of_batches.total()
    again = len(missing) < dropped and all(map(goes_round, actual)) and not goes_round(expected)
    if again and not all(map(is_in_order, actual)):
        text = f"each rank takes its {len({*actual[0]})} samples again and again in one order"
        which = f"{len(missing)} of {len({*expected})}, which drop_last leaves out, are those of each epoch"
        yield finding("same-order-each-epoch", 0.95, text, *[which] * bool(missing))
    elif len(missing) > evidence.world and times > 1.5 and not _may_be_shards(evidence, expected, actual):
        count = f"{len(missing)} of the {len({*expected})} samples that DataParallel takes"
        text = f"{count} are on no rank in the whole run: {names_text(missing)}"
        yield finding("missing-samples", 0.945, text)


def _may_be_shards(evidence: Evidence, expected: list[int], actual: list[list[int]]) -> bool:
    """Whether each rank takes as many samples as its share has, all by the same numbers: of a data set of its own.

    Not where all rows that ranks share with DataParallel are known by the same numbers, some on each rank.
    """
    shares = {frozenset(indices) for indices in actual}
    if len(shares) > 1 or len(actual) * len(shares.pop()) < len({*expected}):
        return False
    known = evidence.samples
    matches = [
        [known[row] == index for step in steps for row, index in samples_of(step).items() if row in known]
        for steps in zip(*(step.ranks for step in evidence.steps_of_all), strict=True)
    ]
    return not matches or not all(each and all(each) for each in matches)


def _shuffled_on_one_side(orders: list[list[int]]) -> Iterator[str]:
    expected, *actual = orders
    if not expected or not all(actual):
        return
    if is_in_order(expected) and not any(map(is_in_order, actual)):
        yield "DataParallel takes samples in order, the ranks shuffle them: DistributedSampler(..., shuffle=False)"
    if all(map(is_in_order, actual)) and not is_in_order(expected):
        yield "DataParallel shuffles, the ranks take samples in order: shuffle=True for the sampler"


def is_in_order(indices: Sequence[int]) -> bool:
    """Whether the first epoch is sorted."""
    epoch = _first_epoch(indices)
    return epoch == sorted(epoch)


def _first_epoch(indices: Sequence[int]) -> list[int]:
    """Up to the first sample that comes again."""
    seen: dict[int, None] = {}
    for index in indices:
        if index in seen:
            break
        seen[index] = None
    return [*seen]


def goes_round(indices: Sequence[int]) -> bool:
    """Whether the samples of an epoch come again in the same order, half of them at least."""
    period = indices.index(indices[0], 1) if indices[0] in indices[1:] else len(indices)
    return 3 * period <= 2 * len(indices) and indices[period:] == indices[:-period]


def ranks_take_again(ranks: Sequence[Sequence[int]]) -> bool:
    """Each by itself, and all together: one that has a share of each epoch has other samples in the next one."""
    together = [index for indices in zip_longest(*ranks) for index in indices if index is not None]
    return all(map(takes_again, ranks)) and takes_again(together)


def takes_again(indices: Sequence[int]) -> bool:
    """Whether the first repetition comes before half of the samples; an epoch without replacement has none."""
    return 2 * len(_first_epoch(indices)) < len({*indices})
