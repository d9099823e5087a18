"""What bench makes of a verdict, and which options go together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dp2ddp.costs.readings import Timed, read, write_or_say_why
from dp2ddp.costs.result import Sameness
from dp2ddp.errors import RunError
from dp2ddp.options import BenchOptions, VerifyOptions
from dp2ddp.progress import SILENT
from dp2ddp.runtime.process.run import Run
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.run_folder import RankStatus, write_status
from dp2ddp.runtime.stage import Stage
from dp2ddp.trial.subject import Subject, Version
from dp2ddp.trial.timing import _Bencher, _sameness, rest_text, runs_to_make, unwritten_readings
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
    said = "9 runs, one after the other: 1 comparison of 4 steps, 2 that count, 6 that are timed"
    assert runs_to_make((2,), two) == (9, said)
    said = "8 runs, one after the other: 4 that count, 4 that are timed"
    assert runs_to_make((1, 4), replace(two, rounds=1, compared=0)) == (8, said)


def test_the_rest_takes_as_long_as_what_was_made() -> None:
    assert rest_text(20.0, 2, 7) == "about 1:10 for the 7 runs that are left"
    assert rest_text(60.0, 6, 1) == "about 0:10 for the run that is left"


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
    monkeypatch.setattr("dp2ddp.trial.timing.try_with_launch", lambda subject, *others: (subject, ended))
    bencher = _Bencher(BenchOptions("train.py"), cast(Server, None), tmp_path, SILENT, count=9)
    with pytest.raises(
        RunError, match="takes no optimizer step.*ends with exit code 2: train.py: error: no --data"
    ):
        bencher._compare(subject_named("train.py"), 2)


def timed_run(folder: Path, ended: bool) -> Run:
    """DataParallel's, over; `ended`: its process said so."""
    folder.mkdir(exist_ok=True)
    write_status(folder, 0, RankStatus(1, 0 if ended else None))
    stage = Stage("train.py", "dp", 2, ".", str(folder), "train.py", timed=str(folder / "readings"))
    return Run(stage, (0,), 1.0, None)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (
            "no room",
            r"what was measured on rank 0 could not be written \(OSError: .*No space left on device\)",
        ),
        ("no room for the reason", r"could not be written \(nor could the reason be: is the disk full\?\)"),
        ("another program", "as it ended in another program"),
    ],
)
def test_why_there_is_no_reading_is_told_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, words: str
) -> None:
    run = timed_run(tmp_path, ended=how != "another program")
    folder = tmp_path / "readings"
    if how != "another program":
        no_room(monkeypatch, also_of_reason=how != "no room")
        write_or_say_why(lambda: Timed(virtual=True, steps=9), folder, 0)
    bencher = _Bencher(BenchOptions("train.py"), cast(Server, None), tmp_path, SILENT, count=9)
    steps = [reading.steps for reading in read(folder, range(1), Timed)]
    with pytest.raises(RunError, match=f"train.py: in dp mode on 2 devices nothing was measured.*{words}"):
        bencher._check(run, tmp_path / "room", folder, steps)


def no_room(monkeypatch: pytest.MonkeyPatch, also_of_reason: bool) -> None:
    """A full disk: files begin, and hold nothing; a reason is short, and may still find room."""
    write = Path.write_text

    def full(path: Path, text: str, **options: Any) -> int:
        if path.suffix != ".new" and not also_of_reason:
            return write(path, text, **options)
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)


def test_a_reading_is_written_whole(tmp_path: Path) -> None:
    write_or_say_why(lambda: Timed(virtual=True, steps=9), tmp_path, 0)
    assert [reading.steps for reading in read(tmp_path, range(1), Timed)] == [9]
    assert unwritten_readings(tmp_path, timed_run(tmp_path / "run", ended=True)) == ""


def subject_named(name: str) -> Subject:
    return Subject(VerifyOptions(name), Path(name), name, Version(b"", name), Path())
