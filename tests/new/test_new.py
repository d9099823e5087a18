"""`dp2ddp new`: the scripts run, train the same, and convert."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dp2ddp.new import NAMES, write_new
from dp2ddp.runtime.process.server import Server
from tests.cli.forked import forked
from tests.cli.scripts import dp2ddp, python
from tests.ranks import run_program

FOLDER = Path(__file__).resolve().parents[2] / "dp2ddp" / "new" / "folder"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "inner" / "first"
    write_new(folder)
    return folder


def test_all_files_of_the_folder_are_written(tmp_path: Path) -> None:
    result = dp2ddp(tmp_path, "new", "first")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [f"first/{name}" for name in NAMES]
    assert "cd first && torchrun" in result.stderr
    assert {path.name for path in FOLDER.iterdir() if path.is_file()} == {*NAMES}
    assert all((tmp_path / "first" / name).read_bytes() == (FOLDER / name).read_bytes() for name in NAMES)
    assert len((FOLDER / "README.md").read_text().splitlines()) <= 10


@pytest.mark.parametrize("name", ["model.py", "README.md"])
def test_nothing_is_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine\n")
    (tmp_path / "notes.txt").write_text("mine, too\n")
    result = dp2ddp(tmp_path, "new", ".")
    assert result.returncode == 3
    assert result.stderr == f"dp2ddp: .: has {name} already; nothing is overwritten, so name another folder\n"
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        name: "mine\n",
        "notes.txt": "mine, too\n",
    }


def test_a_link_that_leads_nowhere_is_not_overwritten_either(tmp_path: Path) -> None:
    (tmp_path / "data.py").symlink_to(tmp_path / "gone.py")
    assert dp2ddp(tmp_path, "new", ".").returncode == 3
    assert os.listdir(tmp_path) == ["data.py"]


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine\n")
    result = dp2ddp(tmp_path, "new", "file")
    assert (result.returncode, result.stderr) == (3, "dp2ddp: file: cannot be made (File exists)\n")


@pytest.mark.torchrun
def test_both_train_the_same(written: Path, server: Server, wants_all: bool) -> None:
    """In float64 to rounding, at each of 15 steps, in all that they print and save."""
    result = forked(
        server,
        written,
        "verify",
        "train_dp.py",
        "--converted",
        "train_ddp.py",
        "-n",
        "2,4" if wants_all else "2",
        "--json",
        "--",
        "--epochs",
        1,
    )
    assert result.exit_code == 0, result.output
    for verdict in json.loads(result.stdout)["verdicts"]:
        assert verdict["same"]
        assert verdict["float64"]["steps"] == 15
        assert verdict["float64"]["largest"]["size"] < 1e-13


@pytest.mark.torchrun
@pytest.mark.slow
def test_a_run_goes_on_where_another_one_stopped_in_either_mode(written: Path, tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).write_bytes((written / name).read_bytes())
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train_ddp.py"]
    whole = run(tmp_path, "train_dp.py", "--epochs", "2")
    first = run(tmp_path, "train_dp.py", "--epochs", "1")
    second = run(tmp_path, *torchrun, "--epochs", "2", "--resume")
    assert first + second == whole
    assert [line[:12] for line in whole] == ["epoch 0: los", "epoch 1: los"]
    accuracy = [float(line.split("accuracy ")[1].rstrip("%")) for line in whole]
    assert accuracy[1] > 50  # of ten patterns: it learns


def run(folder: Path, *arguments: str) -> list[str]:
    result = python(folder, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.torchrun
def test_a_batch_that_cannot_be_shared_evenly_is_refused(written: Path, server: Server) -> None:
    result = run_program(server, written, "train_ddp.py", "--batch-size", "33", ranks=2)
    assert result.returncode != 0
    assert "--batch-size 33 cannot be shared evenly by 2 ranks" in result.stderr


def test_the_script_with_dataparallel_converts(written: Path) -> None:
    result = dp2ddp(written, "convert", "train_dp.py", "--diff")
    assert result.returncode == 0, result.stderr
    assert "+    model = WholeBatch" in result.stdout
    assert "  helpers: ddp_helpers.py beside it" in result.stderr


def test_check_finds_nothing_in_the_ddp_script(written: Path) -> None:
    result = dp2ddp(written, "check", "train_ddp.py")
    assert result.returncode == 0, result.stdout + result.stderr
