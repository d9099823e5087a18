"""What is told when a run of a trial fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dp2ddp.errors import RunError
from dp2ddp.runtime.process.run import Run
from dp2ddp.runtime.stage import Mode
from dp2ddp.trial.runs import Listener, environment, raise_or_report, users_environment
from dp2ddp.trial.subject import chosen_hashes
from tests.heard import Heard
from tests.report.made_up import failed_run


@pytest.mark.parametrize(
    ("chosen", "used", "users"),
    [(None, "0", ""), ("random", "0", ""), ("", "0", ""), ("0", "0", "0"), ("7", "7", "7")],
)
def test_hashes_of_strings_are_the_users_if_he_has_chosen_some(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, used: str, users: str
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    if chosen is not None:
        monkeypatch.setenv("PYTHONHASHSEED", chosen)
    assert environment()["PYTHONHASHSEED"] == used
    assert chosen_hashes() == users


@pytest.mark.parametrize(("kind", "before"), [("hang", []), ("crash", ["Traceback: all of it"])])
def test_a_hang_has_no_traceback_in_front_of_where_its_ranks_stand(
    kind: str, before: list[str], tmp_path: Path
) -> None:
    (tmp_path / "rank1.err").write_text("Traceback: all of it\n")
    made = failed_run(kind)
    run = replace(made, stage=replace(made.stage, run_folder=str(tmp_path)))
    heard = Heard()
    with pytest.raises(RunError, match="rank 0 waits in barrier") as caught:
        raise_or_report(run, heard)
    assert heard.lines == before
    assert caught.value.details["output"] == "Traceback: all of it"


class Original:
    """A run under DataParallel."""

    def __init__(self, run: Run) -> None:
        self.stage, self.started = run.stage, 0.0

    def codes(self) -> tuple[int | None, ...] | None:
        return None

    def kill(self) -> None:
        pass


def crashed(mode: Mode, seconds: float = 0.0) -> Run:
    made = failed_run("crash")
    return replace(made, stage=replace(made.stage, mode=mode), seconds=seconds)


def whole(run: Run) -> Run:
    return replace(run, failure=None)


def test_of_a_script_that_fails_by_itself_the_original_is_told_about_first() -> None:
    dp, ddp = crashed("dp"), crashed("ddp")
    told: list[Run] = []
    listener = Listener([Original(dp)], told.append)
    listener.on_end(ddp)
    listener.on_look()
    assert told == []
    listener.on_end(dp)
    assert told == [dp, ddp]


def test_a_conversion_that_fails_alone_is_told_about_when_its_original_is_over() -> None:
    dp, ddp = whole(crashed("dp")), crashed("ddp")
    told: list[Run] = []
    listener = Listener([Original(dp)], told.append)
    listener.on_end(dp)
    listener.on_end(ddp)
    assert told == [dp, ddp]


def test_a_conversion_does_not_wait_for_an_original_that_trains_on(monkeypatch: pytest.MonkeyPatch) -> None:
    dp, ddp = crashed("dp"), crashed("ddp", seconds=3.0)
    told: list[Run] = []
    now = [100.0]
    monkeypatch.setattr("dp2ddp.trial.runs.time.monotonic", lambda: now[0])
    listener = Listener([Original(dp)], told.append)
    listener.on_end(ddp)
    now[0] = 104.9  # as long again as it took itself, and two seconds
    listener.on_look()
    assert told == []
    now[0] = 105.0
    listener.on_look()
    assert told == [ddp]


def test_an_original_that_was_ended_to_make_room_is_not_waited_for() -> None:
    dp, ddp = crashed("dp"), crashed("ddp")
    told: list[Run] = []
    listener = Listener([Original(dp)], told.append)
    listener.on_end(ddp)
    listener.report_all()
    listener.report_all()
    assert told == [ddp]


def test_runs_of_the_other_precision_are_not_waited_for() -> None:
    dp, ddp = crashed("dp"), crashed("ddp")
    ddp = replace(ddp, stage=replace(ddp.stage, dtype="float64"))
    assert ddp.stage.dtype != dp.stage.dtype
    told: list[Run] = []
    Listener([Original(dp)], told.append).on_end(ddp)
    assert told == [ddp]


def test_runs_that_are_compared_have_one_thread_and_those_that_are_timed_what_the_user_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "4")
    assert environment()["OMP_NUM_THREADS"] == "1"
    assert "MKL_NUM_THREADS" not in environment()  # torch asks it first
    assert users_environment()["OMP_NUM_THREADS"] == users_environment()["MKL_NUM_THREADS"] == "4"
