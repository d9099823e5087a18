"""Reading and writing: every byte that nobody asked to change comes back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dp2ddp.errors import SourceError
from dp2ddp.source.files import decode_source
from dp2ddp.source.read_source import read_source
from dp2ddp.source.writing import write_atomically


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"x = 1", id="no final newline"),
        pytest.param(b"x = 1\r\ny = 2\r\n", id="CRLF"),
        pytest.param(b"x = 1\ry = 2\n", id="mixed endings"),
        pytest.param(b"\xef\xbb\xbfx = 1\n", id="byte order mark"),
        pytest.param("# coding: latin-1\nx = 'é'\n".encode("latin-1"), id="latin-1"),
        pytest.param("x = 'é\x0c'\n".encode(), id="form feed"),
    ],
)
def test_what_is_read_is_written_back(data: bytes) -> None:
    source = decode_source(data, None)

    assert source.encoded(source.text) == data


def test_a_letter_outside_of_the_encoding_is_refused() -> None:
    source = decode_source(b"# coding: ascii\n", None)

    with pytest.raises(SourceError, match="cannot be written in ascii"):
        source.encoded("é")


def test_writing_replaces_the_file_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("old")
    path.chmod(0o755)

    write_atomically(path, b"new")

    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o755
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"out\.py: cannot be written \(No such file or directory\)"):
        write_atomically(tmp_path / "none" / "out.py", b"")


def test_a_target_that_is_a_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    with pytest.raises(SourceError, match="cannot be written"):
        write_atomically(tmp_path / "out", b"")

    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text("old")
    (tmp_path / "link.py").symlink_to("file.py")

    write_atomically(tmp_path / "link.py", b"new")

    assert (tmp_path / "link.py").is_symlink()
    assert (tmp_path / "file.py").read_bytes() == b"new"


def test_what_is_no_file_is_written_to_and_stays_what_it_is(tmp_path: Path) -> None:
    """As root, `-o /dev/null --force` must not put a file in the device's place."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    write_atomically(pipe, b"new")

    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_an_interrupt_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "train.py"
    path.write_text("old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"none\.py: no such file"):
        read_source(tmp_path / "none.py")
