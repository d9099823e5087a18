"""Signatures on built traces: what planted faults (tests/mutations) do not show, or not each by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dp2ddp.comparison.aligned import Aligned
from dp2ddp.comparison.causes.catalogue import Cause
from dp2ddp.comparison.causes.diagnose import diagnose, with_aligned
from dp2ddp.comparison.causes.evidence import Evidence
from dp2ddp.comparison.compare import Difference, compare
from dp2ddp.comparison.contents import How
from dp2ddp.comparison.output_comparison import (
    FileDifference,
    FilesComparison,
    Outside,
    TextComparison,
    UnlikeLine,
)
from dp2ddp.comparison.tolerance import FLOAT64
from dp2ddp.trace.records import Draw, Forward, Trace
from tests.comparison.traces import GRADIENT, Taken, record, trace, two_optimizers

OTHER = np.array([0.3, 1.0, -2.0, 0.7, 0.1])
FIRST = [GRADIENT, OTHER]


def causes_of(reference: Trace, *traces: Trace) -> tuple[Cause, ...]:
    found = compare(reference, traces, FLOAT64, port=True)
    causes = diagnose(Evidence(len(traces), reference, traces, found))
    assert all(0 < cause.weight <= 1 and cause.evidence and cause.advice for cause in causes)
    return causes


def causes_of_steps(folder: Path, expected: Taken, *actual: Taken) -> tuple[Cause, ...]:
    """Of one step of DataParallel, and that of each rank."""
    ranks = (record(folder / "ddp", [taken], rank=rank) for rank, taken in enumerate(actual))
    return causes_of(record(folder / "dp", [expected]), *ranks)


def test_a_factor_is_told_where_no_loss_is_known(tmp_path: Path) -> None:
    """torch.autograd.grad, or gradients that the script sets itself."""
    own = [Taken(GRADIENT * 0.7)] * 2
    assert causes_of_steps(tmp_path, Taken(GRADIENT), *own)[0].code == "gradient-scale"


@pytest.mark.parametrize(
    ("kept", "code"),
    [
        (1.0, "gradients-kept"),
        (0.5, "gradients-kept"),
        (0.3, "other-reduction"),
        (np.nan, "other-reduction"),
    ],
    ids=["by all", "by one of two", "by no rank", "no number"],
)
def test_gradients_that_ranks_keep_are_a_part_of_the_step_before(
    tmp_path: Path, kept: float, code: str
) -> None:
    reference = trace(tmp_path / "dp", FIRST)
    own = [GRADIENT, OTHER + kept * GRADIENT]
    ranks = (trace(tmp_path / "ddp", own, rank=rank, parameters=[-each for each in own]) for rank in range(2))
    causes = causes_of(reference, *ranks)
    assert causes[0].code == code, [cause.code for cause in causes]
    assert ("1 of 2 ranks keep theirs" in causes[0].evidence) == (kept == 0.5)


@pytest.mark.parametrize(
    ("offset", "code"),
    [([0.5, 0.1, 0.2, -0.3, 0.4], "not-synchronised"), ([0, 0, 0, 0.3, 0.4], "partly-synchronised")],
    ids=["all of them", "one tensor"],
)
def test_gradients_that_ranks_keep_to_themselves(tmp_path: Path, offset: list[float], code: str) -> None:
    reference = trace(tmp_path / "dp", FIRST)
    own = [[GRADIENT + sign * np.array(offset), OTHER] for sign in (1, -1)]
    ranks = (trace(tmp_path / "ddp", each, rank=rank) for rank, each in enumerate(own))
    assert causes_of(reference, *ranks)[0].code == code


@pytest.mark.parametrize(
    ("names", "gradient", "code"),
    [
        (("conv.weight", "line.weight"), 2.0, "sum-for-mean"),
        (("conv.weight", "conv.weight"), 1.0, "optimizer-settings"),
        (("conv.weight", "line.weight"), 1.0, "initial-state"),
    ],
    ids=["its first phase differs before", "by what another optimizer has trained", "of its own"],
)
def test_what_a_later_optimizer_begins_with(
    tmp_path: Path, names: tuple[str, str], gradient: float, code: str
) -> None:
    after = 3.0 if names[0] == names[1] else 1.0
    reference = two_optimizers(tmp_path / "dp", names, (1.0, 2.0), 1.0)
    ranks = (two_optimizers(tmp_path / "ddp", names, (1.0, 2.5), after, gradient, rank) for rank in range(2))
    assert causes_of(reference, *ranks)[0].code == code


def test_more_groups_of_the_same_rate_are_no_other_rate(tmp_path: Path) -> None:
    whole, own = Taken(GRADIENT, rates=(0.1,)), Taken(GRADIENT, rates=(0.1, 0.1), parameter=-0.9 * GRADIENT)
    codes = [cause.code for cause in causes_of_steps(tmp_path, whole, own, own)]
    assert codes == ["optimizer-settings"]


def test_nothing_is_said_of_runs_that_agree(tmp_path: Path) -> None:
    reference, *ranks = (
        trace(tmp_path / name, FIRST, rank=rank) for name, rank in (("dp", 0), ("ddp", 0), ("ddp", 1))
    )
    assert causes_of(reference, *ranks) == ()


@pytest.mark.parametrize(
    ("asked", "code"), [("bfloat16", "dataparallel-autocast"), ("float32", "other-precision")]
)
def test_float16_in_the_threads_of_dataparallel_is_its_own_fault(
    tmp_path: Path, asked: str, code: str
) -> None:
    asks = ((asked, "float16"), (asked,), (asked,))
    (only,) = causes_of_steps(tmp_path, *(Taken(GRADIENT, events={"precision": each}) for each in asks))
    assert only.code == code


def test_a_factor_that_clipping_hides_is_told_with_what_hides_it(tmp_path: Path) -> None:
    steps = (Taken(GRADIENT, unclipped=GRADIENT * factor) for factor in (3, 6, 6))
    first, *_ = causes_of_steps(tmp_path, *steps)
    assert first.code == "sum-for-mean"
    assert "clipping hides it" in " ".join(first.evidence)


@pytest.mark.parametrize(
    ("losses", "forwards", "code"),
    [((1.1, 1.1), (), "repeated-rows"), ((1.1, 0.9), (Forward(True, (3,)),), "sync-batchnorm")],
    ids=["a model called past its wrapper, on all rows", "statistics over the rows of all ranks"],
)
def test_statistics_of_all_rows(
    tmp_path: Path, losses: tuple[float, ...], forwards: tuple[Forward, ...], code: str
) -> None:
    def taken(gradient: np.ndarray, mean: float, loss: float, called: tuple[Forward, ...]) -> Taken:
        buffers = {"bn.running_mean": np.full(3, mean), "bn.running_var": np.full(3, 1 + mean)}
        return Taken(gradient, events={"losses": (loss,), "forwards": called}, buffers=buffers)

    whole = taken(GRADIENT, 0.1, 1.0, (Forward(True, (3, 3)),))
    own = (taken(OTHER, 0.2, loss, forwards) for loss in losses)
    assert causes_of_steps(tmp_path, whole, *own)[0].code == code


def test_what_ranks_write_comes_behind_what_makes_another_training(tmp_path: Path) -> None:
    reference, *ranks = (
        trace(tmp_path / name, FIRST, rank=rank) for name, rank in (("a", 0), ("b", 0), ("b", 1))
    )
    same = compare(reference, ranks, FLOAT64, port=True)
    files = (
        FileDifference("last.pt", "is written by DDP only", how=How.DDP_ONLY),
        FileDifference("last.pt", "is written by ranks 0, 1", ranks=(0, 1)),
        FileDifference("rank1.pt", "is written by DDP only", how=How.DDP_ONLY),
    )
    left = FilesComparison(3, files)
    outside = diagnose(Evidence(2, reference, tuple(ranks), same, Outside(files=left)))
    assert [cause.code for cause in outside] == ["every-rank-writes", "doubled-files"]
    assert [cause.evidence for cause in outside] == [
        ("last.pt is written by ranks 0, 1",),
        ("rank1.pt is written by DDP only",),
    ]
    training = [
        Cause(code, "", ("figures",), "", weight, ())
        for code, weight in (("other-seed", 0.9), ("batch-size", 0.7))
    ]
    codes = [cause.code for cause in with_aligned(tuple(training), Aligned(same, causes=outside))]
    assert codes == ["other-seed", "every-rank-writes", "doubled-files", "batch-size"]


def test_what_aligned_runs_only_guess_comes_behind_other_random_numbers(tmp_path: Path) -> None:
    """That other random numbers are all is disproven where the same ones lead apart, whatever the other cause is."""
    reference = trace(tmp_path / "dp", FIRST)
    ranks = [trace(tmp_path / "ddp", [OTHER, OTHER], rank=rank) for rank in range(2)]
    apart = compare(reference, ranks, FLOAT64, port=True)
    order = Cause("other-order", "", ("figures",), "", 0.9, ())
    guess = Cause("other-computation", "", ("same rows",), "", 0.6, ())
    told = with_aligned((order, guess), Aligned(apart, causes=(guess,)))
    assert [cause.code for cause in told] == ["other-order", "other-computation"]
    seen = "seen with DataParallel's random numbers, where"
    assert told[1].evidence[0] == f"{seen} step 0 is the first that differs"
    average = replace(apart, first=Difference("unstepped parameter", 1.0, 1, 0, "ema.weight"))
    told = with_aligned((order, guess), Aligned(average, causes=(guess,)))
    assert told[1].evidence[0] == f"{seen} what models hold at the end differs"


@pytest.mark.parametrize(("steps", "found"), [(1, True), (2, False)])
def test_batches_are_counted_where_both_end_at_one_step(tmp_path: Path, steps: int, found: bool) -> None:
    """After a stop of one of them BatchNorm has counted others."""

    def trained(folder: str, mean: float, steps: int, rank: int = 0) -> Trace:
        taken = Taken(GRADIENT, buffers={"bn.running_mean": np.full(3, mean)})
        counted = {"bn.num_batches_tracked": np.array([6 if folder == "dp" else 3])}
        return record(tmp_path / folder, [taken] * steps, rank=rank, buffers=counted)

    ranks = (trained("ddp", 0.2, 1, rank) for rank in range(2))
    codes = [cause.code for cause in causes_of(trained("dp", 0.1, steps), *ranks)]
    assert ("evaluation-mode" in codes) == found


@pytest.mark.parametrize(("rows", "code"), [((3, 4), "buffers-of-another-rank"), ((30, 40), "other-inputs")])
def test_rows_that_are_shifted_in_front_of_batchnorm_are_other_rows(
    tmp_path: Path, rows: tuple[int, int], code: str
) -> None:
    """Each rank subtracts the mean of its own: BatchNorm takes that away, and keeps another mean."""

    def taken(digests: tuple[int, ...], mean: float) -> Taken:
        events = {"forwards": (Forward(True, (len(digests),), digests),), "losses": (1.0,)}
        return Taken(GRADIENT, events=events, buffers={"bn.running_mean": np.full(3, mean)})

    own = (taken((row,), 0.2) for row in rows)
    assert causes_of_steps(tmp_path, taken((4, 3), 0.1), *own)[0].code == code


def test_a_count_that_one_rank_loaded_with_its_weights_is_no_mode(tmp_path: Path) -> None:
    def taken(gradient: np.ndarray, count: int, moved: float = 1.0) -> Taken:
        counted = {"bn.num_batches_tracked": np.array([float(count)])}
        return Taken(gradient, parameter=-moved * gradient, buffers=counted)

    own = (taken(OTHER, 6, 1 + rank) for rank in range(2))
    assert causes_of_steps(tmp_path, taken(GRADIENT, 11), *own)[0].code == "ranks-part"


@pytest.mark.parametrize(("mean", "found"), [(0.1, True), (0.2, False)])
def test_local_counts_are_found_behind_batchnorm_where_chunks_are_alike(
    tmp_path: Path, mean: float, found: bool
) -> None:
    def taken(gradient: np.ndarray, loss: float, mean: float) -> list[Taken]:
        return [Taken(gradient, events={"losses": (loss,)}, buffers={"bn.running_mean": np.full(3, mean)})]

    losses = (1.5, 1.25)
    reference = record(tmp_path / "dp", taken(GRADIENT, (13 * losses[0] + 18 * losses[1]) / 31, 0.1))
    ranks = tuple(
        record(tmp_path / "ddp", taken(OTHER, loss, mean), rank=rank) for rank, loss in enumerate(losses)
    )
    apart = compare(reference, ranks, FLOAT64, port=True)
    aligned = diagnose(Evidence(2, reference, ranks, apart, random_only=False))
    assert ("local-counts" in [cause.code for cause in aligned]) == found


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        (
            (0.6, 0.4),
            "so is the loss that backward starts from: 0.5 (mean of the ranks), under DataParallel 1",
        ),
        ((1.2, 0.8), "the loss that backward starts from is right (1): the factor comes behind it"),
        ((0.3, 0.4), ""),  # says nothing
    ],
    ids=["the loss is divided", "averaged once more", "another loss"],
)
def test_a_loss_that_is_divided_is_told_from_gradients_that_are(
    tmp_path: Path, losses: tuple[float, float], words: str
) -> None:
    whole = Taken(GRADIENT, events={"losses": (1.0,)})
    own = (Taken(GRADIENT / 2, events={"losses": (loss,)}) for loss in losses)
    first, *_ = causes_of_steps(tmp_path, whole, *own)
    assert first.code == "mean-for-sum"
    assert "or the loss is divided by 2" in first.title
    assert "divided by 2" in first.advice
    told = [each for each in first.evidence if each.startswith(("so is", "the loss"))]
    assert [each.startswith(words) for each in told] == [True] * bool(words)
    assert ("Another -n tells" in " ".join(told)) == (words[:5] == "so is")


# Samples of two steps, for DataParallel and for each rank, and how many of them each rank's model gets.
SPLIT_TWICE = {
    "each rank has a sampler": ([[0, 1, 2, 3], [4, 5, 6, 7]], [[[0, 2, 4, 6]], [[1, 3, 5, 7]]], (2, 2)),
    "and its part of the batch size": (
        [[0, 1, 2, 3], [4, 5, 6, 7]],
        [[[0, 2, 4], [6]], [[1, 3, 5], [7]]],
        (2, 1),
    ),
    "rank 0 loads for all": ([[0, 1, 2, 3], [4, 5, 6, 7]], [[[0, 2, 4, 6]], [[]]], (2, 2)),
}
SPLIT_ONCE = {
    "a sampler": ([[0, 1, 2, 3], [4, 5, 6, 7]], [[[0, 3], [6, 4]], [[1, 7], [2, 5]]], (2, 2)),
    "all load the whole batch": ([[0, 1, 2, 3], [4, 5, 6, 7]], [[[7, 1, 2, 3], [0, 4, 5, 6]]] * 2, (2, 2)),
    "rank 0 loads, and fewer epochs": ([[0, 1, 2, 3]] * 2, [[[3, 2, 0, 1]], [[]]], (2, 2)),
}


@pytest.mark.parametrize("name", [*SPLIT_TWICE, *SPLIT_ONCE])
def test_a_sampler_before_a_wrapper_that_splits_is_the_cause(tmp_path: Path, name: str) -> None:
    whole, own, rows = (SPLIT_TWICE | SPLIT_ONCE)[name]

    def taken(samples: list[int], given: tuple[int, ...], at: int = 0) -> Taken:
        digests = tuple(100 + each for each in (samples or [8, 9])[at : at + sum(given)])
        draws = (Draw(0, tuple(samples)),) if samples else ()
        events = {"draws": draws, "forwards": (Forward(True, given, digests),), "losses": (1.0,)}
        return Taken(GRADIENT if len(given) > 1 else OTHER, events=events)

    reference = record(tmp_path / "dp", [taken(samples, (2, 2)) for samples in whole])
    ranks = [
        record(
            tmp_path / "ddp",
            [taken(samples, (rows[rank],), 2 * rank * (len(samples) > 2)) for samples in own[rank]],
            rank=rank,
        )
        for rank in range(2)
    ]
    codes = [cause.code for cause in causes_of(reference, *ranks)]
    assert (codes[:1] == ["split-twice"]) == (name in SPLIT_TWICE), codes


@pytest.mark.parametrize(("count", "missing"), [(8, False), (16, True)])
def test_samples_of_a_data_set_that_each_rank_has_cut_for_itself_are_not_missing(
    tmp_path: Path, count: int, missing: bool
) -> None:
    """Subset(data, range(rank, 8, 2)) counts from 0 on each rank, and augmented rows tell nobody which they are."""

    def run(who: int, count: int, rank: int = 0) -> Trace:
        draws = (Draw(0, tuple(range(count))),)
        rows = [tuple(1000 * who + 100 * epoch + each for each in range(count)) for epoch in range(3)]
        steps = [{"draws": draws, "forwards": (Forward(True, (count,), each),)} for each in rows]
        gradient = OTHER if who else GRADIENT
        return record(tmp_path / str(who), [Taken(gradient, events=each) for each in steps], rank=rank)

    codes = [cause.code for cause in causes_of(run(0, count), run(1, 4), run(2, 4, rank=1))]
    assert ("missing-samples" in codes) is missing, codes


@pytest.mark.parametrize("known", [True, False])
def test_samples_are_missing_where_all_ranks_take_one_part_of_the_data(tmp_path: Path, known: bool) -> None:
    """By its numbers it may be a data set of each rank's own; rows that DataParallel has, too, tell that it is not."""

    def run(who: int, *steps: list[int]) -> Trace:
        first = 900 if who == 2 and not known else 0
        events = [
            {
                "draws": (Draw(0, tuple(step)),),
                "forwards": (Forward(True, (len(step),), tuple(first + each for each in step)),),
            }
            for step in steps
        ]
        gradient = OTHER if who else GRADIENT
        return record(tmp_path / str(who), [Taken(gradient, events=each) for each in events], rank=who == 2)

    ranks = run(1, [2, 0], [3, 1]), run(2, [3, 1], [0, 2])
    codes = [cause.code for cause in causes_of(run(0, [0, 2, 4, 6], [1, 3, 5, 7]), *ranks)]
    assert ("missing-samples" in codes) is known, codes


@pytest.mark.parametrize(
    ("shares", "code"),
    [
        (([0, 1], [2, 0]), "padded-rows"),  # three samples, of which ranks evaluate the first twice
        (([0, 1], [2]), "local-numbers"),  # each once
    ],
)
def test_what_ranks_evaluate_twice_to_be_as_many_is_said(
    tmp_path: Path, shares: tuple[list[int], list[int]], code: str
) -> None:
    def run(folder: str, rank: int, evaluated: list[int]) -> Trace:
        draws = (Draw(1, tuple(evaluated)), Draw(0, (rank,)))
        events = {"draws": draws, "collectives": (("all_gather", 1),) if folder == "ddp" else ()}
        return record(tmp_path / folder, [Taken(GRADIENT, events=events)], rank=rank)

    reference = run("dp", 0, [0, 1, 2])
    ranks = tuple(run("ddp", rank, share) for rank, share in enumerate(shares))
    found = compare(reference, ranks, FLOAT64, port=True)
    assert found.same
    stdout = TextComparison(1, UnlikeLine(1, "loss 0.5", "loss 0.25"))
    evidence = Evidence(2, reference, ranks, found, Outside(stdout=stdout))
    assert diagnose(evidence)[0].code == code


@pytest.mark.parametrize(
    ("line", "file", "code"),
    [
        ("{{'train_runtime': '0.5', 'train_loss': '{}', 'epoch': '2'}}", "", "trainers-loss"),
        ("train_loss {}", "", "other-output"),  # the script's own
        ("", "out/all_results.json", "trainers-loss"),
        ("", "out/mine.json", "other-output"),
    ],
)
def test_the_loss_that_transformers_says_at_the_end(tmp_path: Path, line: str, file: str, code: str) -> None:
    reference, *ranks = (trace(tmp_path / name, FIRST) for name in ("dp", "0", "1"))
    loss = FileDifference(file, "is 0.25 instead of 0.5", how=How.NUMBERS, at="['train_loss']")
    first = UnlikeLine(1, line.format(0.5), line.format(0.25)) if line else None
    seen = Outside(stdout=TextComparison(1, first), files=FilesComparison(1, (loss,) * bool(file)))
    evidence = Evidence(2, reference, tuple(ranks), compare(reference, ranks, FLOAT64, port=True), seen)
    assert [cause.code for cause in diagnose(evidence)] == [code]


@pytest.mark.parametrize(("own", "code"), [(0.5, "other-output"), (0.25, "local-numbers")])
def test_a_number_is_no_ranks_own_where_each_rank_has_dataparallels_losses(
    tmp_path: Path, own: float, code: str
) -> None:
    """A conversion that does not leave an input as its forward wrote it: all ranks compute of all rows."""

    def run(rank: int, loss: float) -> Trace:
        return record(tmp_path / str(loss), [Taken(GRADIENT, events={"losses": (loss,)})], rank=rank)

    reference, ranks = run(2, 0.5), (run(0, own), run(1, own))
    seen = Outside(stdout=TextComparison(1, UnlikeLine(1, "x 0.5", "x 0.25")))
    found = diagnose(Evidence(2, reference, ranks, compare(reference, ranks, FLOAT64, port=True), seen))
    assert [cause.code for cause in found] == [code]


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_zeros_for_none_explain_no_other_gradient(tmp_path: Path, factor: float) -> None:
    with_zeros = np.where(np.arange(5) < 3, GRADIENT, 0.0)
    reference = trace(tmp_path / "dp", [with_zeros])
    own = with_zeros * factor
    ranks = tuple(
        trace(tmp_path / "ddp", [own], rank=rank, missing=(1,), parameters=[-own]) for rank in range(2)
    )
    codes = [cause.code for cause in causes_of(reference, *ranks)]
    assert (codes[:1] == ["zeros-for-none"]) == (factor == 1.0), codes
