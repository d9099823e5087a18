"""What is shown while a command works: on a terminal, on no terminal, and never on stdout."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dp2ddp.cli._progress import RunLine, line_of
from dp2ddp.progress import SILENT, RunState, Within, clock
from tests.cli.forked import WITHOUT_TORCHRUN
from tests.cli.scripts import TRAIN, python, script, variables
from tests.heard import Heard

WORKS = """
from dp2ddp.cli import _progress
from dp2ddp.progress import RunState

_progress.DELAY = 0
with _progress.shown() as progress:
    progress.begin("2 devices: training")
    runs = RunState("dp in float64", True, False, 3, 12, 4.0), RunState("ddp in float64", False, False, 0, None, 4.0)
    progress.look(runs)
    input()  # until somebody has seen it
    progress.say("2 devices, dp in float64: 5.0 s")
    progress.warn("mended")
print("SAME")
"""


def run_state(steps: int, seconds: float, expected: int | None = None, ended: bool = False) -> RunState:
    return RunState("dp", begun=True, ended=ended, steps=steps, expected=expected, seconds=seconds)


@pytest.mark.parametrize(
    ("run", "usual", "shown"),
    [
        pytest.param(RunState("dp", False, False, 0, 20, 1.0), None, (0.0, "starting", ""), id="not begun"),
        pytest.param(run_state(7, 3.0), None, (None, "7 steps", ""), id="nobody knows how many"),
        pytest.param(run_state(0, 3.0, 12), None, (0.0, "0 of 12 steps", ""), id="no step yet"),
        pytest.param(run_state(4, 12.0, 12), None, (4 / 12, "4 of 12 steps", "about 0:24 left"), id="some left"),
        pytest.param(run_state(40, 65.0, ended=True), 5, (1.0, "40 steps", "took 1:05"), id="over"),
        pytest.param(run_state(10, 20.0), 40, (0.25, "10 of 40 steps", "about 1:00 left"), id="as many as others"),
        pytest.param(run_state(5, 9.0), 5, (1.0, "5 of 5 steps", "ending"), id="at its last step"),
        pytest.param(run_state(6, 9.0), 5, (None, "6 steps", ""), id="more steps than others"),
        pytest.param(run_state(1, 9.0), None, (None, "1 step", ""), id="one step"),
    ],
)  # fmt: skip
def test_the_line_of_a_run(run: RunState, usual: int | None, shown: tuple[float | None, str, str]) -> None:
    assert line_of(run, usual) == RunLine("dp", *shown)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0:00"), (59.6, "1:00"), (65, "1:05"), (3600, "1:00:00"), (36_059, "10:00:59")],
)
def test_times(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_who_tells_nobody_and_who_tells_another_one() -> None:
    SILENT.begin("x")
    SILENT.look(())
    SILENT.say("x")
    SILENT.warn("x")
    heard = Heard()
    within = Within(heard, "2 devices")
    within.begin("comparing")
    within.say("over")
    within.warn("mended")
    within.look([run_state(1, 1.0)])
    assert heard.begun == ["2 devices", "2 devices: comparing"]
    assert (heard.lines, heard.warnings, len(heard.looks)) == (["over"], ["mended"], 1)


class Terminal:
    """A process whose stderr is a terminal."""

    def __init__(self, folder: Path, *command: str, **more: str) -> None:
        self._ours, theirs = pty.openpty()
        environment = {**variables(), "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40", **more}
        environment.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [sys.executable, *command], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=theirs, text=True,
        )  # fmt: skip
        os.close(theirs)
        self.seen = ""

    def read_until(self, pattern: str | None = None) -> None:
        """Read what it writes on the terminal until a text is there; None: until its end."""
        while pattern is None or not re.search(pattern, self.plain):
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # how Linux says that nobody writes there any more
                data = b""
            if not data:
                break
            self.seen += data.decode()
        assert pattern is None or re.search(pattern, self.plain), self.plain

    def end(self) -> str:
        """Let it go on to its end; returns what it wrote on stdout."""
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.close()
        self.read_until()
        output = self.process.stdout.read()
        self.process.stdout.close()
        self.process.wait()
        os.close(self._ours)
        return output

    @property
    def plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen).replace("\r", "")


def test_a_terminal_shows_each_run_until_the_results_are_there(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "-c", WORKS)
    terminal.read_until(r"dp in float64 .*3 of 12 steps(.|\n)*ddp in float64 .*starting")
    assert "2 devices: training  0:0" in terminal.plain
    assert terminal.end() == "SAME\n"
    assert terminal.process.returncode == 0
    assert "2 devices, dp in float64: 5.0 s\n" in terminal.plain
    assert "dp2ddp: mended\n" in terminal.plain
    assert (
        terminal.seen.count("\x1b[?25l") == terminal.seen.count("\x1b[?25h") == 1
    )  # the cursor is there again
    last = terminal.seen.rindex("\x1b[2K")  # the rows are wiped away
    assert "float64 " not in terminal.seen[last:]


def test_the_cursor_is_there_again_after_an_interrupt(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "-c", WORKS)
    terminal.read_until("3 of 12 steps")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == ""
    assert terminal.process.returncode != 0
    assert terminal.seen.count("\x1b[?25l") == terminal.seen.count("\x1b[?25h") == 1


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_can_do_nothing_gets_lines(tmp_path: Path, term: str) -> None:
    terminal = Terminal(tmp_path, "-c", WORKS, TERM=term)
    assert terminal.end() == "SAME\n"
    assert terminal.seen.replace("\r", "") == "2 devices, dp in float64: 5.0 s\ndp2ddp: mended\n"


def test_no_terminal_gets_lines(tmp_path: Path) -> None:
    result = python(tmp_path, "-c", WORKS, input="\n")
    assert result.stdout == "SAME\n"
    assert result.stderr == "2 devices, dp in float64: 5.0 s\ndp2ddp: mended\n"


def test_what_is_over_at_once_shows_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n\nnet = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n")
    code = "from dp2ddp.cli import _progress, main\n_progress.DELAY = 3600\nmain()"
    terminal = Terminal(tmp_path, "-c", code, "convert", "train.py", "--check")
    assert "train.py: " in terminal.end()
    assert terminal.seen == ""


@pytest.mark.torchrun
def test_verify_shows_its_runs_on_a_terminal_and_nothing_but_the_result_on_stdout(tmp_path: Path) -> None:
    script(tmp_path, TRAIN)
    code = f"from dp2ddp.cli import _progress, main\n{WITHOUT_TORCHRUN}\n_progress.DELAY = 0\nmain()"
    terminal = Terminal(tmp_path, "-c", code, "verify", "train.py", "-n", "2")
    output = terminal.end()
    assert terminal.process.returncode == 0
    assert output.startswith("SAME train.py trains the same")
    assert "float64: " not in output.partition("\n")[0]
    assert "2 devices: training" in terminal.plain
    assert re.search(r"ddp in float64 +\S+ +starting", terminal.plain)
    assert re.search(r"2 devices, ddp in float64: \d+\.\d s\n", terminal.plain)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.torchrun
@pytest.mark.slow
def test_steps_of_each_run_are_seen_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one, too, behind which the run is ended."""
    import dp2ddp

    monkeypatch.chdir(tmp_path)
    script(tmp_path, TRAIN)
    heard = Heard()
    assert dp2ddp.verify("train.py", devices=2, steps=5, progress=heard).same
    assert heard.begun[:4] == [
        "converting train.py", "2 devices", "2 devices: copying the folder", "2 devices: training"
    ]  # fmt: skip
    assert "2 devices: comparing" in heard.begun
    last = heard.looks[-1]
    assert sorted(run.name for run in heard.looks[0]) == [
        "ddp in float32", "ddp in float64", "dp in float32", "dp in float64"
    ]  # fmt: skip
    assert {(run.begun, run.ended, run.steps, run.expected) for run in last} == {(True, True, 5, 5)}
