"""In which order a verification takes its things down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dp2ddp.errors import RunError
from dp2ddp.options import BenchOptions, VerifyOptions
from dp2ddp.trial import all_trials, timing

SUBJECT = SimpleNamespace(worlds=(2, 3))


class Stage:
    """What is there of scratch at each moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
        self.scratch = Path()
        self.there_at_the_end = False
        monkeypatch.setattr(module, "Server", lambda environment: self.server())
        monkeypatch.setattr(module, "subject_of", lambda *given: SUBJECT)
        make = module.scratch_folder

        @contextmanager
        def scratch_folder() -> Iterator[Path]:
            with make() as self.scratch:
                yield self.scratch

        monkeypatch.setattr(module, "scratch_folder", scratch_folder)

    @contextmanager
    def server(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.there_at_the_end = self.scratch.exists()


def test_copies_of_a_number_of_devices_go_when_it_is_judged_and_processes_end_before_the_scratch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(monkeypatch, all_trials)
    seen: list[list[str]] = []

    def trial(subject: Any, number: int, server: Any, scratch: Path, progress: Any) -> Any:
        seen.append(sorted(str(path.relative_to(stage.scratch)) for path in stage.scratch.rglob("*.pt")))
        (scratch / f"copy{number}.pt").touch()
        return SimpleNamespace(compared_nothing=False)

    monkeypatch.setattr(all_trials, "run_with_advice", trial)
    monkeypatch.setattr(all_trials, "report_on", lambda *given: given)
    all_trials.verify(VerifyOptions(script=Path("train.py"), devices=(2, 3)))
    assert seen == [[], []]
    assert stage.there_at_the_end
    assert not stage.scratch.exists()


def test_so_does_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, timing)

    def fail(*given: Any) -> Any:
        raise RunError("no")

    monkeypatch.setattr("dp2ddp.trial.timing.runs_to_make", fail)
    with pytest.raises(RunError):
        timing.bench(BenchOptions("train.py"))
    assert stage.there_at_the_end
    assert not stage.scratch.exists()
