"""What is told when a run of a trial fails."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from dp2ddp.errors import RunError
from dp2ddp.runtime.run import Run
from dp2ddp.runtime.stage import Mode
from dp2ddp.trial.runs import Listener, environment, raise_or_report, users_environment
from tests.heard import Heard
from tests.report.made_up import failed_run


@pytest.mark.parametrize(("kind", "before"), [("hang", []), ("crash", ["Traceback: all of it"])])
def test_a_hang_has_no_traceback_in_front_of_where_its_ranks_stand(
    kind: str, before: list[str], tmp_path: Path
) -> None:
    (tmp_path / "rank1.err").write_text("Traceback: all of it\n")
    made = failed_run(kind)
    run = dataclasses.replace(made, stage=dataclasses.replace(made.stage, run_folder=str(tmp_path)))
    heard = Heard()
    with pytest.raises(RunError, match="rank 0 waits in barrier") as caught:
        raise_or_report(run, heard)
    assert heard.lines == before
    assert caught.value.details is not None
    assert caught.value.details["output"] == "Traceback: all of it"


class Original:
    """A run under DataParallel that ends when it was asked so often."""

    def __init__(self, run: Run, asked: int) -> None:
        self.stage, self.started, self.asked = run.stage, 0.0, asked

    def codes(self) -> tuple[int | None, ...] | None:
        self.asked -= 1
        return (1,) if self.asked < 0 else None

    def kill(self) -> None:
        pass


def crashed(mode: Mode, seconds: float = 0.0) -> Run:
    made = failed_run("crash")
    return dataclasses.replace(made, stage=dataclasses.replace(made.stage, mode=mode), seconds=seconds)


def whole(run: Run) -> Run:
    return dataclasses.replace(run, failure=None)


def test_of_a_script_that_fails_by_itself_the_original_is_told_about_first() -> None:
    dp, ddp = crashed("dp"), crashed("ddp")
    told: list[Run] = []
    listener = Listener([Original(dp, asked=3)], told.append)
    listener.on_end(ddp)
    assert told == []
    listener.on_end(dp)
    assert told == [dp, ddp]


def test_a_conversion_that_fails_alone_is_told_about_when_its_original_is_over() -> None:
    dp, ddp = whole(crashed("dp")), crashed("ddp")
    told: list[Run] = []
    listener = Listener([Original(dp, asked=0)], told.append)
    listener.on_end(dp)
    listener.on_end(ddp)
    assert told == [dp, ddp]


def test_a_conversion_does_not_wait_for_an_original_that_trains_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody sleeps meanwhile: the other runs are watched."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("the watch stands still"))
    dp, ddp = crashed("dp"), crashed("ddp", seconds=30.0)
    told: list[Run] = []
    listener = Listener([Original(dp, asked=10**9)], told.append)
    listener.on_end(ddp)
    now += 31
    listener.on_look()
    assert told == []
    now += 2
    listener.on_look()
    assert told == [ddp]


def test_runs_that_are_compared_have_one_thread_and_those_that_are_timed_what_the_user_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "4")
    assert environment()["OMP_NUM_THREADS"] == "1"
    assert "MKL_NUM_THREADS" not in environment()  # torch asks it first
    assert users_environment()["OMP_NUM_THREADS"] == users_environment()["MKL_NUM_THREADS"] == "4"
