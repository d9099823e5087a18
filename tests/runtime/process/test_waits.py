"""A run that nobody gives a timeout says which ranks wait for which, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.runtime.hang.collectives import CallRing
from dp2ddp.runtime.process import run
from dp2ddp.runtime.run_folder import Heartbeat, prepare_run_folder
from dp2ddp.runtime.stage import Stage


def test_a_wait_of_a_minute_names_both_lines_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = Stage("train.py", "ddp", 2, ".", str(tmp_path), "train.py")
    prepare_run_folder(stage)
    rings = [CallRing(tmp_path, rank) for rank in stage.ranks]
    for ring in rings:
        ring.add("barrier", "", "", "train.py:7")
    waits = run._Waits(stage)
    monkeypatch.setattr(run, "_LONG", 0.0)
    for _ in range(3):
        waits.look([])
    assert capsys.readouterr().err == ""  # all have called the same: one computes
    rings[1].add("broadcast_object_list", "", "", "train.py:7")
    for _ in range(3):
        waits.look([])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dp2ddp: nothing has moved for")
    assert "broadcast_object_list at train.py:7, has been called by rank 1 and not by rank 0" in line
    assert line.endswith("its last one was barrier at train.py:7")
    Heartbeat(tmp_path, 0).beat()
    waits.look([])
    assert capsys.readouterr().err == ""
