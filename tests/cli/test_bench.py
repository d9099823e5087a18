"""`dp2ddp bench`: measures both versions, says what it found in every form, and fails in one clear line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from dp2ddp.cli import main
from dp2ddp.runtime.process.server import Server
from tests.cli.forked import forked
from tests.cli.scripts import TRAIN, script, variables
from tests.report.schema import validate
from tests.report.test_bench_report import SCHEMA

pytestmark = pytest.mark.usefixtures("own_folder")
torchrun = pytest.mark.torchrun
QUICK = ["--rounds", "1", "--warm-up", "1", "--steps", "5"]
WEIGHTS = 4 * (3 * 2 + 2)  # bytes of TRAIN's model
ONLY_UNDER_DDP = "        if __file__.endswith('_ddp.py'): {}\n        optimizer.step()\n"


def with_fault(code: str) -> str:
    return TRAIN.replace("        optimizer.step()\n", ONLY_UNDER_DDP.format(code))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        pytest.param(["train.py", "-n", "0"], 2, "numbers of devices from 1 to 1024", id="no devices"),
        pytest.param(["train.py", "--steps", "5"], 2, "the first 5 are dropped (--warm-up)", id="none left"),
        pytest.param(["train.py", "--rounds", "0"], 2, "--rounds", id="no rounds"),
        pytest.param(["train.py", "--timeout", "0"], 2, "--timeout", id="no time"),
        pytest.param(["train.py", "--launcher", "python"], 2, "needs --converted", id="launcher of ours"),
        pytest.param(["train.py", "--report", "r.pdf"], 3, "a report ends in .html", id="unknown report"),
        pytest.param(["plain.py"], 3, "plain.py: nothing to convert", id="without DataParallel"),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_runs(
    tmp_path: Path, arguments: list[str], code: int, words: str
) -> None:
    script(tmp_path, TRAIN)
    script(tmp_path, "import torch\nnet = torch.nn.Linear(3, 2)\n", "plain.py")
    result = CliRunner().invoke(main, ["bench", *arguments])
    assert result.exit_code == code
    assert words in result.stderr
    assert result.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain.py", "train.py"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, server: Server) -> tuple[Path, dict[str, Any], str]:
    """The folder, the document, stderr."""
    folder = tmp_path_factory.mktemp("bench")
    script(folder, TRAIN)
    targets = ["--report", "r.html", "--report", "r.md"]
    result = forked(server, folder, "bench", "train.py", "-n", 2, *QUICK, "--compare", 2, "--json", *targets)
    assert result.exit_code == 0, result.stderr
    validate(result.stdout, SCHEMA)
    return folder, json.loads(result.stdout), result.stderr


class TestMeasuring:
    pytestmark = torchrun

    def test_both_are_measured_and_compared(self, measured: tuple[Path, dict[str, Any], str]) -> None:
        (one,) = measured[1]["measured"]
        assert one["sameness"] == {"proof": "same", "steps": 2, "text": None}
        for mode in ("dp", "ddp"):
            assert one[mode]["virtual"]
            assert one[mode]["steps"] == 4
            assert len(one[mode]["resident_bytes"]) == (2 if mode == "ddp" else 1)
            assert min(one[mode]["step_seconds"]) > 0
            assert one[mode]["rows"] == pytest.approx((4 + 3 + 4 + 4) / 4)  # 11 rows: 4, 4, 3, and again
            assert 0 < one[mode]["waiting_seconds"] < one[mode]["step"]["mean"]

    def test_counts_are_those_of_the_script(self, measured: tuple[Path, dict[str, Any], str]) -> None:
        (one,) = measured[1]["measured"]
        assert one["dp"]["counted"]["collectives"] == {}
        assert one["dp"]["counted"]["copies"]["weights"] == {"calls": 1.0, "bytes": WEIGHTS}
        assert one["ddp"]["counted"]["copies"] == {}
        assert one["ddp"]["counted"]["collectives"]["all_reduce"]["bytes"] >= WEIGHTS
        assert {one[mode]["counted"]["parameter_bytes"] for mode in ("dp", "ddp")} == {WEIGHTS}
        assert len(one["dp"]["device_bytes"]) == len(one["ddp"]["device_bytes"]) == 2
        assert min(one["dp"]["device_bytes"]) > WEIGHTS

    def test_timed_runs_take_turns_behind_the_others(
        self, measured: tuple[Path, dict[str, Any], str]
    ) -> None:
        lines = measured[2].splitlines()
        assert [re.sub(r"[\d.]+ (ms|us|s) ", "", line) for line in lines] == [
            "5 runs, one after the other: 1 comparison of 2 steps, 2 that count, 2 that are timed",
            "2 devices: same (verified 2 steps)",
            "2 devices, DataParallel: counted",
            "2 devices, DDP: counted",
            "2 devices, DataParallel, round 1 of 1: 4 steps, each",
            "2 devices, DDP, round 1 of 1: 4 steps, each",
            "report: r.html",
            "report: r.md",
        ]

    def test_only_the_reports_are_left_behind(self, measured: tuple[Path, dict[str, Any], str]) -> None:
        names = sorted(path.name for path in measured[0].iterdir())
        assert names == ["r.html", "r.md", "train.py"]
        assert (measured[0] / "r.md").read_text().splitlines()[1] == "## dp2ddp bench: train.py"


@torchrun
@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        pytest.param(
            TRAIN.replace("optimizer.step()", "pass"), ["--compare", "1"], "it takes no optimizer step",
            id="no step",
        ),
        pytest.param(
            TRAIN.replace("range(2)", "range(1)"), ["--warm-up", "4", "--steps", "9", "--compare", "0"],
            "in dp mode on 2 devices it takes 3 optimizer steps, and the first 4 are dropped",
            id="too few",
        ),
        pytest.param(
            with_fault("raise ValueError('not here')"), ["--compare", "1"],
            "train_ddp.py: failed in ddp mode on rank . of 2: ValueError: not here", id="crash of one mode",
        ),
        pytest.param(
            with_fault("import time; time.sleep(1000)"), ["--timeout", "4", "--compare", "0"],
            "train_ddp.py: hangs in ddp mode", id="hang",
        ),
    ],
)  # fmt: skip
def test_what_turns_out_on_the_way_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Server, text: str, options: list[str], words: str
) -> None:
    rooms = tmp_path / "rooms"
    rooms.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(rooms))
    folder = tmp_path / "folder"
    folder.mkdir()
    script(folder, text)
    result = forked(server, folder, "bench", "train.py", "-n", 2, *QUICK, *options)
    assert result.exit_code == 3, result.stderr
    told = [line for line in result.stderr.splitlines() if line.startswith("dp2ddp: ")]
    assert len(told) == 1
    assert re.search(words, told[0])
    assert result.stdout == ""
    assert [path.name for path in folder.iterdir()] == ["train.py"]
    assert list(rooms.glob("dp2ddp-*")) == []


@torchrun
def test_nothing_stays_behind_when_it_is_ended(tmp_path: Path) -> None:
    rooms, folder = tmp_path / "rooms", tmp_path / "folder"
    rooms.mkdir()
    folder.mkdir()
    script(folder, TRAIN.replace("range(2)", "range(10**9)"))
    command = [sys.executable, "-m", "dp2ddp", "bench", "train.py", "--steps", "1000000", "--compare", "0"]
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**variables(), "TMPDIR": str(rooms)},
        text=True,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as process:
        assert "6 runs, one after the other" in process.stderr.readline()
        assert "DataParallel: counted" in process.stderr.readline()
        assert "DDP: counted" in process.stderr.readline()
        time.sleep(3)  # a timed run is under way
        below = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        assert process.wait(20) == 143
    assert len(below) >= 2
    psutil.wait_procs(below, timeout=10)
    assert [each for each in below if each.is_running()] == []
    assert [path.name for path in folder.iterdir()] == ["train.py"]
    assert list(rooms.glob("dp2ddp-*")) == []
