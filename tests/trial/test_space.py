"""The space of scratch copies: looked at before, and said where it ends."""

from __future__ import annotations

import dataclasses
import errno
from pathlib import Path

import pytest

from dp2ddp.errors import RunError
from dp2ddp.trial import space
from dp2ddp.trial.space import check_space, free_space, full_disk_is_said, lacked_space, lacks
from tests.report.made_up import failed_run

MB = 2**20


@pytest.mark.parametrize(
    ("free", "each", "copies", "lacking"),
    [
        (316 * MB, 100 * MB, 3, False),
        (316 * MB - 1, 100 * MB, 3, True),
        (16 * MB, 0, 4, False),  # nothing is known of them yet
        (16 * MB - 1, 0, 4, True),
        (0, 100 * MB, 0, False),  # none comes
    ],
)
def test_whether_copies_fit(free: int, each: int, copies: int, lacking: bool) -> None:
    assert lacks(free, each, copies) is lacking


def test_what_does_not_fit_is_said_with_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "free_space", lambda scratch: 200 * MB)
    check_space(tmp_path, 60 * MB, 3)
    with pytest.raises(
        RunError, match=r"210 MB are free, too little for 3 scratch copies of 73.4 MB each; set TMPDIR"
    ):
        check_space(tmp_path, 70 * MB, 3)


def test_space_is_asked_of_the_file_system_where_scratch_will_lie(tmp_path: Path) -> None:
    assert free_space(tmp_path / "not" / "there yet") > 0


def test_a_run_that_fails_where_nothing_can_be_written_lacked_space() -> None:
    crash, hang = failed_run("crash"), failed_run("hang")
    assert lacked_space(crash, 16 * MB - 1)
    assert not lacked_space(crash, 16 * MB)
    assert not lacked_space(hang, 0)
    assert not lacked_space(dataclasses.replace(crash, failure=None), 0)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_no_fault_of_the_program(number: int) -> None:
    text = r"^/scratch/a.bin: no space left for a scratch copy; set TMPDIR"
    with pytest.raises(RunError, match=text), full_disk_is_said():
        raise OSError(number, "full", "/scratch/a.bin")


def test_what_else_cannot_be_written_stays_what_it_is() -> None:
    with pytest.raises(PermissionError), full_disk_is_said():
        raise PermissionError(errno.EACCES, "no", "/scratch/a.bin")
