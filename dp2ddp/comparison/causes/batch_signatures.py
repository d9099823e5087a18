"""Which rows went through the model in the step: by 64 bits of each row's values, and by the samplers' indices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from dp2ddp.comparison.causes.catalogue import Finding, finding
from dp2ddp.comparison.causes.evidence import Evidence, MatchedStep
from dp2ddp.trace.records import Draw, Step
from dp2ddp.words import names_text, numbers_text, ranks_text, sum_text

Rows = tuple[int, ...]  # digests
_PADDED = 0.1  # of an epoch's samples; DistributedSampler repeats some, so that all ranks have as many


@dataclass(frozen=True)
class Batch:
    """What one forward call of a step was given: DataParallel's rows, and those of each rank."""

    reference: Rows
    ranks: tuple[Rows, ...]

    @cached_property
    def expected(self) -> Counter[int]:
        """How often each row is in DataParallel's batch: digest -> count."""
        return Counter(self.reference)

    @cached_property
    def actual(self) -> Counter[int]:
        """How often each row is in the batch of all ranks together: digest -> count."""
        return Counter(row for rows in self.ranks for row in rows)

    @property
    def same(self) -> bool:
        """Whether the ranks together have DataParallel's rows, in whatever order."""
        return self.expected == self.actual

    @property
    def part(self) -> bool:
        """Whether the ranks have some of the rows, and no others."""
        return not self.actual - self.expected and bool(self.expected - self.actual)


def signatures(evidence: Evidence) -> Iterator[Finding]:
    """The findings of this family that fit the evidence."""
    if not evidence.is_at_step:
        return
    wrong = different_batch(evidence)
    if wrong is None:
        first = (
            evidence.comparison.first
        )  # two ranks that load different samples with the same random streams
        if first is not None and first.kind == "random streams":
            yield finding("repeated-draws", 0.97, f"random streams on rank {first.rank} are {first.name}")
        return
    yield from _split_twice(evidence)
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
    before = batches_of(evidence.before) if evidence.before else ()
    for place, batch in enumerate(batches_of(evidence.here) if evidence.is_at_step else ()):
        if not batch.same and (place >= len(before) or before[place].same):
            return batch
    return None


def batches_of(here: MatchedStep) -> tuple[Batch, ...]:
    """Call by call where all made as many, else all rows of the step together; nothing where they are not known."""
    expected, *actual = map(_calls, here.all)
    if not expected or not all(actual):
        return ()
    if any(len(calls) != len(expected) for calls in actual):
        batch = Batch(sum(expected, ()), tuple(sum(calls, ()) for calls in actual))
        # a model that is called without its wrapper, or a step that was skipped: not other rows
        passes = {len(step.losses) for step in here.all}
        skipped = any(step.skipped for step in here.all)
        return () if batch.part and (skipped or len(passes) == 1) else (batch,)
    return tuple(Batch(rows, tuple(calls[place] for calls in actual)) for place, rows in enumerate(expected))


def _calls(step: Step) -> list[Rows]:
    """Row digests of each forward call in training; of all forward calls, if none is."""
    training = [forward.digests for forward in step.forwards if forward.training and forward.digests]
    return training or [forward.digests for forward in step.forwards if forward.digests]


def _sizes(evidence: Evidence, batch: Batch) -> Iterator[Finding]:
    expected, actual = len(batch.reference), [len(rows) for rows in batch.ranks]
    if sum(actual) == expected:
        return
    next_step = evidence.here.number + 1
    later = next(iter(_reference_rows(evidence, next_step)), None)
    figures = _rows_of(evidence, batch)
    if later == batch.actual and evidence.before is not None:
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


def _split_twice(evidence: Evidence) -> Iterator[Finding]:
    """A sampler's part of the data for each rank, of which the rank's model gets a chunk."""
    here = evidence.here
    # of each rank: the samples of the first batch of the loader that is trained on
    loaded = [next((draw.indices or () for draw in _draws(rank)), ()) for rank in here.ranks]
    if len(loaded) < 2 or not loaded[0]:
        return
    if not any(loaded[1:]):
        yield from _part_for_all(evidence)
        return
    rows = [len(calls[0]) if (calls := _calls(rank)) else 0 for rank in here.ranks]
    chunks = [chunk_size(len(indices), rank, len(loaded)) for rank, indices in enumerate(loaded)]
    own = len({index for indices in loaded for index in indices}) == sum(map(len, loaded))
    if own and rows == chunks and max(chunks) < max(map(len, loaded)):
        samples_loaded = f"the ranks load {sum_text(map(len, loaded))} samples, each its own"
        text = f"in step {here.number} {samples_loaded}; their models get {sum_text(rows)} of them"
        yield finding("split-twice", 0.985, text)


def chunk_size(rows: int, rank: int, world: int) -> int:
    """The length of torch.chunk(batch, world)[rank]; 0 where there is no such chunk."""
    size = -(-rows // world)
    return max(min(size, rows - rank * size), 0)


def drawn(step: Step) -> list[int]:
    """Indices drawn from the data set that is trained on."""
    return [index for draw in _draws(step) for index in draw.indices or ()]


def _draws(step: Step) -> list[Draw]:
    """From the loader that is trained on: evaluation comes before the step's own batch."""
    trained = {draw.loader for draw in step.draws[-1:]}
    return [draw for draw in step.draws if draw.loader in trained]


def _part_for_all(evidence: Evidence) -> Iterator[Finding]:
    """Rank 0 alone loads, for all ranks; its sampler gives it a part."""
    expected, actual = _orders(evidence)[:2]
    whole, part = len(expected), len(actual)
    epoch = len({*expected})
    has_whole_epoch = len({*actual[:epoch]}) == epoch  # and then fewer epochs
    if abs(evidence.world * part - whole) <= _PADDED * whole and not has_whole_epoch:
        about = "about " * (evidence.world * part != whole)
        text = f"rank 0 loads each batch for all ranks, and takes {part} samples in the whole run"
        yield finding("split-twice", 0.985, f"{text}; DataParallel takes {whole}, {about}W times as many")


def _padding(evidence: Evidence, batch: Batch) -> Finding | None:
    """A batch of DataParallel that is shorter than those before, whole on the ranks, and a few rows more."""
    extra = batch.actual - batch.expected
    longest = max((rows.total() for rows in _reference_rows(evidence)), default=0)
    if batch.expected - batch.actual or not extra or len(batch.reference) >= longest:
        return None
    if extra.total() >= evidence.world and batch.actual.total() > longest:
        return None
    everywhere = set().union(*_reference_rows(evidence))
    if any(row not in everywhere for row in extra):
        return None
    rows = "1 row is" if extra.total() == 1 else f"{extra.total()} rows are"
    again = f"{rows} there a second time{_which(list(extra), _samples_of_all(evidence))}"
    return finding("padded-rows", 0.97, f"{_rows_of(evidence, batch)}: a short batch", again)


def _rows_of(evidence: Evidence, batch: Batch) -> str:
    actual = [len(rows) for rows in batch.ranks]
    counts = f"{sum_text(actual)} = {sum(actual)}, under DataParallel {len(batch.reference)}"
    return f"rows in step {evidence.here.number}: {counts}"


def _comes_later(evidence: Evidence, batch: Batch) -> bool:
    """Whether rows that are missing are what the ranks train on next."""
    later = (step for step in evidence.steps_of_all if step.number > evidence.here.number)
    following = next(later, None)
    return following is not None and not _rows_on_ranks([following]).isdisjoint(batch.expected - batch.actual)


def _contents(evidence: Evidence, batch: Batch) -> Iterator[Finding]:
    here = evidence.here
    doubled = [row for row, count in batch.actual.items() if count > max(batch.expected.get(row, 0), 1)]
    missing = [row for row in batch.expected if row not in batch.actual]
    foreign = [row for row in batch.actual if row not in batch.expected]
    known = samples(here.reference)
    if doubled:
        text = f"{len(doubled)} rows of step {here.number} are there more than once{_which(doubled, known)}"
        lacking = f"{len(missing)} of DataParallel's rows are missing{_which(missing, known)}"
        yield finding("repeated-rows", 0.95, text, *[lacking] * bool(missing))
    elif missing and not foreign:
        rows = f"{len(missing)} of {len(batch.reference)} rows of step {here.number}"
        yield finding("missing-rows", 0.95, f"{rows} are on no rank{_which(missing, known)}")
    if foreign:
        yield from _foreign(evidence, batch, foreign)


def _foreign(evidence: Evidence, batch: Batch, foreign: list[int]) -> Iterator[Finding]:
    here = evidence.here
    past = [sum((each.actual for each in batches_of(step)), Counter()) for step in _earlier(evidence)]
    again = [number for number, rows in enumerate(past) if batch.actual and batch.actual == rows]
    again = again or _taken_before(evidence)
    everywhere = set().union(*_reference_rows(evidence))
    strangers = [row for row in foreign if row not in everywhere]
    untaken = _untaken(evidence, strangers)
    rows = f"of {sum(batch.actual.values())} rows of step {here.number}"
    share = f"{len(foreign)} {rows} are not in DataParallel's batch"
    if again:
        yield finding("same-order-each-epoch", 0.98, share, f"they are those of step {again[0]}, all of them")
    if len(strangers) == len(untaken):
        known = _samples_of_all(evidence) | untaken
        instead = [row for row in batch.expected if row not in batch.actual]
        indices = _which(foreign, known)
        indices += f"; instead of{_which(instead, known)[1:]}" if indices and instead else ""
        where = f", and {len(untaken)} of them in none" if untaken else ""
        text = f"DataParallel has them in other steps{where}{indices}"
        yield finding("other-order", 0.94, share, text, *_shuffled_on_one_side(evidence))
    else:
        text = f"{len(strangers)} {rows} have values that no row has under DataParallel"
        ranks = [rank for rank, each in enumerate(batch.ranks) if not {*strangers}.isdisjoint(each)]
        if len(ranks) < len(batch.ranks):  # those that draw something by themselves
            text += f": on {ranks_text(ranks)} alone"
        own = sorted(sample for rank in here.ranks for sample in drawn(rank))
        # each rank may have padded its own to the longest of them
        same = "of the same samples: padded to another width, or made with other random numbers"
        are_same = bool(own) and own == sorted(drawn(here.reference))
        weight = 0.93 if len(strangers) == len(foreign) else 0.9
        yield finding("other-inputs", weight, text, *[same] * are_same)


def _taken_before(evidence: Evidence) -> list[int]:
    """Steps whose samples the ranks take again, perhaps with another augmentation, where DataParallel takes others."""
    expected, *actual = map(drawn, evidence.here.all)
    return [
        step.number
        for step in _earlier(evidence)
        if all(actual)
        and [drawn(rank) for rank in step.ranks] == actual
        and sorted(drawn(step.reference)) != sorted(expected)
    ]


def _shuffled_on_one_side(evidence: Evidence) -> Iterator[str]:
    expected, *actual = _orders(evidence)
    if not expected or not all(actual):
        return
    if is_in_order(expected) and not any(map(is_in_order, actual)):
        yield "DataParallel takes samples in order, the ranks shuffle them: DistributedSampler(..., shuffle=False)"
    if all(map(is_in_order, actual)) and not is_in_order(expected):
        yield "DataParallel shuffles, the ranks take samples in order: shuffle=True for the sampler"


def _orders(evidence: Evidence) -> list[list[int]]:
    """The samples that the loader of the step takes in the whole run, in order: DataParallel's, then each rank's."""
    orders = []
    for trace, step in zip((evidence.reference, *evidence.ranks), evidence.here.all, strict=True):
        loader = next((draw.loader for draw in step.draws if draw.indices), -1)
        draws = (draw for line in trace.lines for draw in line["draws"])
        orders.append([index for of, indices, _ in draws if of == loader for index in indices or ()])
    return orders


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


def _earlier(evidence: Evidence) -> list[MatchedStep]:
    return [step for step in evidence.steps_of_all if step.number < evidence.here.number]


def _reference_rows(evidence: Evidence, begin: int = 0) -> list[Counter[int]]:
    """How often each row is in DataParallel's step, for each step from number `begin` on."""
    steps = (step for step in evidence.reference_steps if step.number >= begin)
    return [Counter(row for rows in _calls(step) for row in rows) for step in steps]


def samples(step: Step) -> dict[int, int]:
    """digest of a row -> index of the sample, where the batches of the loader are what the model was given."""
    indices = [index for draw in step.draws for index in draw.indices or ()]
    rows = [row for calls in _calls(step)[:1] for row in calls]
    return dict(zip(rows, indices, strict=True)) if len(indices) == len(rows) else {}


def _samples_of_all(evidence: Evidence) -> dict[int, int]:
    return {row: index for step in evidence.reference_steps for row, index in samples(step).items()}


def _untaken(evidence: Evidence, strangers: list[int]) -> dict[int, int]:
    """Those of the rows whose samples DataParallel takes in no step: digest -> index."""
    taken = {*_orders(evidence)[0]}
    own = {row: index for rank in evidence.here.ranks for row, index in samples(rank).items()}
    return {row: own[row] for row in strangers if row in own and own[row] not in taken}


def _replacement(evidence: Evidence) -> Iterator[Finding]:
    """A sampler that takes a sample again before it has taken the others, on one side only."""
    expected, *actual = _orders(evidence)
    if not expected or not all(actual):
        return
    again = takes_again(expected), ranks_take_again(actual)
    if not any(again):
        yield from _left_out(evidence, expected, actual)
    if again[0] == again[1]:
        return
    often, times = Counter(expected if again[0] else actual[0]).most_common(1)[0]
    side, other = (
        ("under DataParallel", "on the ranks") if again[0] else ("on the ranks", "under DataParallel")
    )
    text = f"{side} sample {often} is taken {times} times before others are taken once"
    yield finding("sampler-weights", 0.965, f"{text}; {other} each is taken once an epoch")


def _left_out(evidence: Evidence, expected: list[int], actual: list[list[int]]) -> Iterator[Finding]:
    """Samples that no rank takes, though ranks go through theirs more than once."""
    taken = {index for indices in actual for index in indices}
    # a rank's own data set counts from 0 again
    known, there = _samples_of_all(evidence), _rows_on_ranks(evidence.steps_of_all)
    missing = sorted({*expected} - taken - {index for row, index in known.items() if row in there})
    times = sum(map(len, actual)) / len(taken)
    dropped = sum(len(rows) for each in batches_of(evidence.here) for rows in each.ranks)
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
    """Whether each rank takes as many samples as its share has, all by the same numbers: of a data set of its own."""
    shares = {frozenset(indices) for indices in actual}
    alike = len(shares) == 1 and len(actual) * len(shares.pop()) >= len({*expected})
    return alike and not _are_numbered_alike(evidence)


def _are_numbered_alike(evidence: Evidence) -> bool:
    """Whether all rows that ranks share with DataParallel are known by the same numbers, some on each rank."""
    known = _samples_of_all(evidence)
    matches = [
        [known[row] == index for step in steps for row, index in samples(step).items() if row in known]
        for steps in zip(*(step.ranks for step in evidence.steps_of_all), strict=True)
    ]
    return bool(matches) and all(each and all(each) for each in matches)


def goes_round(indices: Sequence[int]) -> bool:
    """Whether the samples of an epoch come again in the same order, half of them at least."""
    period = indices.index(indices[0], 1) if indices[0] in indices[1:] else len(indices)
    return 3 * period <= 2 * len(indices) and all(
        a == b for a, b in zip(indices, indices[period:], strict=False)
    )


def _rows_on_ranks(steps: Sequence[MatchedStep]) -> set[int]:
    """Digests of what the ranks train on."""
    return {row for step in steps for rank in step.ranks for calls in _calls(rank) for row in calls}


def ranks_take_again(ranks: Sequence[Sequence[int]]) -> bool:
    """Each by itself, and all together: one that has a share of each epoch has other samples in the next one."""
    together = [index for indices in zip_longest(*ranks) for index in indices if index is not None]
    return all(map(takes_again, ranks)) and takes_again(together)


def takes_again(indices: Sequence[int]) -> bool:
    """Whether the first repetition comes before half of the samples; an epoch without replacement has none."""
    return 2 * len(_first_epoch(indices)) < len({*indices})


def _which(rows: list[int], known: dict[int, int]) -> str:
    indices = [known[row] for row in rows if row in known]
    return f": sample{'s' * (len(indices) > 1)} {names_text(sorted(indices))}" if indices else ""
