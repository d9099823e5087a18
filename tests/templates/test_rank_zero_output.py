"""What is done once: in a world of one it is simply done; files are whole or absent; a NullObject takes everything."""

from __future__ import annotations

import io
import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from dp2ddp.templates.own_device import to_own_device
from dp2ddp.templates.rank_zero_output import (
    NullObject,
    on_rank_zero,
    open_on_rank_zero,
    plain_attributes,
    save_on_rank_zero,
    sendable,
)
from dp2ddp.templates.saving import save_completely


def test_alone_a_function_is_simply_called(tmp_path: Path) -> None:
    assert on_rank_zero(max, [1, 3], key=lambda x: -x) == 1
    with pytest.raises(FileNotFoundError):
        on_rank_zero(os.remove, tmp_path / "nothing")


def test_alone_a_file_is_simply_opened(tmp_path: Path) -> None:
    with open_on_rank_zero(tmp_path / "a", "w", encoding="utf-16") as file:
        assert isinstance(file, io.TextIOWrapper)
        file.write("ä")
    assert (tmp_path / "a").read_text(encoding="utf-16") == "ä"


class Unsavable:
    def __reduce__(self) -> Any:
        raise ValueError("not this one")


def test_a_checkpoint_that_fails_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    save_on_rank_zero({"epoch": 1}, path)
    with pytest.raises(ValueError, match="not this one"):
        save_on_rank_zero({"epoch": Unsavable()}, path)
    assert torch.load(path) == {"epoch": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_to_a_checkpoint_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "latest.pt").symlink_to(tmp_path / "epoch1.pt")
    save_completely({"epoch": 1}, str(tmp_path / "latest.pt"))
    assert (tmp_path / "latest.pt").is_symlink()
    assert torch.load(tmp_path / "epoch1.pt") == {"epoch": 1}


def test_an_open_file_is_written_by_its_own_rank() -> None:
    buffer = io.BytesIO()
    save_on_rank_zero(torch.ones(2), buffer)
    buffer.seek(0)
    assert torch.load(buffer).tolist() == [1, 1]


def test_silence_takes_everything_and_keeps_its_facts() -> None:
    silence = NullObject(log_dir="runs/1")
    silence.add_scalar("loss", 1.0).flush()
    with silence as inner:
        inner["x"] = silence[3]
    silence.step = 7
    assert silence.log_dir == "runs/1"
    assert (list(silence), str(silence), bool(silence)) == ([], "", True)


def test_silence_does_not_swallow_exceptions() -> None:
    with pytest.raises(KeyError), NullObject():
        raise KeyError


def test_silence_is_a_logging_handler_that_logs_nothing() -> None:
    logger = logging.Logger("name")
    logger.addHandler(NullObject())  # type: ignore[arg-type]
    logger.warning("not heard")


def test_results_that_cannot_be_sent_become_silent() -> None:
    assert sendable({"a": 1}) == {"a": 1}
    assert isinstance(sendable(lambda: None), NullObject)


def test_plain_attributes_are_texts_and_numbers() -> None:
    class Run:
        pass

    run = Run()
    vars(run).update(name="a", id=3, _secret="b", model=torch.nn.Linear(1, 1), done=False)
    assert plain_attributes(run) == {"name": "a", "id": 3, "done": False}


class Storage:
    def cuda(self, device: int) -> str:
        return f"on {device}"


def test_checkpoints_of_any_gpu_come_to_the_own_one(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage()
    assert to_own_device(storage, "cpu") is None
    assert to_own_device(storage, "cuda:0") is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert to_own_device(storage, "cuda:0") == "on 3"


def test_torch_asks_what_is_registered_where_tensors_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """What join_process_group(map_location=...) relies on: torch.serialization.register_package, as documented."""
    monkeypatch.setattr(torch.serialization, "_package_registry", [*torch.serialization._package_registry])
    told: list[str] = []
    file = io.BytesIO()
    with monkeypatch.context() as saving:
        saving.setattr(torch.serialization, "location_tag", lambda storage: "cuda:3")
        torch.save(torch.arange(3), file)

    torch.serialization.register_package(
        0, lambda storage: None, lambda storage, location: told.append(location) or storage
    )

    assert torch.load(io.BytesIO(file.getvalue())).tolist() == [0, 1, 2]
    assert torch.load(io.BytesIO(file.getvalue()), map_location="cuda:1").tolist() == [0, 1, 2]
    assert told == ["cuda:3", "cuda:1"]


def test_a_checkpoint_has_the_bytes_that_torch_save_gives(tmp_path: Path) -> None:
    """The archive's inner name is the file's; so two equal runs leave equal files."""
    for name in ("last.pt", "epoch 3", "gewichte_ä.pth.tar"):
        path = tmp_path / name
        torch.save({"weight": torch.ones(3)}, path)
        wanted = path.read_bytes()
        path.unlink()
        save_completely({"weight": torch.ones(3)}, path)
        assert path.read_bytes() == wanted
        path.unlink()


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
