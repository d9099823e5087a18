"""What no command can work with: one line on stderr, the exit code of the README, nothing written, nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from dp2ddp.cli import main
from tests.cli.scripts import TRAIN, dp2ddp, like_anybody, script, variables
from tests.ranks import until

pytestmark = pytest.mark.usefixtures("own_folder")
torchrun = pytest.mark.torchrun
CONVERT, RUN_DP, RUN_DDP, VERIFY = ["convert"], ["run", "--mode", "dp"], ["run", "--mode", "ddp"], ["verify"]
BENCH = ["bench"]
LAUNCH = ["launch", "-n", "2"]
LONG = TRAIN.replace("range(2)", "range(10**9)").replace(
    "    for x, y", "    open('begun', 'w').close()\n    for x, y"
)


@pytest.mark.parametrize("command", [CONVERT, RUN_DP, RUN_DDP, VERIFY, BENCH, LAUNCH], ids=" ".join)
class TestEveryCommand:
    @pytest.mark.parametrize(
        ("name", "words"),
        [
            pytest.param("none.py", "none.py: no such file", id="no such file"),
            pytest.param("folder.net", "no such file (did you mean -m folder.net?)", id="a module"),
            pytest.param("folder", "folder: a folder; name the script", id="a folder"),
            pytest.param("elf.py", "elf.py: not a Python script (it holds binary data)", id="binary"),
            pytest.param("noise.py", "); save it as UTF-8", id="not UTF-8"),
            pytest.param("coded.py", "coded.py: not readable as text", id="unknown encoding"),
            pytest.param("elf.py/x.py", "cannot be read (Not a directory)", id="below a file"),
            pytest.param(
                "loop.py", "cannot be read (Too many levels of symbolic links)", id="link in a circle"
            ),
        ],
    )
    def test_a_script_that_cannot_be_read(
        self, tmp_path: Path, command: list[str], name: str, words: str
    ) -> None:
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "net.py").touch()
        (tmp_path / "elf.py").write_bytes(b"\x7fELF\0")
        (tmp_path / "noise.py").write_bytes(b"x = '\xff'\n")
        (tmp_path / "coded.py").write_text("# coding: nonsense\nimport torch\n")
        (tmp_path / "loop.py").symlink_to("loop.py")
        is_refused(tmp_path, [*command, name], words)

    def test_an_unknown_option(self, tmp_path: Path, command: list[str]) -> None:
        script(tmp_path, TRAIN)
        is_refused(tmp_path, [*command, "--speed", "train.py"], "No such option", code=2, lines=4)


@pytest.mark.parametrize("command", [RUN_DDP, VERIFY, BENCH], ids=" ".join)
@pytest.mark.parametrize("theirs", ["--epochs 1", "--epochs=1", "--epochs 1 --lr 2"])
def test_an_option_of_the_scripts_own_stands_behind_two_dashes(
    tmp_path: Path, command: list[str], theirs: str
) -> None:
    script(tmp_path, TRAIN)
    words = f"No such option: --epochs; the script's own stand behind --: -- {theirs}"
    is_refused(tmp_path, [*command, "train.py", *theirs.split()], words, code=2, lines=4)


@pytest.mark.parametrize("command", [CONVERT, RUN_DDP, VERIFY, BENCH, LAUNCH], ids=" ".join)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("import torch\nx = (1,\n  2]\n", "train.py:3:4: closing parenthesis", id="syntax error"),
        pytest.param("import torch\nprint 'on', torch\n", "train.py:2:1: Python 2", id="Python 2"),
    ],
)
def test_what_is_no_python_has_file_line_and_column(
    tmp_path: Path, command: list[str], text: str, words: str
) -> None:
    script(tmp_path, text)
    is_refused(tmp_path, [*command, "train.py"], words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param([*RUN_DP, "train.py", "-n", "0"], "0 is not in the range", id="run on no device"),
        pytest.param(
            [*VERIFY, "train.py", "-n", "0"], "numbers of devices from 1 to 1024", id="verify on no device"
        ),
        pytest.param([*VERIFY, "train.py", "-n", "22222"], "from 1 to 1024", id="verify on far too many"),
        pytest.param([*RUN_DP, "train.py", "-n", "22222"], "1<=x<=1024", id="run on far too many"),
        pytest.param([*RUN_DP, "train.py", "--steps", "3"], "--trace", id="steps without a trace"),
        pytest.param([*RUN_DP, "train.py", "--timeout", "0"], "--timeout", id="run for no time"),
        pytest.param(
            [*RUN_DP, "train.py", "-mb", "8"], "behind --: -- -mb 8", id="a letter behind one of ours"
        ),
        pytest.param([*VERIFY, "train.py", "--timeout", "nan"], "no number of seconds", id="no seconds"),
        pytest.param(["doctor", "--timeout", "nan"], "no number of seconds", id="no seconds to wait"),
        pytest.param([*CONVERT, "train.py", "--select", "DDP777"], "DDP777: no such rule", id="no such rule"),
        pytest.param(
            [*CONVERT, "train.py", "--ignore", "DDP777"], "DDP777: no such rule", id="no rule to ignore"
        ),
        *(
            pytest.param(
                [*command, "train.py", "-o", ""], "-o '': no name of a file", id=f"{command[0]} into ''"
            )
            for command in (CONVERT, LAUNCH)
        ),
        pytest.param(["doctor", "--timeout", "inf"], "is not in the range 0<x<=86400", id="for ever"),
        pytest.param(["doctor", "--timeout", "1e7"], "is not in the range 0<x<=86400", id="for four months"),
        *(
            pytest.param(
                [*CONVERT, *words, "--json"],
                f"stdout takes one document, --json or {other}: take one",
                id=f"two documents on stdout: {' '.join(words)}",
            )
            for words, other in (
                (["train.py", "-o", "-"], "the script (-o FILE)"),
                (["-"], "the script (-o FILE)"),
                (["train.py", "--diff"], "--diff"),
            )
        ),
        pytest.param(["rules", "DDP777"], "DDP777: no such rule", id="no such page"),
        pytest.param(["rules", "DDP6255"], "(did you mean DDP625?)", id="nearly a page"),
        pytest.param(
            [*CONVERT, "train.py", "--select", "DP501"], "(did you mean DDP501?)", id="nearly a rule"
        ),
        pytest.param(["new", "first.py"], "first.py: a folder with several files is made", id="no folder"),
        pytest.param(["chekc"], "No such command 'chekc' (did you mean check?)", id="nearly a command"),
        pytest.param(["convrt", "train.py"], "(did you mean convert?)", id="nearly convert"),
        pytest.param(["whatever"], "No such command 'whatever'\n", id="nothing like a command"),
        pytest.param(
            ["a b.py"], "to convert this script: dp2ddp convert 'a b.py'\n", id="a script for a command"
        ),
        *(
            pytest.param(
                [*CONVERT, "train.py", "-o", name, *more],
                f"-o {name}: a script is written, into a file that ends in .py, or into a folder; {name}/ is a folder",
                id=f"convert into {name} {' '.join(more)}",
            )
            for name in ("out.txt", "report.json", "new/out.md")
            for more in ([], ["--diff"])
        ),
    ],
)
def test_what_is_no_use(tmp_path: Path, arguments: list[str], words: str) -> None:
    script(tmp_path, TRAIN)
    is_refused(tmp_path, arguments, words, code=2, lines=4)


@pytest.mark.parametrize("name", ["out", "out-1.2", "out.new/", "there.old"])
def test_what_is_no_file_is_a_folder_for_a_copy(tmp_path: Path, name: str) -> None:
    script(tmp_path, TRAIN)
    (tmp_path / "there.old").mkdir()
    result = CliRunner().invoke(main, [*CONVERT, "train.py", "-o", name])
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / name / "train.py").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        *(([*command, "nope.py"], "nope.py: no such file") for command in (RUN_DP, VERIFY, BENCH)),
        *(
            ([*command, "train.py"], ": pip install torch msgspec numpy psutil")
            for command in (RUN_DP, VERIFY, BENCH)
        ),
        *(
            ([*command, "train.py", "--converted", "no.py"], "no.py: no such file")
            for command in (VERIFY, BENCH)
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_was_mistyped_is_said_before_what_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    script(tmp_path, TRAIN)
    monkeypatch.setattr("dp2ddp.installed.find_spec", lambda name: None)
    is_refused(tmp_path, arguments, words)


@pytest.mark.parametrize("name", ["", ".", ".."])
@pytest.mark.parametrize("command", [CONVERT, RUN_DP, VERIFY, BENCH, LAUNCH], ids=" ".join)
def test_what_names_no_module(tmp_path: Path, command: list[str], name: str) -> None:
    is_refused(tmp_path, [*command, "-m", name], f"-m {name!r}: no name of a module", 2, lines=4)


def is_refused(folder: Path, arguments: list[str], words: str, code: int = 3, lines: int = 1) -> None:
    before = contents(folder)
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert words in result.stderr
    assert result.stderr.count("\n") == lines  # click puts three lines above a mistake in usage
    assert contents(folder) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() if path.is_file() else b"" for path in folder.iterdir()}


def test_what_cannot_be_run_or_written(tmp_path: Path) -> None:
    script(tmp_path, TRAIN)
    is_refused(tmp_path, ["run", "train.py"], "Missing option '--mode'", code=2, lines=6)
    is_refused(tmp_path, [*RUN_DP, "-"], "stdin cannot be run")
    is_refused(tmp_path, [*CONVERT, "train.py", "-o", "none/out.py"], "cannot be written")


def test_a_folder_that_nobody_may_write_into(tmp_path: Path) -> None:
    result = in_a_closed_folder(tmp_path, TRAIN, *CONVERT, "train.py")
    assert (result.returncode, result.stdout) == (3, "")
    assert "cannot be written" in result.stderr
    assert "Permission denied" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_that_cannot_be_read_stops_neither_its_neighbours_nor_their_check(tmp_path: Path) -> None:
    script(tmp_path, TRAIN)
    script(tmp_path, "import train\nprint(1)\n", "secret.py").chmod(0)
    script(
        tmp_path, "net = nn.DataParallel(net)\n", "net.py"
    )  # leads to nobody, so that importers are looked for
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "closed").mkdir(0o300)
    result = dp2ddp(tmp_path, "check", preexec_fn=like_anybody)
    assert result.returncode == 1, result.stderr
    assert "convert train.py" in result.stdout
    assert [line for line in result.stdout.splitlines() if "Permission" in line] == [
        "not read: closed: cannot be read (Permission denied)",
        "not read: secret.py: cannot be read (Permission denied)",
    ]
    result = dp2ddp(tmp_path, "convert", "train.py", preexec_fn=like_anybody)
    assert result.returncode == 0, result.stderr


@pytest.mark.torchrun
def test_a_run_needs_no_place_for_the_conversion(tmp_path: Path) -> None:
    text = "import torch\nprint(torch.nn.DataParallel(torch.nn.Linear(3, 2).cuda()).forward.__module__)\n"
    result = in_a_closed_folder(tmp_path, text, *RUN_DDP, "-n", "1", "train.py")
    assert result.returncode == 0, result.stderr
    assert result.stdout not in ("", "torch.nn.parallel.data_parallel\n")  # it was converted


def in_a_closed_folder(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script(folder, text)
    folder.chmod(0o555)
    try:
        result = dp2ddp(folder, *arguments, preexec_fn=like_anybody)
    finally:
        folder.chmod(0o755)
    assert [path.name for path in folder.iterdir()] == ["train.py"]
    return result


class TestOutput:
    def test_a_closed_stdout_cannot_take_the_script(self, tmp_path: Path) -> None:
        script(tmp_path, TRAIN)
        result = shell(tmp_path, "convert train.py -o - >&-")
        assert (result.returncode, result.stderr) == (3, "dp2ddp: <stdout>: closed; name a file with -o\n")

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
    @pytest.mark.parametrize("options", ["--diff", "-o -", "--check", "--json --check"])
    def test_a_full_disk_is_one_line(self, tmp_path: Path, options: str) -> None:
        script(tmp_path, TRAIN)
        result = shell(tmp_path, f"convert train.py {options} >/dev/full")
        assert (result.returncode, result.stderr) == (3, "dp2ddp: output: No space left on device\n")

    PRINTS = (
        "--help",
        "--version",
        "rules",
        "check --help",
        "check folder",
        "check .",
        "convert train.py --diff",
    )

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
    @pytest.mark.parametrize("command", PRINTS[:-1])
    def test_a_full_disk_is_one_line_whatever_is_printed(self, tmp_path: Path, command: str) -> None:
        script(tmp_path, TRAIN)
        (tmp_path / "folder").mkdir()
        result = shell(tmp_path, f"{command} >/dev/full")
        assert (result.returncode, result.stderr) == (3, "dp2ddp: output: No space left on device\n")

    @pytest.mark.parametrize("command", PRINTS)
    def test_a_reader_that_has_gone_ends_it_as_shells_say_it(self, tmp_path: Path, command: str) -> None:
        """`| head -1`: not 1, which is an answer, and without a word."""
        script(tmp_path, TRAIN)
        (tmp_path / "folder").mkdir()
        reading, writing = os.pipe()
        os.close(reading)
        process = subprocess.run(
            [sys.executable, "-m", "dp2ddp", *command.split()], cwd=tmp_path, env=variables(),
            stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        os.close(writing)
        assert (process.returncode, process.stderr) == (141, "")

    @pytest.mark.parametrize("command", ["run missing.py", "run --nonsense", "check missing", "--nonsense"])
    def test_the_same_where_an_error_is_told(self, tmp_path: Path, command: str) -> None:
        result = shell(tmp_path, f"{command} 2>&1 | true; exit ${{PIPESTATUS[0]}}")
        assert (result.returncode, result.stdout, result.stderr) == (141, "", "")

    @pytest.mark.torchrun
    @pytest.mark.parametrize("mode", ["dp", pytest.param("ddp", marks=pytest.mark.slow)])
    @pytest.mark.parametrize("streams", ["", "2>&1"], ids=["stdout", "both"])
    def test_a_script_that_prints_to_nobody(self, tmp_path: Path, mode: str, streams: str) -> None:
        script(tmp_path, "for line in range(100_000):\n    print(line)\n")
        result = shell(tmp_path, f"run train.py --mode {mode} {streams} | head -1; exit ${{PIPESTATUS[0]}}")
        assert (result.returncode, result.stdout) == (141, "0\n")
        assert "failed in" not in result.stderr

    @pytest.mark.torchrun
    def test_a_pipe_of_the_script_s_own_is_its_failure(self, tmp_path: Path) -> None:
        script(tmp_path, "raise BrokenPipeError('mine')\n")
        result = shell(tmp_path, "run train.py --mode dp")
        assert result.returncode == 3
        assert "failed in dp mode on 2 devices: BrokenPipeError: mine" in result.stderr


def shell(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        f"{sys.executable} -m dp2ddp {command}",
        cwd=folder, shell=True, executable="/bin/bash", env=variables(), capture_output=True, text=True, check=False,
    )  # fmt: skip


class TestClosedStreams:
    pytestmark = torchrun

    def test_a_script_runs_without_stdin_and_stdout(self, tmp_path: Path) -> None:
        script(tmp_path, "import sys\nopen('out', 'w').write(repr(sys.stdin.read()))\n")
        result = shell(tmp_path, "run train.py --mode dp <&- >&-")
        assert (result.returncode, result.stderr) == (0, "")
        assert (tmp_path / "out").read_text() == "''"


OURS = ("dp2ddp-", "torchelastic")  # among the temporary files, where torch's compiler keeps a folder, too


class TestInterrupts:
    def test_ctrl_c_while_convert_waits_for_a_script(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "dp2ddp", "convert", "-"], stdin=-1, stdout=-1, stderr=-1, text=True,
            preexec_fn=default_signals,
        )  # fmt: skip
        assert process.stdin is not None
        until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_SLEEPING)
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        assert (process.returncode, stdout, stderr) == (130, "", "dp2ddp: interrupted\n")

    @pytest.mark.torchrun
    @pytest.mark.parametrize(
        ("command", "number", "code"),
        [
            pytest.param(VERIFY, signal.SIGINT, 130, id="verify, Ctrl-C"),
            # a kill: as of a terminal that is closed (one handler for both), and of bench (test_bench.py)
            pytest.param(VERIFY, signal.SIGTERM, 143, id="verify, kill", marks=pytest.mark.slow),
            pytest.param(RUN_DDP, signal.SIGTERM, 143, id="run, kill", marks=pytest.mark.slow),
            pytest.param(RUN_DDP, signal.SIGHUP, 129, id="run, terminal closed"),
        ],
    )
    def test_nothing_is_left(self, tmp_path: Path, command: list[str], number: int, code: int) -> None:
        """No process, no file in the user's folder, none among the temporary files."""
        folder, temporary = tmp_path / "folder", tmp_path / "temporary"
        folder.mkdir()
        temporary.mkdir()
        script(folder, LONG)
        process = subprocess.Popen(
            [sys.executable, "-m", "dp2ddp", *command, "train.py"], cwd=folder, text=True,
            env={**variables(), "TMPDIR": str(temporary)}, stdout=-1, stderr=-1, preexec_fn=default_signals,
        )  # fmt: skip
        until(lambda: any(tmp_path.rglob("begun")))
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == code, stderr
        assert psutil.wait_procs(family, timeout=20)[1] == []
        assert {path.name for path in folder.iterdir()} <= {"train.py", "begun"}
        assert [path for path in temporary.iterdir() if path.name.startswith(OURS)] == []


def default_signals() -> None:
    """A shell starts what runs in the background with Ctrl-C ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
