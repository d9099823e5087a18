"""What is said of ranks that wait for each other: how far they came, what to do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dp2ddp.report.failure_text import BeforeFailure, failure_document, failure_text
from dp2ddp.runtime.process.run import Failure, Run
from dp2ddp.runtime.run_folder import Heartbeat, prepare_run_folder
from dp2ddp.runtime.stage import Stage
from dp2ddp.trial.runs import before_failure

HANG = Failure(
    "hang", 0, "nothing moved for 8 seconds", parting="collective 3 has been called by rank 0 alone"
)


def hanging(tmp_path: Path, steps: tuple[int, int], failure: Failure = HANG) -> Run:
    """The run of a port."""
    stage = Stage("train.py", "ddp", 2, ".", str(tmp_path), "train.py")
    prepare_run_folder(stage)
    for rank, count in enumerate(steps):
        heartbeat = Heartbeat(tmp_path, rank)
        for _ in range(count):
            heartbeat.step()
    return Run(stage, (None, None), 1.0, failure)


def test_a_conversion_that_hangs_is_ours_to_mend(tmp_path: Path) -> None:
    assert before_failure(hanging(tmp_path, (2, 2)), port=False) == BeforeFailure(
        ("each rank had taken 2 optimizer steps",),
        "a conversion of ours must not do this: please report it, with this text",
    )


def test_ranks_that_do_not_step_are_named_with_what_to_do(tmp_path: Path) -> None:
    run = hanging(tmp_path, (3, 0))
    before = before_failure(run, port=True)
    assert before.sentences == ("the ranks had not taken the same optimizer steps: rank 0 3, rank 1 none",)
    assert before.advice.startswith(
        "rank 1 takes no optimizer step while others do; every rank has to make the same"
    )
    *_, steps, advice = failure_text(run, before=before).splitlines()
    assert steps == f"  before that: {before.sentences[0]}"
    assert advice == f"  what now: {before.advice}"
    assert failure_document(run, before=before)["before"] == list(before.sentences)


@pytest.mark.parametrize("misses_a_rank", [False, True])
def test_a_rank_that_fails_by_itself_waits_for_nobody(tmp_path: Path, misses_a_rank: bool) -> None:
    failure = Failure("crash", 0, "ValueError: no data", misses_a_rank=misses_a_rank)
    run = hanging(tmp_path, (1, 0), failure)
    assert bool(before_failure(run, port=True).advice) == misses_a_rank
    single = dataclasses.replace(run, stage=dataclasses.replace(run.stage, mode="dp"))
    assert before_failure(single, port=True) == BeforeFailure()
