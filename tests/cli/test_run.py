"""`dp2ddp run`: both modes run a script as it is, and every failure is one clear line and an exit code."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from dp2ddp.cli import main
from dp2ddp.cli.run import what_runs
from dp2ddp.runtime.process.run import Run
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.stage import Stage
from dp2ddp.source.projects import read_project
from dp2ddp.trace.records import End
from dp2ddp.trace.writer import Writer
from tests.cli.forked import forked
from tests.cli.scripts import CRASH, TRAIN, dp2ddp, script, variables
from tests.ranks import until

pytestmark = pytest.mark.usefixtures("own_folder")
torchrun = pytest.mark.torchrun


@pytest.mark.parametrize(("mode", "rank"), [("dp", 0), ("ddp", 1)])
def test_a_trace_never_comes_to_lie_among_checkpoints(tmp_path: Path, mode: str, rank: int) -> None:
    """Sharded checkpoints lie in rank0, rank1 as well. Nothing has run when it is said."""
    script(tmp_path, "open('ran', 'w')\n" + TRAIN)
    shard = tmp_path / "ck" / f"rank{rank}"
    shard.mkdir(parents=True)
    before = {"model.safetensors": b"weights", "optimizer.json": b"{}"}
    for name, data in before.items():
        (shard / name).write_bytes(data)
    result = CliRunner().invoke(main, ["run", "train.py", "--mode", mode, "-n", "2", "--trace", "ck"])
    assert result.exit_code == 3
    (line,) = result.stderr.splitlines()
    assert f"ck/rank{rank}: it holds model.safetensors and 1 more, which no record of a run is" in line
    assert contents(shard) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ck", "train.py"]
    assert [path.name for path in (tmp_path / "ck").iterdir()] == [f"rank{rank}"]


@pytest.mark.parametrize(
    ("broken", "code", "words"),
    [("", 0, ""), ("the record ends at step 3: OSError: full", 3, "rank 0: the record ends")],
)
def test_a_record_that_broke_off_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, code: int, words: str
) -> None:
    def run(stage: Stage, *options: object) -> Run:
        Writer(Path(str(stage.trace)) / "rank0").write_end(End(steps=3, broken=broken), {})
        return Run(stage, (0,), 1.0, None)

    monkeypatch.setattr("dp2ddp.runtime.process.run.run_here", run)
    script(tmp_path, TRAIN)
    result = CliRunner().invoke(main, ["run", "train.py", "--mode", "dp", "-n", "2", "--trace", "t"])
    assert result.exit_code == code
    assert words in result.stderr
    assert ("is not whole" in result.stderr) == bool(broken)


@pytest.mark.parametrize("name", ["train.py", "train_ddp.py"])
def test_ranks_have_the_launch_lines_variables(tmp_path: Path, name: str) -> None:
    script(
        tmp_path,
        "import torch\nnet = torch.nn.DataParallel(torch.nn.Linear(2, 2))\nprint(list(set(names)))\n",
    )
    assert CliRunner().invoke(main, ["convert", "train.py"]).exit_code == 0
    assert what_runs(read_project(name), "ddp")[1] == {"PYTHONHASHSEED": "0"}


class TestFailures:
    pytestmark = torchrun

    def test_a_crash_has_the_scripts_traceback_then_mode_and_devices(
        self, tmp_path: Path, server: Server
    ) -> None:
        script(tmp_path, CRASH)
        result = forked(server, tmp_path, "run", "train.py", "--mode", "dp", "-n", 3)
        assert result.exit_code == 3
        lines = result.stderr.splitlines()
        assert lines[0] == "Traceback (most recent call last):"
        assert "train.py" in lines[1]
        assert lines[-1] == "dp2ddp: train.py: failed in dp mode on 3 devices: ValueError: no data"

    def test_a_crash_on_one_rank_names_the_rank_and_not_torchruns_report(self, tmp_path: Path) -> None:
        script(tmp_path, "import os\nif os.environ['RANK'] == '1':\n    raise ValueError('only here')\n")
        result = dp2ddp(tmp_path, "run", "train.py", "--mode", "ddp")
        assert result.returncode == 3
        *told, other = result.stderr.splitlines()[-3:]
        assert told == [
            "dp2ddp: train.py: failed in ddp mode on rank 1 of 2: ValueError: only here",
            "  rank 1 failed at train.py:3: ValueError: only here",
        ]
        # rank 0 may have come to its end, or be about to begin
        assert other in ("  rank 0 has ended with exit code 0", "  rank 0 is outside the script")
        assert "ChildFailedError" not in result.stderr

    def test_a_hang_of_a_converted_script_is_told_in_its_own_lines(
        self, tmp_path: Path, server: Server
    ) -> None:
        """Not in those of the temporary file that was run."""
        text = (
            "import os, sys, time, torch, torch.nn as nn\n\nmodel = nn.DataParallel(nn.Linear(3, 2).cuda())\n"
            "def step():\n    while sys.stdout.name == os.devnull:\n        time.sleep(1)\n"
            "    model(torch.ones(2, 3))\nstep()\n"
        )
        script(tmp_path, text)
        result = forked(server, tmp_path, "run", "train.py", "--mode", "ddp", "--timeout", 4)
        assert result.exit_code == 3
        lines = result.stderr.splitlines()
        assert "dp2ddp: train.py: hangs in ddp mode on rank 1 of 2: nothing moved for 4 seconds" in lines
        ranks = [line for line in lines if line.startswith("  rank")]
        assert ranks[0].startswith("  rank 0 waits in ")
        assert ranks[0].endswith(" at train.py:7 in step, called from train.py:8")
        assert ranks[1] == "  rank 1 is at train.py:6 in step, called from train.py:8: time.sleep(1)"
        assert [path.name for path in tmp_path.iterdir()] == ["train.py"]

    def test_a_script_that_asks_for_input_is_told_how_to_answer(self, tmp_path: Path, server: Server) -> None:
        script(tmp_path, "input('name? ')")
        result = forked(server, tmp_path, "run", "train.py", "--mode", "dp")
        assert result.exit_code == 3
        assert "pass the answer as an argument" in result.stderr.splitlines()[-1]

    @pytest.mark.parametrize("mode", ["dp", "ddp"])
    def test_an_interrupt_reaches_the_script_and_leaves_no_process(self, tmp_path: Path, mode: str) -> None:
        text = (
            "import time\nopen('begun', 'w').close()\ntry:\n    time.sleep(600)\n"
            "except KeyboardInterrupt:\n    print('saving', flush=True)\n    raise\n"
        )
        script(tmp_path, text)
        command = [sys.executable, "-m", "dp2ddp", "run", "train.py", "--mode", mode]
        process = subprocess.Popen(command, cwd=tmp_path, env=variables(), stdout=-1, stderr=-1, text=True)
        family = begun(process, tmp_path / "begun")
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        assert process.returncode == 130
        assert "saving" in stdout
        assert stderr.splitlines()[-1] == "dp2ddp: interrupted"
        assert psutil.wait_procs(family, timeout=10)[1] == []


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, server: Server) -> dict[str, Ran]:
    return {mode: ran(server, tmp_path_factory.mktemp(mode), mode) for mode in ("dp", "ddp")}


class TestTraining:
    """A project, under torchrun as a person starts it; its files lie where they would without us."""

    pytestmark = torchrun

    def test_both_modes_print_the_same(self, runs: dict[str, Ran]) -> None:
        lines = {mode: run.stdout.splitlines()[1:] for mode, run in runs.items()}
        assert [line.rpartition(" ")[0] for line in lines["dp"]] == ["epoch 0 loss", "epoch 1 loss"]
        shown = [[round(float(line.split()[-1]), 4) for line in lines[mode]] for mode in runs]
        assert shown[0] == shown[1]  # in float32: rounding beyond

    @pytest.mark.parametrize("mode", ["dp", "ddp"])
    def test_nothing_of_ours_lies_in_the_folder_while_it_runs(self, runs: dict[str, Ran], mode: str) -> None:
        assert runs[mode].stdout.splitlines()[0] == str(sorted(runs[mode].before))

    @pytest.mark.parametrize("mode", ["dp", "ddp"])
    def test_what_the_script_writes_lands_where_it_would(self, runs: dict[str, Ran], mode: str) -> None:
        run = runs[mode]
        assert sorted(path.name for path in run.folder.iterdir()) == ["last.pt", "src", "t", "there.txt"]
        after = contents(run.folder / "src")
        assert after.keys() - run.before.keys() == {"here.pt"}
        assert run.before.items() <= after.items()

    @pytest.mark.parametrize("mode", ["dp", "ddp"])
    def test_a_record_lies_where_it_was_asked_for(self, runs: dict[str, Ran], mode: str) -> None:
        assert any((runs[mode].folder / "t").iterdir())

    def test_a_crash_in_a_converted_module_is_told_in_its_own_lines(
        self, tmp_path: Path, server: Server
    ) -> None:
        project(tmp_path)
        path = tmp_path / "src" / "made.py"
        path.write_text(path.read_text().replace("    open(", "    raise KeyError('x')\n    open("))
        result = forked(server, tmp_path, "run", "src/train.py", "--mode", "ddp")
        assert result.exit_code == 3
        said = re.sub(r"^\[rank\d\]: ", "", result.stderr, flags=re.MULTILINE)
        assert "made.py\", line 13, in save\n    raise KeyError('x')\n" in said


@dataclass(frozen=True)
class Ran:
    """A run of the project that ended well: what it printed, and what lay beside the script before it."""

    folder: Path
    stdout: str
    before: dict[str, bytes]


def ran(server: Server, folder: Path, mode: str) -> Ran:
    project(folder)
    before = contents(folder / "src")
    words = ("run", "src/train.py", "--mode", mode, "-n", 2, "--trace", "t", "--", "--lr", "0.5")
    if mode == "ddp":
        started = dp2ddp(folder, *words)
        assert started.returncode == 0, started.stderr
        return Ran(folder, started.stdout, before)
    result = forked(server, folder, *words)
    assert result.exit_code == 0, result.stderr
    return Ran(folder, result.stdout, before)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def project(folder: Path) -> None:
    """A script and its module, in a folder below."""
    (folder / "src").mkdir()
    text = TRAIN.replace("import torch\n", "import torch\nfrom made import make, save\n", 1)
    text = text.replace("nn.DataParallel(nn.Linear(3, 2).cuda())", "make()") + "save(model)\n"
    script(folder / "src", text)
    script(
        folder / "src",
        """
import os
import torch
import torch.nn as nn

def make():
    print(sorted(os.listdir(os.path.dirname(__file__))))
    torch.zeros(1).cuda(async=True)
    return nn.DataParallel(nn.Linear(3, 2).cuda())

def save(model):
    torch.save(model.state_dict(), os.path.join(os.path.dirname(os.path.abspath(__file__)), "here.pt"))
    open("there.txt", "w").write("x")
""",
        "made.py",
    )


def test_stdin_is_the_users_own_and_so_is_the_path(tmp_path: Path) -> None:
    """`stty size` at import, of a script that many people started from, asks the terminal behind it.

    Python that puts no folder first finds what PYTHONPATH names all the same.
    """
    script(tmp_path, "import os, sys\nprint(os.popen('stty size', 'r').read().split(), input(), sys.path)\n")
    ours, theirs = os.openpty()
    os.write(ours, b"hello\n")
    first = str(tmp_path / "first")
    settings = {**variables(), "PYTHONSAFEPATH": "1", "PYTHONPATH": first}
    command = [sys.executable, "-m", "dp2ddp", "run", "train.py", "--mode", "dp"]
    result = subprocess.run(
        command, cwd=tmp_path, env=settings, stdin=theirs, capture_output=True, text=True, check=False
    )
    os.close(theirs)
    os.close(ours)
    assert result.stdout.startswith("['0', '0'] hello ["), result.stderr
    assert first in result.stdout


def begun(process: subprocess.Popen[str], sign: Path) -> list[psutil.Process]:
    """Everything that the command has started, once the script runs."""
    until(sign.exists)
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize(("chosen", "runs_with"), [("3", "3"), ("random", "0")])
def test_the_hashes_that_the_user_has_chosen_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str, runs_with: str
) -> None:
    walks = "words = list({'a', 'b'})\nfor word in words:\n    print(word)\n"
    path = script(tmp_path, TRAIN + walks)
    monkeypatch.setenv("PYTHONHASHSEED", chosen)
    _, settings = what_runs(read_project(path), "ddp")
    assert settings["PYTHONHASHSEED"] == runs_with
