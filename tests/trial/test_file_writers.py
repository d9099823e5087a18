"""A file that every rank writes is named, though it is whole; so is one outside of the folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from dp2ddp.copies.linked import copy_by_links
from dp2ddp.copies.scratch import Copies
from dp2ddp.runtime.process.writes import Writes
from dp2ddp.runtime.stage import Mode, Stage
from dp2ddp.trial.outside import written_by_many, written_outside
from dp2ddp.trial.prepare import Prepared, RunKind


def prepared(room: Path, mode: Mode = "ddp") -> Prepared:
    original = room / "original"
    original.mkdir(parents=True)
    workspace = copy_by_links(original, room / "copy", {}, (), ())
    run_folder = room / "copy" / "run"
    run_folder.mkdir()
    folder = str(workspace.folder)
    places = {"scratch": str(room / "copy"), "owned": (folder,)}
    stage = Stage("train.py", mode, 2, folder, str(run_folder), "train.py", **places)  # type: ignore[arg-type]
    return Prepared(RunKind(mode, "float64"), stage, Copies((workspace,), None))


def write(run: Prepared, rank: int, path: Path, text: str = "x", anew: bool = True) -> None:
    path.write_text(text)
    Writes(Path(run.stage.run_folder), rank).note(path, anew)


def test_a_file_that_several_ranks_begin_anew_is_named(tmp_path: Path) -> None:
    run = prepared(tmp_path / "ddp")
    folder = run.workspaces[0].folder
    for rank in range(2):
        write(run, rank, folder / "net.pt")
        write(run, rank, folder / f"rank{rank}.txt")  # of its own
        write(run, rank, folder / "log.txt", anew=False)  # lines that are there twice show
        write(run, rank, folder / "lock", text="")
        Writes(Path(run.stage.run_folder), rank).note(os.devnull, True)
    (found,) = written_by_many(run, run.workspaces[0].left_behind())
    assert (found.path, found.ranks) == ("net.pt", (0, 1))
    assert re.fullmatch(r"is written by ranks 0, 1 \(test_file_writers.py:\d+\)", found.what)


def test_one_rank_may_write_as_often_as_it_likes(tmp_path: Path) -> None:
    run = prepared(tmp_path / "ddp")
    for _ in range(2):
        write(run, 0, run.workspaces[0].folder / "net.pt")
    assert list(written_by_many(run, run.workspaces[0].left_behind())) == []


def test_a_file_outside_of_the_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = prepared(tmp_path / "dp", "dp"), prepared(tmp_path / "ddp")
    place = tmp_path / "elsewhere.pt"
    for run in both:
        write(run, 0, place)
        write(run, 0, run.workspaces[0].folder / "net.pt")
        Writes(Path(run.stage.run_folder), 0).note(os.devnull, True)
        Writes(Path(run.stage.run_folder), 0).note(tmp_path / "gone", True)
    (remark,) = written_outside(both)
    assert remark == (
        f"both runs wrote to {place}, outside of the folder: not compared, and overwritten by each run"
    )


def test_a_file_beside_the_folder_that_the_copy_caught_is_named_as_the_user_knows_it(tmp_path: Path) -> None:
    both = prepared(tmp_path / "a" / "dp", "dp"), prepared(tmp_path / "a" / "ddp")
    for run in both:
        write(run, 0, run.workspaces[0].folder.parent / "beside.pt")
    remarks = sorted(written_outside(both))
    assert remarks == [
        f"{who} wrote to {tmp_path}/a/{name}/beside.pt, outside of the folder: not compared"
        for who, name in (("DDP", "ddp"), ("DataParallel", "dp"))
    ]
