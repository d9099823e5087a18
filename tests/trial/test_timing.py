"""What bench makes of a verdict, and which options go together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dp2ddp.costs.figures import Sameness, Timed, read, write
from dp2ddp.errors import RunError
from dp2ddp.options import BenchOptions, VerifyOptions
from dp2ddp.progress import SILENT
from dp2ddp.runtime.process.run import Run
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.stage import Stage
from dp2ddp.trial.subject import Subject, Version
from dp2ddp.trial.timing import _Bencher, _sameness, runs_to_make
from tests.report.made_up import different, same

SUBJECT: Any = SimpleNamespace(
    script=Path("train.py"), port=Path("port.py"), version=SimpleNamespace(launch="torchrun port.py")
)


def test_a_verdict_is_about_the_training() -> None:
    verdict = same()
    assert _sameness(SUBJECT, verdict) == Sameness("same", verdict.float64.steps)
    loud = _sameness(SUBJECT, replace(verdict, printing_ranks=(1,)))
    assert loud == Sameness("same", verdict.float64.steps, "port.py prints other lines, on 2 devices")
    assert loud.words.endswith("steps): port.py prints other lines, on 2 devices")
    found = _sameness(SUBJECT, different())
    assert found.proof == "different"
    assert found.text.startswith("port.py parts from train.py under DataParallel at step")


def test_all_runs_are_announced() -> None:
    two = BenchOptions("train.py", rounds=2, compared=4)
    said = "7 runs, one after the other: 1 comparison of 4 steps, 2 that count, 4 that are timed"
    assert runs_to_make((2,), two) == said
    said = "8 runs, one after the other: 4 that count, 4 that are timed"
    assert runs_to_make((1, 4), replace(two, rounds=1, compared=0)) == said


def test_nothing_that_was_compared_proves_nothing() -> None:
    verdict = same()
    none = replace(verdict, float64=replace(verdict.float64, steps=0))
    assert _sameness(SUBJECT, none).words == "not verified"


def test_a_run_has_to_be_longer_than_its_warm_up() -> None:
    with pytest.raises(ValueError, match="--steps 5 leaves none to measure"):
        BenchOptions("train.py", warm_up=5, steps=5)
    assert BenchOptions("train.py", warm_up=5, steps=6).rounds == 2


def test_what_an_original_says_that_lacks_an_argument_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = same()
    none = replace(verdict.float64, steps=0, rank_steps=(0, 0))
    ended = replace(verdict, float64=none, codes=(2, 2), last_words=("train.py: error: no --data",))
    monkeypatch.setattr("dp2ddp.trial.timing.run_with_advice", lambda *given: ended)
    bencher = _Bencher(BenchOptions("train.py"), cast(Server, None), tmp_path, SILENT)
    with pytest.raises(
        RunError, match="takes no optimizer step.*ends with exit code 2: train.py: error: no --data"
    ):
        bencher._compare(subject_named("train.py"), 2)


def test_a_rank_without_a_reading_is_told(tmp_path: Path) -> None:
    stage = Stage("train.py", "dp", 2, ".", str(tmp_path), "train.py")
    bencher = _Bencher(BenchOptions("train.py"), cast(Server, None), tmp_path, SILENT)
    with pytest.raises(RunError, match=r"train.py: in dp mode on 2 devices nothing was measured"):
        bencher._check(Run(stage, (0,), 1.0, None), tmp_path / "room", [])


def test_a_reading_is_written_whole(tmp_path: Path) -> None:
    write(Timed(virtual=True, steps=9), tmp_path, 0)
    assert [reading.steps for reading in read(tmp_path, range(1), Timed)] == [9]


def subject_named(name: str) -> Subject:
    return Subject(VerifyOptions(name), Path(name), name, Version(b"", name), Path())
