"""Checkpoints are whole or absent, have torch.save's bytes, and keep what the old file was to others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from dp2ddp.templates.checkpoints import save_completely, save_on_rank0


class Unsavable:
    def __reduce__(self) -> Any:
        raise ValueError("not this one")


def test_one_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    save_on_rank0({"epoch": 1}, path)
    with pytest.raises(ValueError, match="not this one"):
        save_on_rank0({"epoch": Unsavable()}, path)
    assert torch.load(path) == {"epoch": 1}
    assert {each.name for each in tmp_path.iterdir()} <= {"model.pt", "model.unfinished"}
    save_on_rank0({"epoch": 2}, path)
    assert list(tmp_path.iterdir()) == [path]


def test_links_stay(tmp_path: Path) -> None:
    (tmp_path / "latest.pt").symlink_to(tmp_path / "epoch1.pt")
    save_completely({"epoch": 1}, str(tmp_path / "latest.pt"))
    os.link(tmp_path / "epoch1.pt", tmp_path / "best.pt")
    save_completely({"epoch": 2}, tmp_path / "epoch1.pt")
    assert (tmp_path / "latest.pt").is_symlink()
    assert torch.load(tmp_path / "best.pt") == {"epoch": 2}


def test_rights_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.touch(0o640)
    os.chmod(path, 0o604)
    before = path.stat().st_ino
    save_completely(1, path)
    assert path.stat().st_mode & 0o777 == 0o604
    assert path.stat().st_ino != before  # moved into place


def test_a_new_file_has_the_rights_that_torch_save_gives(tmp_path: Path) -> None:
    torch.save(1, tmp_path / "a.pt")
    save_completely(1, tmp_path / "b.pt")
    assert (tmp_path / "a.pt").stat().st_mode == (tmp_path / "b.pt").stat().st_mode


def test_the_bytes_are_torch_saves(tmp_path: Path) -> None:
    """The archive's inner name is the file's; so two equal runs leave equal files."""
    for name in ("last.pt", "epoch 3", "gewichte_ä.pth.tar"):
        path = tmp_path / name
        torch.save({"weight": torch.ones(3)}, path)
        wanted = path.read_bytes()
        save_completely({"weight": torch.ones(3)}, path)
        assert path.read_bytes() == wanted


def test_where_a_file_cannot_be_put_into_place_torch_has_the_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError, match="Parent directory"):
        save_completely(1, tmp_path / "nowhere" / "a.pt")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    saved = []
    monkeypatch.setattr(torch, "save", lambda obj, f: saved.append(f))
    save_completely(1, pipe)
    assert saved == [pipe]  # a device would have been replaced by a file
