"""How 2 ranks end under a real torchrun, however the script ends."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from ranks import torchrun

from dp2ddp.cli import main

PROGRAM = Path(__file__).parent / "programs" / "endings.py"
SECONDS = 60  # on a busy machine a start alone takes 20; gloo's own patience would be 1800


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    script = Path(shutil.copy(PROGRAM, tmp_path_factory.mktemp("endings")))
    assert CliRunner().invoke(main, ["convert", str(script)]).exit_code == 0
    return script.with_name("endings_ddp.py")


@pytest.mark.slow  # the tutorial's torchrun ends with 0, too (test_docs_code.py)
@pytest.mark.torchrun
@pytest.mark.parametrize("how", ["return", "early"])
def test_a_script_that_ends_well_ends_with_0_every_time(converted: Path, how: str) -> None:
    ending = torchrun(converted, how, ranks=6)  # as many ends as of three runs of two
    assert (ending.code, ending.left_behind) == (0, 0), ending.stderr
    assert ending.stdout.splitlines() == [f"step {n}" for n in range(3 if how == "early" else 4)]


@pytest.mark.torchrun
def test_an_exception_ends_all_ranks_in_seconds_and_shows_its_traceback(converted: Path) -> None:
    ending = torchrun(converted, "raise")
    assert ending.code != 0
    assert ending.seconds < SECONDS
    assert ending.left_behind == 0
    assert "ValueError: as asked" in ending.stderr


@pytest.mark.torchrun
def test_an_exit_code_of_the_script_is_not_lost(converted: Path) -> None:
    ending = torchrun(converted, "exit")
    assert ending.code != 0
    assert ending.seconds < SECONDS
    assert ending.left_behind == 0
    assert "exitcode  : 5" in ending.stderr


@pytest.mark.torchrun
def test_ctrl_c_ends_all_ranks_in_seconds(converted: Path) -> None:
    ending = torchrun(converted, "wait", interrupt_at="step 2")
    assert ending.code != 0
    assert ending.seconds < SECONDS
    assert ending.left_behind == 0


@pytest.mark.torchrun
def test_without_torchrun_the_converted_script_is_a_world_of_one(converted: Path) -> None:
    command = [sys.executable, str(converted), "return"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [f"step {n}" for n in range(4)]
