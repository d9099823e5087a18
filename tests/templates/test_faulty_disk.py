"""A full disk, which rank 0 alone meets and which the script catches: all ranks go on, as one process does."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.ranks import FORKED

PROGRAM = Path(__file__).with_name("faulty_disk_program.py")
pytestmark = [
    pytest.mark.torchrun,
    pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's device that is always full"),
]


@pytest.fixture(scope="module", params=["full", "plain"])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank has seen."""
    folder, temporary = tmp_path_factory.mktemp("found"), tmp_path_factory.mktemp("temporary")
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)}
    command = [*FORKED, "2", str(PROGRAM), request.param, str(folder)]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [json.loads((folder / f"{request.param}_{rank}.json").read_text()) for rank in (0, 1)]


def test_all_ranks_raise_alike_and_stay_together(found: list[dict[str, Any]]) -> None:
    first, second = ({name: told for name, told in each.items() if "left" not in name} for each in found)
    assert first == second
    errors = {name: told for name, told in first.items() if name != "written and read"}
    assert len(errors) >= 4
    for error, together in errors.values():
        assert error in ("OSError", "FileNotFoundError")
        assert together == 2


def test_files_that_are_read_and_written_leave_no_copies(found: list[dict[str, Any]]) -> None:
    assert [each["left behind"] for each in found] == [[], []]
    if "written and read" in found[0]:
        assert [each["written and read"] for each in found] == [["w+", "w+!a+", "r+!a+!"]] * 2
