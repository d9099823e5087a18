"""Scratch copies: complete enough to run in, and nothing of the user's is changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dp2ddp.comparison import workspace
from dp2ddp.comparison.workspace import copy_folder
from dp2ddp.errors import RunError


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "data").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "train.py").write_text("print(1)")
    (root / "data" / "a.bin").write_bytes(b"1234")
    for left_out in (".git", "__pycache__", "env"):
        (root / left_out).mkdir()
        (root / left_out / "file").write_text("")
    (root / "env" / "pyvenv.cfg").write_text("")
    return root


def test_files_and_empty_folders_are_copied_and_history_and_environments_are_not(
    project: Path, tmp_path: Path
) -> None:
    folder = copy_folder(project, tmp_path / "copy").folder
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    assert found == ["data", "data/a.bin", "empty", "train.py"]


def test_what_a_run_wrote_changed_and_removed_is_found(project: Path, tmp_path: Path) -> None:
    copy = copy_folder(project, tmp_path / "copy")
    (copy.folder / "new.txt").write_text("")
    (copy.folder / "train.py").write_text("print(2222)")
    (copy.folder / "data" / "a.bin").unlink()
    left = copy.left_behind()
    assert (left.written, left.removed) == (("new.txt", "train.py"), ("data/a.bin",))


def test_a_file_that_was_only_touched_is_no_leaving(project: Path, tmp_path: Path) -> None:
    copy = copy_folder(project, tmp_path / "copy")
    os.utime(copy.folder / "data" / "a.bin", (1, 1))  # h5py.File(..., "r+") does so
    assert copy.left_behind().written == ()


def test_a_large_file_is_not_copied(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "COPIED", 3)
    monkeypatch.setattr(workspace, "clone", lambda source, target: False)
    copy = copy_folder(project, tmp_path / "copy")
    assert (copy.folder / "data" / "a.bin").is_symlink()
    assert (copy.folder / "data" / "a.bin").read_bytes() == b"1234"


def test_a_folder_too_large_for_one_project_is_refused(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "MOST_FILES", 1)
    with pytest.raises(RunError, match="more than 1 files"):
        copy_folder(project, tmp_path / "copy")


def test_an_argument_that_names_the_folder_names_the_copy(project: Path, tmp_path: Path) -> None:
    copy = copy_folder(project, tmp_path / "copy")
    assert copy.here(f"{project}/data") == f"{copy.folder}/data"
    assert copy.here("data") == "data"


def test_an_argument_that_leads_out_of_the_folder_leads_to_the_same_place(
    project: Path, tmp_path: Path
) -> None:
    (project.parent / "beside").mkdir()
    copy = copy_folder(project, tmp_path / "copy")
    assert copy.here("../beside") == str((project.parent / "beside").resolve())
    assert copy.here("../not there") == "../not there"
