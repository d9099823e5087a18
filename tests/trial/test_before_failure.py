"""What is said of ranks that wait for each other: how far they came, where they had parted, what to do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dp2ddp.report.failure_text import BeforeFailure, failure_document, failure_text
from dp2ddp.runtime.process.run import Failure, Run
from dp2ddp.runtime.run_folder import Heartbeat, prepare_run_folder
from dp2ddp.runtime.stage import Stage
from dp2ddp.trace.record_folder import rank_folder
from dp2ddp.trace.records import read_trace
from dp2ddp.trace.writer import StepLine, Writer
from dp2ddp.trial.before_failure import before_failure
from tests.comparison.traces import GRADIENT, LAYOUT, trace, vector

HANG = Failure(
    "hang", 0, "nothing moved for 8 seconds", parting="collective 3 has been called by rank 0 alone"
)


def hanging(tmp_path: Path, steps: tuple[int, int], failure: Failure = HANG) -> tuple[Run, Stage]:
    """The run of a port, and DataParallel's stage."""
    stages = [
        Stage(
            "train.py", mode, 2, ".", str(tmp_path / mode), "train.py", trace=str(tmp_path / mode / "trace")
        )
        for mode in ("dp", "ddp")
    ]
    Path(stages[1].run_folder).mkdir()
    prepare_run_folder(stages[1])
    for rank, count in enumerate(steps):
        heartbeat = Heartbeat(Path(stages[1].run_folder), rank)
        for _ in range(count):
            heartbeat.step()
    return Run(stages[1], (None, None), 1.0, failure), stages[0]


def test_ranks_that_do_not_step_are_named_with_what_to_do(tmp_path: Path) -> None:
    run, reference = hanging(tmp_path, (3, 0))
    before = before_failure(run, reference, port=True)  # there is no record: no reason to say less
    assert before.sentences == ("the ranks had not taken the same optimizer steps: rank 0 3, rank 1 none",)
    assert before.advice.startswith(
        "rank 1 takes no optimizer step while others do; every rank has to make the same"
    )
    *_, steps, advice = failure_text(run, before=before).splitlines()
    assert steps == f"  before that: {before.sentences[0]}"
    assert advice == f"  what now: {before.advice}"
    assert failure_document(run, before=before)["before"] == list(before.sentences)


def test_steps_that_had_parted_before_are_told_with_their_cause(tmp_path: Path) -> None:
    run, reference = hanging(tmp_path, (2, 2))
    trace(Path(str(reference.trace)), [GRADIENT] * 4)
    for rank in range(2):
        trace(Path(str(run.stage.trace)), [GRADIENT * 2] * 2, rank=rank)
        (rank_folder(Path(str(run.stage.trace)), rank) / "end.json").unlink()  # it was killed
    before = before_failure(run, reference, port=True)
    steps, parted, likely = before.sentences
    assert steps == "each rank had taken 2 optimizer steps"
    assert parted == (
        "that run had parted from DataParallel's already: gradient of conv.weight at step 0, 1.0e+00 apart"
    )
    assert likely.startswith("its likely cause: Gradients are 2 times too large")
    assert "[sum-for-mean]" in likely


def test_steps_that_are_the_same_are_no_reason(tmp_path: Path) -> None:
    run, reference = hanging(tmp_path, (2, 2))
    trace(Path(str(reference.trace)), [GRADIENT] * 4)
    for rank in range(2):
        trace(Path(str(run.stage.trace)), [GRADIENT] * 2, rank=rank)
    before = before_failure(run, reference, port=False)
    assert before == BeforeFailure(
        ("each rank had taken 2 optimizer steps",),
        "a conversion of ours must not do this: please report it, with this text",
    )


@pytest.mark.parametrize("misses_a_rank", [False, True])
def test_a_rank_that_fails_by_itself_waits_for_nobody(tmp_path: Path, misses_a_rank: bool) -> None:
    failure = Failure("crash", 0, "ValueError: no data", misses_a_rank=misses_a_rank)
    run, reference = hanging(tmp_path, (1, 0), failure)
    assert (before_failure(run, reference, port=True) is not None) == misses_a_rank
    single = dataclasses.replace(run, stage=dataclasses.replace(run.stage, mode="dp"))
    assert before_failure(single, reference, port=True) is None


def test_the_first_step_is_on_disk_before_a_run_can_hang(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "rank0")
    line = StepLine(step=0, optimizer=0, layout=writer.write_layout(LAYOUT), learning_rates=(0.1,))
    writer.write_step(line, {"gradients": vector(GRADIENT), "parameters": vector(-GRADIENT)})
    assert [step.number for step in read_trace(tmp_path, 0).steps()] == [0]
