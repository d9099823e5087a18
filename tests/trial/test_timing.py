"""What bench makes of a verdict, and which options go together."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dp2ddp.costs.result import Sameness
from dp2ddp.errors import RunError
from dp2ddp.progress import SILENT
from dp2ddp.runtime.server import Server
from dp2ddp.trial.bench_plan import BenchPlan
from dp2ddp.trial.options import VerifyOptions
from dp2ddp.trial.subject import Subject
from dp2ddp.trial.timing import Timing, _Bencher, _sameness
from tests.report.made_up import different, same

SUBJECT: Any = SimpleNamespace(script=Path("train.py"), port=Path("port.py"), launch="torchrun port.py")


def test_a_verdict_is_about_the_training() -> None:
    verdict = same()
    assert _sameness(SUBJECT, verdict) == Sameness("same", verdict.float64.steps)
    loud = _sameness(SUBJECT, dataclasses.replace(verdict, printing_ranks=(1,)))
    assert loud == Sameness("same", verdict.float64.steps, "port.py prints other lines, on 2 devices")
    assert loud.words.endswith("steps): port.py prints other lines, on 2 devices")
    found = _sameness(SUBJECT, different())
    assert found.proof == "different"
    assert found.text.startswith("port.py parts from train.py under DataParallel at step")


def test_nothing_that_was_compared_proves_nothing() -> None:
    verdict = same()
    none = dataclasses.replace(verdict, float64=dataclasses.replace(verdict.float64, steps=0))
    assert _sameness(SUBJECT, none).words == "not verified"


def test_a_run_has_to_be_longer_than_its_warm_up() -> None:
    wanted = VerifyOptions(script=Path("train.py"))
    with pytest.raises(ValueError, match="--steps 5 leaves none to measure"):
        Timing(wanted, warm_up=5, steps=5)
    assert Timing(wanted, warm_up=5, steps=6).rounds == 2


def test_what_an_original_says_that_lacks_an_argument_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = same()
    none = dataclasses.replace(verdict.float64, steps=0, rank_steps=(0, 0))
    ended = dataclasses.replace(
        verdict, float64=none, codes=(2, 2), last_words=("train.py: error: no --data",)
    )
    monkeypatch.setattr("dp2ddp.trial.timing.try_with_launch", lambda subject, *others: (subject, ended))
    bencher = _Bencher(
        Timing(VerifyOptions(script=Path("train.py"))),
        cast(Server, None),
        tmp_path,
        SILENT,
        BenchPlan.of((2,), 1, 4),
    )
    with pytest.raises(
        RunError, match="takes no optimizer step.*ends with exit code 2: train.py: error: no --data"
    ):
        bencher._compare(subject_named("train.py"), 2)


def subject_named(name: str) -> Subject:
    return Subject(Path(name), name, b"", name, {}, (), Path())
