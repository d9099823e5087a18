"""The space of scratch copies: said where it ends."""

from __future__ import annotations

import dataclasses
import errno

import pytest

from dp2ddp.errors import RunError
from dp2ddp.progress import Progress
from dp2ddp.report.failure_text import failure_text
from dp2ddp.trial.prepare import full_disk_is_said
from dp2ddp.trial.runs import raise_or_report
from tests.report.made_up import failed_run


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_no_fault_of_the_program(number: int) -> None:
    text = r"^/scratch/a.bin: no space left for a scratch copy; set TMPDIR"
    with pytest.raises(RunError, match=text), full_disk_is_said():
        raise OSError(number, "full", "/scratch/a.bin")


def test_what_else_cannot_be_written_stays_what_it_is() -> None:
    with pytest.raises(PermissionError), full_disk_is_said():
        raise PermissionError(errno.EACCES, "no", "/scratch/a.bin")


def test_a_script_that_fails_of_a_full_disk_is_told_where_its_copy_lies() -> None:
    run = failed_run("crash")
    assert run.failure is not None
    error = "OSError: [Errno 28] No space left on device: 'net.pt'"
    full = dataclasses.replace(run, failure=dataclasses.replace(run.failure, text=error))
    assert "TMPDIR" not in failure_text(full)  # in the user's folder
    copied = dataclasses.replace(full, stage=dataclasses.replace(run.stage, scratch="/tmp/x"))
    assert f"{error}, where its scratch copy lies: set TMPDIR" in failure_text(copied)
    with pytest.raises(RunError, match=r"--steps\)\n"):  # it is not "the original that fails, as it is"
        raise_or_report(
            dataclasses.replace(copied, stage=dataclasses.replace(copied.stage, mode="dp")), Progress()
        )
