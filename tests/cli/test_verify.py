"""`dp2ddp verify`: the same is told from different, on every rank, in what is printed and in what is left behind.

As a person starts it, with processes of its own, it is run in tests/test_examples.py; on a terminal without torchrun
in test_progress.py; here a rank that torchrun started crashes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from dp2ddp.cli import main
from dp2ddp.cli._options import Worlds
from dp2ddp.runtime.process.server import Server
from tests.cli.forked import fork_trials, forked
from tests.cli.scripts import CRASH, TRAIN, script
from tests.report.schema import validate

pytestmark = pytest.mark.usefixtures("own_folder")
torchrun = pytest.mark.torchrun


@pytest.mark.parametrize(("text", "worlds"), [("2", (2,)), ("2,3,4", (2, 3, 4)), ("1", (1,))])
def test_numbers_of_devices(text: str, worlds: tuple[int, ...]) -> None:
    assert Worlds().convert(text, None, None) == worlds


@pytest.mark.parametrize("text", ["0", "2,", "two", "-1", "2,0", "", "²", "2,1025"])
def test_what_is_no_number_of_devices(text: str) -> None:
    with pytest.raises(click.BadParameter, match="numbers of devices"):
        Worlds().convert(text, None, None)


def test_a_click_whose_types_are_not_generic_will_do() -> None:
    code = (
        "import click\nclass Old(click.ParamType):\n    def __class_getitem__(cls, item): raise TypeError(cls)\n"
        "click.ParamType = Old\nimport dp2ddp.cli.verify"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_script_without_data_parallel_is_told_in_one_line(tmp_path: Path) -> None:
    script(tmp_path, "print('no model')\n")
    result = CliRunner().invoke(main, ["verify", "train.py"])
    assert result.exit_code == 3
    assert "nothing to convert" in result.stderr


def test_hazards_are_shown_and_nothing_is_run(tmp_path: Path) -> None:
    script(
        tmp_path, "import torch\nfrom encoding.parallel import DataParallelModel\nDataParallelModel(net)\n"
    )
    result = CliRunner().invoke(main, ["verify", "train.py"])
    assert result.exit_code == 1
    assert "train.py:3" in result.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("same")
    script(folder, TRAIN)
    return folder


@pytest.fixture(scope="module")
def document(folder: Path, server: Server) -> dict[str, Any]:
    result = forked(server, folder, "verify", "train.py", "-n", "2,3", "--json", "--", "--lr", "0.5")
    assert result.exit_code == 0, result.output
    validate(result.stdout)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


class TestSame:
    pytestmark = torchrun

    def test_every_step_was_compared_on_every_rank(self, document: dict[str, Any]) -> None:
        two, three = document["verdicts"]
        assert two["float64"]["rank_steps"] == [6] * 2
        assert three["float64"]["rank_steps"] == [6] * 3
        assert three["float64"]["largest"]["size"] <= 1e-10

    def test_rows_are_those_that_dataparallel_gave_its_replicas(self, document: dict[str, Any]) -> None:
        two, three = document["verdicts"]
        assert two["float64"]["rows"] == [[2, 2], [2, 2], [2, 1]] * 2
        assert three["float64"]["rows"] == [[2, 2, 0], [2, 2, 0], [1, 1, 1]] * 2

    def test_lines_files_and_exit_codes_were_compared(self, document: dict[str, Any]) -> None:
        for verdict in document["verdicts"]:
            assert (verdict["stdout"]["lines"], verdict["files"]["count"], verdict["codes"]) == (2, 1, [0, 0])

    def test_nothing_was_written_into_the_users_folder(self, document: dict[str, Any], folder: Path) -> None:
        assert document["same"]
        assert [path.name for path in folder.iterdir()] == ["train.py"]


def test_a_report_that_cannot_be_written_is_told_before_anything_runs(tmp_path: Path) -> None:
    script(tmp_path, TRAIN)
    for target, words in (
        ("none/out.html", "there is no folder none"),
        ("out.pdf", "a report ends in .html"),
    ):
        result = CliRunner().invoke(main, ["verify", "train.py", "--report", target])
        assert result.exit_code == 3
        assert words in result.stderr
        assert result.stderr.count("\n") == 1


class TestDifferent:
    pytestmark = torchrun

    def test_a_wrong_conversion_is_found_from_inside_and_from_outside(
        self, tmp_path: Path, server: Server
    ) -> None:
        """Every rank trains by itself on its share, prints, and keeps a file of its own."""
        script(tmp_path, TRAIN)
        text = TRAIN.replace("import torch\n", "import os\nimport torch\n", 1)
        text = text.replace("nn.DataParallel(nn.Linear(3, 2).cuda())", "nn.Linear(3, 2).cuda()")
        share = "x, y = (t.chunk(2)[int(os.environ['RANK'])] for t in (x, y))"
        text = text.replace("in loader:\n", f"in loader:\n        {share}\n")
        text = text.replace('"last.pt"', "'last' + os.environ['RANK']")
        script(tmp_path, text, "mine.py")
        reports = ("--report", "told.html", "--report", "told.md")
        result = forked(server, tmp_path, "verify", "train.py", "--converted", "mine.py", "-n", 2, *reports)
        assert result.exit_code == 1, result.output
        page, text = ((tmp_path / name).read_text() for name in ("told.html", "told.md"))
        assert "<title>DIFFERENT" in page
        assert "Parameters that come apart in float64: 2 of 2" in page
        assert "model = nn.Linear(3, 2).cuda()" in re.sub("<[^>]*>", "", page)  # the port's line in the diff
        assert text.splitlines()[1].startswith("## \N{CROSS MARK} DIFFERENT: mine")
        assert result.stdout.startswith(
            "DIFFERENT mine.py parts from train.py under DataParallel at step 0: gradient of weight"
        )
        assert "at that step the same gradients and parameters on ranks: 0 | 1" in result.stdout
        assert "rank 1 prints as well" in result.stdout
        assert "last.pt is written by DataParallel only" in result.stdout

    def test_a_script_that_takes_no_step_is_compared_by_what_it_prints(
        self, tmp_path: Path, server: Server
    ) -> None:
        script(
            tmp_path,
            "import torch.nn as nn\nprint(type(nn.DataParallel(nn.Linear(2, 2))).__mro__[1].__name__)\n",
        )
        script(tmp_path, "print('Module', 2)\n", "mine.py")
        result = forked(server, tmp_path, "verify", "train.py", "--converted", "mine.py", "-n", 1)
        assert result.exit_code == 1, result.output
        assert "it takes no optimizer step" in result.stdout.splitlines()[0]
        assert "line 1 is 'Module 2', under DataParallel 'Module'" in result.stdout

    def test_where_nothing_could_differ_nothing_was_compared(self, tmp_path: Path, server: Server) -> None:
        text = (
            "import torch, torch.nn as nn\nnn.DataParallel(nn.Linear(2, 2)).cuda()(torch.ones(4, 2).cuda())\n"
        )
        script(tmp_path, text)
        script(tmp_path, text.replace("nn.DataParallel(nn.Linear(2, 2))", "nn.Linear(2, 2)"), "mine.py")
        result = forked(server, tmp_path, "verify", "train.py", "--converted", "mine.py", "-n", 1, "--json")
        assert result.exit_code == 3, result.output
        found = json.loads(result.stdout)
        assert (found["outcome"], found["same"]) == ("nothing compared", False)
        last = result.stderr.rstrip().splitlines()[-1]
        assert "train.py: nothing was compared: neither version takes an optimizer step" in last


class TestFailures:
    pytestmark = torchrun

    def test_another_number_of_devices_than_the_script_names_is_no_difference(
        self, tmp_path: Path, server: Server
    ) -> None:
        script(
            tmp_path,
            "import torch, torch.nn as nn\nids = [int(i) for i in '0,1'.split(',')]\n"
            "net = nn.DataParallel(nn.Linear(2, 2).cuda(), ids)\nnet(torch.ones(6, 2).cuda())\n",
        )
        result = forked(server, tmp_path, "verify", "train.py", "-n", 3)
        assert result.exit_code == 3
        assert result.stderr.splitlines()[-1] == (
            "dp2ddp: train.py: DataParallel is given 2 devices (device_ids), "
            "so it cannot be compared on 3; use -n 2"
        )

    def test_a_crash_in_dp_mode_shows_the_traceback_and_the_mode(
        self, tmp_path: Path, server: Server
    ) -> None:
        script(tmp_path, CRASH)
        script(tmp_path, "import time; time.sleep(600)", "mine.py")
        result = forked(server, tmp_path, "verify", "train.py", "--converted", "mine.py")
        assert result.exit_code == 3
        lines = result.stderr.splitlines()
        first = lines.index("Traceback (most recent call last):")
        assert '  File "train.py", line 7, in <module>' in lines[first:]
        assert "    raise ValueError('no data')" in lines[first:]
        assert lines[-1] == (
            "dp2ddp: train.py: failed in dp mode on 2 devices: ValueError: no data. "
            "It is the original that fails, as it is"
        )

    def test_a_crash_on_one_rank_of_the_conversion_names_the_rank(
        self, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The one that torchrun started, as it will start it for its owner: forked ones have no such variable."""
        script(tmp_path, "print('nothing')")
        script(
            tmp_path,
            "import os\nif os.environ['RANK'] == '1' and 'TORCHELASTIC_RUN_ID' in os.environ:\n"
            "    raise ValueError('only here')\n",
            "mine.py",
        )
        fork_trials(monkeypatch, server, torchrun=True)
        result = CliRunner().invoke(main, ["verify", "train.py", "--converted", "mine.py"])
        assert result.exit_code == 3
        lines = result.stderr.splitlines()
        assert '  File "mine.py", line 3, in <module>' in lines
        assert lines[-3:-1] == [
            "dp2ddp: mine.py: failed in ddp mode on rank 1 of 2: ValueError: only here",
            "  rank 1 failed at mine.py:3: ValueError: only here",
        ]
        assert lines[-1] in {  # torchrun ends what is not over yet
            "  rank 0 has ended with exit code 0",
            "  rank 0 is gone: a signal ended it (out of memory?)",
            "  rank 0 is outside the script",  # or is about to begin
        }

    def test_a_hang_of_one_rank_is_a_finding(self, tmp_path: Path, server: Server) -> None:
        text = (
            "import os, time, torch.distributed as dist\ndist.init_process_group('gloo')\n"
            "while os.environ['RANK'] == '1':\n    time.sleep(1)\ndist.barrier()\n"
        )
        script(tmp_path, "print('nothing')")
        script(tmp_path, text, "mine.py")
        result = forked(
            server, tmp_path, "verify", "train.py", "--converted", "mine.py", "--timeout", 3, "--json"
        )
        assert result.exit_code == 3
        barrier = (
            "has been called by rank 0 and not by rank 1; its last one was init_process_group at mine.py:2"
        )
        *lines, advice = result.stderr.splitlines()
        assert advice.startswith("  what now: every rank has to make the same calls in the same order")
        assert lines[-5:] == [
            "dp2ddp: mine.py: hangs in ddp mode on rank 1 of 2: nothing moved for 3 seconds",
            "  rank 0 waits in barrier at mine.py:5",
            "  rank 1 is at mine.py:4: time.sleep(1)",
            f"  collective 2, barrier at mine.py:5, {barrier}",
            "  before that: no rank had taken an optimizer step",
        ]
        document = json.loads(result.stdout)
        assert (document["same"], document["verdicts"]) == (False, [])
        failure = document["failed"]
        assert (failure["kind"], failure["rank"], failure["world"]) == ("hang", 1, 2)
        assert failure["ranks"][0]["collective"] == "barrier"
        assert failure["ranks"][1]["frames"] == [{"file": "mine.py", "line": 4, "function": "<module>"}]
