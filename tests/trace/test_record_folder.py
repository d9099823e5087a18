"""Where a record comes to lie: nothing that the recorder has not made is removed, nor is a record mixed with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.errors import TraceError
from dp2ddp.trace.record_folder import MARK, begin_record, refuse_others
from dp2ddp.trace.records import End
from dp2ddp.trace.writer import Writer


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if not path.is_dir()
    }


def recorded(folder: Path) -> None:
    Writer(folder / "rank0").write_end(End(steps=0), {})


@pytest.mark.parametrize(
    "name",
    ["optimizer.json", "model-00001.safetensors", "final.safetensors", "steps.jsonl", "model.pt", "deep/a"],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_checkpoints_folder_is_refused_and_stays_as_it_is(tmp_path: Path, name: str, rank: int) -> None:
    file = tmp_path / f"rank{rank}" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(TraceError, match=f"rank{rank}: it holds {name.partition('/')[0]}, which"):
        refuse_others(tmp_path, range(2))
    with pytest.raises(TraceError):
        Writer(tmp_path / f"rank{rank}")
    assert contents(tmp_path) == before
    assert sorted(each.name for each in tmp_path.iterdir()) == [f"rank{rank}"]


def test_a_record_is_replaced_by_the_next(tmp_path: Path) -> None:
    recorded(tmp_path)
    assert "rank0/end.json" in contents(tmp_path)
    refuse_others(tmp_path, range(2))
    begin_record(tmp_path / "rank0")
    assert [*contents(tmp_path)] == [f"rank0/{MARK}"]


def test_a_record_with_something_of_the_users_is_refused_whole(tmp_path: Path) -> None:
    recorded(tmp_path)
    (tmp_path / "rank0" / "notes.json").write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(TraceError, match=r"notes\.json"):
        begin_record(tmp_path / "rank0")
    assert contents(tmp_path) == before


def test_a_file_of_that_name_which_somebody_else_wrote_is_no_mark(tmp_path: Path) -> None:
    (tmp_path / "rank0").mkdir()
    (tmp_path / "rank0" / MARK).write_text("{}")
    (tmp_path / "rank0" / "final.safetensors").write_text("mine")
    with pytest.raises(TraceError, match=r"final\.safetensors and 1 more"):
        begin_record(tmp_path / "rank0")


@pytest.mark.parametrize("linked", ["a record's file", "the folder", "a file in place of the folder"])
def test_no_link_is_followed(tmp_path: Path, linked: str) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "t"
    recorded(elsewhere)
    folder.mkdir()
    if linked == "the folder":
        (folder / "rank0").symlink_to(elsewhere / "rank0")
    elif linked == "a record's file":
        recorded(folder)
        (folder / "rank0" / "end.json").unlink()
        (folder / "rank0" / "end.json").symlink_to(elsewhere / "rank0" / "end.json")
    else:
        (folder / "rank0").write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(TraceError):
        refuse_others(folder, range(1))
    with pytest.raises(TraceError):
        begin_record(folder / "rank0")
    assert contents(tmp_path) == before
