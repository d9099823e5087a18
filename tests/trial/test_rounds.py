"""A trial where memory is short: fewer runs at once, some of them twice, and the same verdict."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from dp2ddp.comparison.verdict import Verdict
from dp2ddp.errors import RunError
from dp2ddp.options import VerifyOptions
from dp2ddp.runtime.process.room import Room
from dp2ddp.runtime.process.run import Run
from dp2ddp.runtime.process.server import Server
from dp2ddp.trial import rounds
from dp2ddp.trial.subject import Subject, subject_of
from dp2ddp.trial.trial import run_trial
from tests.heard import Heard

GB = 2**30
TRAIN = """
import torch
from torch import nn
torch.manual_seed(1)
net = nn.DataParallel(nn.Linear(4, 2).cuda())
optimizer = torch.optim.Adam(net.parameters())
for step in range(3):
    loss = net(torch.randn(8, 4).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
open("done.txt", "a").write("once")
"""


class Machine:
    """Memory that a test sets, and the scratch copies of each round."""

    def __init__(self) -> None:
        self.free = 32 * GB
        self.rounds: list[list[str]] = []


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(rounds, "read_room", lambda: Room(made.free, 32 * GB))
    watch = rounds.MemoryWatch.watch

    def watching(self: rounds.MemoryWatch, *arguments: object) -> list[Run]:
        made.rounds.append([Path(each.stage.run_folder).parent.name for each in self._runnings])
        return watch(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(rounds.MemoryWatch, "watch", watching)
    return made


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    monkeypatch.chdir(folder)
    return replace(subject_of(VerifyOptions(script=Path("train.py"))), torchrun=False)


def tried(subject: Subject, server: Server, tmp_path: Path) -> tuple[Verdict, Heard]:
    heard = Heard()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return run_trial(subject, 2, server, scratch, heard), heard


ALL = ["dp-float64-2", "ddp-float64-2", "dp-float32-2", "ddp-float32-2"]


def test_all_run_at_once_where_there_is_room(
    subject: Subject, machine: Machine, server: Server, tmp_path: Path
) -> None:
    verdict, _ = tried(subject, server, tmp_path)
    assert machine.rounds == [ALL]
    assert (verdict.same, verdict.in_turn) == (True, False)
    assert sorted(each.run for each in verdict.memory) == [
        "ddp in float32",
        "ddp in float64",
        "dp in float32",
        "dp in float64",
    ]


def test_one_after_the_other_where_there_is_none_and_the_verdict_is_the_same(
    subject: Subject, machine: Machine, server: Server, tmp_path: Path
) -> None:
    machine.free = GB  # of 32: less than what stays free
    verdict, heard = tried(subject, server, tmp_path)
    assert machine.rounds == [[each] for each in ALL], "what is judged comes first"
    assert (verdict.same, verdict.in_turn) == (True, True)
    assert (verdict.float64.identical, verdict.files.files) == (True, 1)
    assert not any("again" in line for line in heard.lines), "nothing was started to be ended"


def test_runs_that_were_ended_to_make_room_begin_anew(
    subject: Subject, machine: Machine, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = rounds.held_by

    def goes(stage: object, server: int) -> int:
        if len(machine.rounds) == 1:
            machine.free = GB
        return held(stage, server)  # type: ignore[arg-type]

    monkeypatch.setattr(rounds, "held_by", goes)
    verdict, heard = tried(subject, server, tmp_path)
    assert machine.rounds[0] == ALL
    assert machine.rounds[1:] == [["ddp-float64-again-2"], ["dp-float32-again-2"], ["ddp-float32-again-2"]]
    assert (verdict.same, verdict.in_turn) == (True, True)
    assert verdict.files.files == 1, "a new scratch copy: what the first try wrote is not there"
    assert not (tmp_path / "scratch" / "ddp-float32-2").exists(), "and takes no space"
    assert any("too little for all at once" in line for line in heard.lines)


def test_what_does_not_fit_though_all_of_it_has_to_run_at_once_is_not_begun(
    subject: Subject, machine: Machine, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.free = GB
    monkeypatch.setattr(rounds, "prepare", lambda *arguments: pytest.fail("begun"))
    kinds = [rounds.RunKind("dp", "float64", lockstep=True), rounds.RunKind("ddp", "float64", lockstep=True)]
    with pytest.raises(
        RunError, match=r"2 runs have to run at once, and do not fit: 1.07 GB are free of the 34.4 GB"
    ):
        rounds.Rounds(subject, 2, server, tmp_path, Heard(), ExitStack()).run(*kinds, together=True)


def test_a_script_that_asks_for_too_much_is_not_said_to_crash(
    subject: Subject, server: Server, tmp_path: Path
) -> None:
    asking = TRAIN.replace("for step", "big = torch.empty(10**15)\nfor step")
    subject.script.write_text(asking)
    changed = replace(subject_of(VerifyOptions(script=Path("train.py"))), torchrun=False)
    with pytest.raises(RunError) as caught:
        tried(changed, server, tmp_path)
    first, second = str(caught.value).splitlines()
    assert first.startswith("train.py: runs out of memory in dp mode on 2 devices: ")
    assert "DefaultCPUAllocator: can't allocate memory" in first
    assert "original" not in first
    assert second.startswith("  what now: a smaller batch")
    assert caught.value.details["kind"] == "memory"
    assert "train.py" in str(caught.value.details["output"]), "where the script asked"
