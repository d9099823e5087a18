"""Ranks forked from one process that has torch: they meet, end as their script says, and leave nothing behind.

How one that fails or hangs ends the others: tests/hangs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from dp2ddp.runtime.process.launch_command import environment
from dp2ddp.runtime.process.run import Run, watch
from dp2ddp.runtime.process.server import Forked, Server
from dp2ddp.runtime.stage import Mode, Stage
from tests.ranks import stage_of, until

pytestmark = pytest.mark.torchrun

MEET = """
import atexit, os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
mine = torch.tensor([float(dist.get_rank())])
dist.all_reduce(mine)
print("sum", mine.item(), sys.argv)
atexit.register(print, "atexit ran")
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server({**environment(), "OMP_NUM_THREADS": "2"}) as server:
        yield server


def run(
    server: Server, folder: Path, code: str, mode: Mode = "ddp", timeout: float | None = None, **more: Any
) -> Run:
    script = folder / "train.py"
    script.write_text(code)
    stage = stage_of(script, mode, arguments=("--lr", "1"), **more)
    return watch([server.start(stage)], timeout)[0]


def test_what_any_optimizer_drags_in_is_there_already(server: Server, tmp_path: Path) -> None:
    """torch._dynamo, 907 modules: without it in the parent each rank of each run pays 0.8 s."""
    found = run(server, tmp_path, "import sys\nprint('torch._dynamo' in sys.modules)\n", "dp")
    assert found.codes == (0,)
    assert found.output(0) == "True\n"


def test_ranks_meet_and_end_like_any_script(server: Server, tmp_path: Path) -> None:
    found = run(server, tmp_path, MEET)
    assert found.failure is None
    assert found.codes == (0, 0)
    expected = "sum 1.0 ['train.py', '--lr', '1']\natexit ran\n"
    assert [found.output(rank) for rank in (0, 1)] == [expected] * 2


def test_an_exit_code_that_the_script_asked_for_is_no_accident(server: Server, tmp_path: Path) -> None:
    found = run(server, tmp_path, "import sys; sys.exit(5)", mode="dp")
    assert found.code == 5
    assert found.ended_on_purpose
    assert not run(server, tmp_path / "..", "raise ValueError", mode="dp").ended_on_purpose


def test_a_rank_that_leaves_no_word_on_a_full_disk(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=0))
    found = run(server, tmp_path, "import ctypes; ctypes.string_at(0)", mode="dp")
    assert found.failure is not None
    assert found.failure.text == "No space left on device"


def test_loader_workers_run_in_a_forked_rank(server: Server, tmp_path: Path) -> None:
    code = "import torch\nfrom torch.utils.data import DataLoader\n" \
        "print(sum(len(b) for b in DataLoader(torch.arange(10), batch_size=4, num_workers=2)))"  # fmt: skip
    assert run(server, tmp_path, code, mode="dp").output(0) == "10\n"


def test_a_run_is_ended_before_its_ranks_are_forked_and_nothing_is_left_of_a_closed_server(
    tmp_path: Path,
) -> None:
    """The server imports torch first; a rank has no status of its own by then, and must not run on."""
    before = set(psutil.Process().children())
    with Server() as server:
        running = server.start(endless(tmp_path))
        running.kill()
        assert codes_at_the_end(running) == (None, None)  # ended by us
        assert not (tmp_path / "ran").exists()
        (tmp_path / "another").mkdir()
        server.start(endless(tmp_path / "another"))
        until(lambda: len(list(tmp_path.glob("another/run/rank?.json"))) == 2)
        (own,) = set(psutil.Process().children()) - before
        children = [own, *own.children(recursive=True)]
        assert len(children) == 3
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


def codes_at_the_end(running: Forked) -> tuple[int | None, ...] | None:
    """None: they run on."""
    until(running.codes)
    return running.codes()


def endless(folder: Path) -> Stage:
    script = folder / "train.py"
    script.write_text("import time; time.sleep(2); open('ran', 'w'); time.sleep(600)")
    return stage_of(script, "ddp")


def test_a_run_is_ended_before_its_ranks_have_said_who_they_are(server: Server, tmp_path: Path) -> None:
    running = server.start(endless(tmp_path))
    for path in (tmp_path / "run").glob("rank*.json"):
        path.unlink()
    running.kill()
    assert codes_at_the_end(running) == (None, None)
    assert not (tmp_path / "ran").exists()


def test_a_call_that_stands_still_is_ended_and_one_that_returns_is_not(server: Server) -> None:
    before = set(psutil.Process().children(recursive=True))
    assert server.call("time:sleep", 600, timeout=1) is None
    assert psutil.wait_procs(set(psutil.Process().children(recursive=True)) - before, timeout=20)[1] == []
    assert server.call("time:sleep", 0, timeout=60) == 0


def test_a_script_that_computes_for_longer_than_the_timeout_is_no_hang(
    server: Server, tmp_path: Path
) -> None:
    code = "import time\nwhile time.process_time() < 3.5: pass\nprint('tokenised')"
    found = run(server, tmp_path, code, mode="dp", timeout=3)
    assert (found.failure, found.output(0)) == (None, "tokenised\n")


def test_ranks_have_as_many_threads_as_torchrun_gives_them(server: Server, tmp_path: Path) -> None:
    """By OMP_NUM_THREADS, as in any process that imports torch."""
    assert run(server, tmp_path, "import torch; print(torch.get_num_threads())", mode="dp").output(0) == "2\n"


def test_a_file_that_the_script_never_closed_is_complete(server: Server, tmp_path: Path) -> None:
    code = "import csv\nrows = csv.writer(open('log.csv', 'w'))\nrows.writerow([1, 2])"
    assert run(server, tmp_path, code, mode="dp").code == 0
    assert (tmp_path / "log.csv").read_text() == "1,2\n"


@pytest.mark.parametrize(("mode", "aligned"), [("dp", "order"), ("ddp", None)])
def test_what_a_run_is_equipped_with_was_imported_before_it(
    server: Server, tmp_path: Path, mode: Mode, aligned: str | None
) -> None:
    code = """
import gc, sys
young = set(map(id, gc.get_objects()))  # what was there before is frozen
print([name for name, module in sys.modules.items() if name.startswith("dp2ddp") and id(module) in young])
"""
    everything = {
        "trace": str(tmp_path / "trace"), "dtype": "float64", "sample_streams": True, "nudged": True, "seed": 1,
        "rank_order": True, "aligned": aligned, "scratch": str(tmp_path),
    }  # fmt: skip
    assert run(server, tmp_path, code, mode, **everything).output(0) == "[]\n"
