"""The command line in this process, its ranks forked from one that has torch: a fourth of the time.

For what a command says, compares and leaves behind. Left out is what a person's own shell adds: a process for the
command, one for its runs (the server is shared), torchrun. Claims about those start the real one (scripts.py).
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dp2ddp.cli import main
from dp2ddp.runtime.process.run import Process, Running
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.stage import Stage
from dp2ddp.trial.subject import Subject, subject_of

WITHOUT_TORCHRUN = (  # for a process of its own
    "import dataclasses\nfrom dp2ddp.trial import all_trials\nsubject_of = all_trials.subject_of\n"
    "all_trials.subject_of = lambda *given: dataclasses.replace(subject_of(*given), torchrun=False)"
)


def forked(server: Server, folder: Path, *arguments: object) -> Result:
    """`verify`, `run` or `bench` in a folder; of `bench` the timed runs of DDP are torchrun's all the same."""

    def timed(stage: Stage, *given: Any, **streams: Any) -> Running:
        return Process(stage, *given, **streams) if stage.mode == "ddp" else server.start(stage)

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        fork_trials(patch, server)
        patch.setattr("dp2ddp.trial.runs.Process", timed)
        patch.setattr(
            "dp2ddp.runtime.process.run.Process", lambda stage, given, **streams: Shown(server, stage)
        )
        return CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)


def fork_trials(patch: pytest.MonkeyPatch, server: Server, torchrun: bool = False) -> None:
    """Runs that are compared or measured come from this server, and none from torchrun, or those that always do."""
    for module in ("all_trials", "timing"):
        patch.setattr(f"dp2ddp.trial.{module}.Server", lambda environment: nullcontext(server))
        if not torchrun:
            patch.setattr(f"dp2ddp.trial.{module}.subject_of", _without_torchrun)


def _without_torchrun(*arguments: Any) -> Subject:
    return replace(subject_of(*arguments), torchrun=False)


class Shown:
    """A run of `run`: forked, and what its ranks printed is shown when it is over."""

    def __init__(self, server: Server, stage: Stage) -> None:
        self._running = server.start(replace(stage, capture=True, real=False))
        self._shown = False
        self.stage, self.started = self._running.stage, self._running.started

    def codes(self) -> tuple[int | None, ...] | None:
        return self._running.codes()

    def kill(self) -> None:
        self._running.kill()
        if not self._shown:
            self._show(sys.stdout, "out")
            self._show(sys.stderr, "err")
        self._shown = True

    def _show(self, stream: Any, ending: str) -> None:
        for rank in self.stage.ranks:
            path = Path(self.stage.run_folder) / f"rank{rank}.{ending}"
            stream.write(path.read_text() if path.exists() else "")
