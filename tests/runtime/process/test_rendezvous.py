from pathlib import Path

import pytest

from dp2ddp.runtime.process.meeting import in_run_folder


def test_ranks_that_name_one_file_meet_in_one_of_the_run_folder(tmp_path: Path) -> None:
    here, there = (
        in_run_folder("file:///work/rendezvous", tmp_path / "r"),
        in_run_folder("file:///work/other", tmp_path / "r"),
    )
    assert here == in_run_folder("file:///work/rendezvous", tmp_path / "r") != there
    assert Path(here.removeprefix("file://")).parent == tmp_path / "r"


def test_what_follows_the_file_stays(tmp_path: Path) -> None:
    assert in_run_folder("file:///work/meet?rank=1&world_size=2", tmp_path).endswith("?rank=1&world_size=2")


@pytest.mark.parametrize("method", [None, "env://", "tcp://127.0.0.1:23456"])
def test_other_methods_stay(method: object, tmp_path: Path) -> None:
    assert in_run_folder(method, tmp_path) == method
    assert not list(tmp_path.iterdir())
