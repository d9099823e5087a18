"""What rank 0 does for all: every rank finds what one process finds, its errors too (one run a number of ranks)."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dp2ddp.runtime.process.server import Server
from tests.ranks import run_program

PROGRAM = Path(__file__).with_name("rank0_program.py")
pytestmark = [
    pytest.mark.torchrun,
    pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's device that is always full"),
]
# A file opened to be read and written, in three modes, as the built-in open gives it.
LINES = {
    "w+": [2, 2, 0, "w+", 2, ["+!\n"], True, "w+", False, True, "w+!\n"],
    "a+": [2, 6, 0, "w+!\na+", 6, ["+!\n", "a+!\n"], True, "a+", False, True, "w+!\na+!\n"],
    "r+": [2, 2, 0, "r+!\na+!\n", 8, ["+!\n", "a+!\n", "!\n"], True, "r+", False, True, "r+!\na+!\n!\n"],
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Any:
    """found(check): what each of two ranks found, in rank order."""
    folder = tmp_path_factory.mktemp("ranks")
    run = run_program(server, folder, PROGRAM, folder, ranks=2)
    assert run.returncode == 0, run.stderr[-3000:]
    answers = [json.loads((folder / f".{rank}.json").read_text()) for rank in range(2)]
    text = (folder / "unclosed.txt").read_text()
    return functools.partial(lambda check: text if check == "unclosed" else [each[check] for each in answers])


def test_random_streams_begin_as_rank_0s(found: Any) -> None:
    first, second = found("streams_are_rank0s")
    assert first == second


def test_ranks_wait_for_hours_while_rank_0_prepares_data(found: Any) -> None:
    assert min(found("timeout")) >= 12 * 3600


MIXED = """
import torch
names = {names}
cpu = torch.get_rng_state()
values = {{"is_available": True, "device_count": len(names), "set_device": None}}
values.update(get_rng_state=cpu, set_rng_state=None)
for name, value in values.items():
    setattr(torch.cuda, name, lambda *given, value=value: value)
torch.cuda.get_device_name = names.__getitem__
torch.distributed.is_nccl_available = lambda: False
from dp2ddp.templates.ranks import init_distributed
init_distributed()
"""


@pytest.mark.parametrize(("names", "is_told"), [(["P100", "V100", "V100"], True), (["V100", "V100"], False)])
def test_a_line_tells_of_gpus_that_draw_differently(names: list[str], is_told: bool) -> None:
    command = [sys.executable, "-c", MIXED.format(names=names)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ("GPUs of different kinds draw" in run.stderr) is is_told


def test_what_a_thread_of_rank_0_draws_while_ranks_meet_is_not_lost(found: Any) -> None:
    assert found("thread_draws_meanwhile") == [True, True]


def test_a_full_disk_comes_to_all_ranks(found: Any) -> None:
    missing = "FileNotFoundError True"
    wanted = ["OSError True"] * 4 + [missing, missing, "RuntimeError True", missing]
    assert found("a_full_disk") == [wanted] * 2


def test_what_is_read_of_a_file_that_is_written_is_rank_0s(found: Any) -> None:
    assert found("read_and_written") == [[*LINES["w+"], *LINES["a+"], *LINES["r+"]]] * 2


def test_files_are_complete_behind_their_blocks(found: Any) -> None:
    texts = ["1,2\n3,4\n", '{"a": 1}', [0, 1, 2], "ä\nbc"]
    assert found("written") == [[10, *texts, "FileExistsError True", texts[0], "TextIOWrapper"]] * 2


def test_archives_are_complete_where_they_are_closed(found: Any) -> None:
    assert found("archived") == [[["a"], ["b"], "seen", "none True", "ValueError True"]] * 2


def test_files_that_nobody_closes_are_read_as_one_process_does(found: Any) -> None:
    lines = [["0\n"], ["0\n", "1\n"], ["0\n", "1\n", "2\n"]]
    assert found("left_to_python") == [[0, 1, 2, *lines, 3]] * 2  # flushed three times, whatever workers do


def test_methods_by_whose_names_files_are_written(found: Any) -> None:
    for each in found("called_by_name"):
        assert each[:6] == [3, "abc", "a3", "1;2", "1,2", "1,2"]
        assert each[6].endswith("/c.txt")
        assert each[7] == "FileNotFoundError True"


def test_trackers_are_taken_for_what_they_stand_for(found: Any) -> None:
    assert found("trackers") == [["runs", 3, True, True, True, "said 1\n", True]] * 2


def test_what_is_read_of_them_ends_the_run(found: Any) -> None:
    first, second = found("reads_of_rank0s")
    assert set(second) == {"RuntimeError"}
    assert first == ["none"] * 8 + ["RuntimeError"]


def test_imports_come_before_ranks_join(found: Any) -> None:
    assert found("a_library_before_ranks_join") == [[True, True], [False, True]]


def test_answers_and_errors_of_rank_0_are_those_of_all(found: Any) -> None:
    wanted = [0, "FileNotFoundError True", "RuntimeError True", "RuntimeError True", True, True, 3]
    assert found("errors_and_answers") == [wanted] * 2


def test_a_library_that_writes_on_every_rank_is_stopped_with_the_line(found: Any) -> None:
    text = PROGRAM.read_text().split("\n")
    first = next(number for number, line in enumerate(text, 1) if '"own.txt").open' in line)
    (nothing, x), (messages, y) = found("own_files_are_refused")
    assert (nothing, x, y) == ([], "x", "x")
    assert [message.partition(" writes ")[0] for message in messages] == [
        f"line {first + number} of rank0_program.py" for number in range(3)
    ]
    assert all("on every rank: call it by run_on_rank0" in message for message in messages)


def test_what_nobody_closes_is_there_at_the_end(found: Any) -> None:
    assert found("unclosed") == "all of it"
