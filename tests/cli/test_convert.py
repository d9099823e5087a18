"""`dp2ddp convert` as a person meets it: what is written where, what is said, how it ends."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from covering import slow_but_for

from dp2ddp.cli import main

SCRIPT = "import torch\n\nnet = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n"
HAZARD = SCRIPT + "name = breakpoint()\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def convert(*arguments: object, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["convert", *map(str, arguments)], input=stdin)


class TestWriting:
    def test_the_result_lies_beside_the_script(self, script: Path) -> None:
        result = convert(script)

        assert result.exit_code == 0
        assert "WholeBatchParallel(torch.nn.Linear(2, 2))" in (script.parent / "train_ddp.py").read_text()
        assert script.read_text() == SCRIPT

    def test_the_report_says_how_to_start_it(self, script: Path) -> None:
        assert (
            f"torchrun --standalone --nproc-per-node gpu {script.parent}/train_ddp.py"
            in convert(script).stdout
        )

    def test_output_goes_where_it_is_asked_to_and_its_helpers_with_it(
        self, script: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "there").mkdir()
        result = convert(script, "-o", tmp_path / "there" / "other.py")

        assert result.exit_code == 0
        assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["train.py"]
        assert {path.name for path in (tmp_path / "there").iterdir()} == {"other.py", "ddp_helpers.py"}

    def test_a_folder_gets_a_copy_of_the_project(self, script: Path, tmp_path: Path) -> None:
        """Of a single script, too: a file called `ddp` would be no use."""
        result = convert(script, "-o", tmp_path / "ddp")

        assert result.exit_code == 0, result.output
        assert "WholeBatchParallel" in (tmp_path / "ddp" / "train.py").read_text()
        assert "class WholeBatchParallel" in (tmp_path / "ddp" / "ddp_helpers.py").read_text()
        assert "DataParallel(" in script.read_text()

    def test_one_file_has_its_helpers_in_it(self, script: Path, tmp_path: Path) -> None:
        assert convert(script, "--one-file").exit_code == 0
        assert "class WholeBatchParallel" in (tmp_path / "train_ddp.py").read_text()
        assert not (tmp_path / "ddp_helpers.py").exists()

    def test_pasting_and_importing_exclude_each_other(self, script: Path) -> None:
        assert convert(script, "--one-file", "--import").exit_code == 2

    def test_helpers_that_are_in_the_way_stop_everything(self, script: Path, tmp_path: Path) -> None:
        (tmp_path / "ddp_helpers.py").write_text("mine = 1\n")

        result = convert(script)

        assert result.exit_code == 3
        assert "ddp_helpers.py: the helpers of the conversion need this name" in result.stderr
        assert not (tmp_path / "train_ddp.py").exists()
        assert convert(script, "--one-file").exit_code == 0
        assert (tmp_path / "ddp_helpers.py").read_text() == "mine = 1\n"

    def test_scripts_in_one_folder_share_their_helpers(self, script: Path, tmp_path: Path) -> None:
        convert(script)
        first = (tmp_path / "ddp_helpers.py").read_text()
        (tmp_path / "other.py").write_text(SCRIPT + "torch.save(net.state_dict(), 'x.pt')\n")

        result = convert(tmp_path / "other.py")

        assert "  helpers: ddp_helpers.py, which is there already: 1 added\n" in result.stdout
        helpers = (tmp_path / "ddp_helpers.py").read_text()
        assert "def save_on_rank0" in helpers
        assert "def save_on_rank0" not in first
        kept = {line for line in first.splitlines()[3:] if not line.startswith(("import ", "from "))}
        assert kept <= set(helpers.splitlines())
        convert(script, "--force")  # the first once more takes nothing away
        assert (tmp_path / "ddp_helpers.py").read_text() == helpers

    def test_helpers_that_are_gone_come_back(self, script: Path, tmp_path: Path) -> None:
        convert(script)
        (tmp_path / "ddp_helpers.py").unlink()
        assert convert(script).exit_code == 0
        assert (tmp_path / "ddp_helpers.py").exists()

    def test_an_output_that_exists_is_not_overwritten(self, script: Path) -> None:
        (script.parent / "train_ddp.py").write_text("mine")

        result = convert(script)

        assert result.exit_code == 3
        assert "--force" in result.stderr
        assert (script.parent / "train_ddp.py").read_text() == "mine"

    def test_force_overwrites(self, script: Path) -> None:
        (script.parent / "train_ddp.py").write_text("mine")

        assert convert(script, "--force").exit_code == 0
        assert "WholeBatchParallel" in (script.parent / "train_ddp.py").read_text()

    def test_the_same_result_again_is_up_to_date(self, script: Path) -> None:
        convert(script)

        result = convert(script)

        assert result.exit_code == 0
        assert "up to date" in result.stderr

    def test_a_hazard_ends_with_1_and_the_rest_is_written(self, script: Path) -> None:
        script.write_text(HAZARD)

        result = convert(script)

        assert result.exit_code == 1
        assert f"{script}:4:8: breakpoint() waits for a person (DDP906)" in result.stdout
        assert (script.parent / "train_ddp.py").exists()

    def test_a_script_whose_wrap_is_not_converted_is_not_written(self, script: Path) -> None:
        script.write_text("from encoding.parallel import DataParallelModel\nnet = DataParallelModel(net)\n")

        result = convert(script)

        assert result.exit_code == 1
        assert "not converted, 1 hazard open" in result.stdout
        assert not (script.parent / "train_ddp.py").exists()

    def test_helpers_can_be_imported(self, script: Path) -> None:
        convert(script, "--import")

        written = (script.parent / "train_ddp.py").read_text()
        assert "from dp2ddp.helpers import WholeBatchParallel" in written
        assert "class WholeBatchParallel" not in written


class TestLooking:
    def test_diff_prints_and_writes_nothing(self, script: Path) -> None:
        result = convert(script, "--diff", "--import")

        assert result.exit_code == 0
        assert "-net = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n+" in result.stdout
        assert "\x1b[" not in result.stdout
        assert list(script.parent.iterdir()) == [script]

    def test_check_would_change(self, script: Path) -> None:
        assert convert(script, "--check").exit_code == 1
        assert list(script.parent.iterdir()) == [script]

    def test_check_of_a_converted_script_is_content(self, script: Path) -> None:
        convert(script)

        assert convert(script.parent / "train_ddp.py", "--check").exit_code == 0

    def test_json_has_a_version_and_everything_else(self, script: Path) -> None:
        script.write_text(HAZARD)

        document = json.loads(convert(script, "--json", "--check").stdout)

        assert document["version"] == 1
        assert document["changed"] is True
        assert {edit["code"] for edit in document["edits"]} == {"DDP101", "DDP201"}
        assert [(one["code"], one["line"], one["column"]) for one in document["hazards"]] == [
            ("DDP906", 4, 8)
        ]
        assert document["hazards"][0]["advice"]
        assert {one["why"] for one in document["hazards"]} == {"debugger"}
        assert {edit["why"] for edit in document["edits"]} == {"start", "other-step"}
        checked = convert("-", "--json", "--check", stdin=HAZARD.encode())  # which prints no script
        assert json.loads(checked.stdout)["edits"] == document["edits"]

    def test_stdin_to_stdout(self) -> None:
        result = convert("-", stdin=SCRIPT.encode())

        assert result.exit_code == 0
        assert "net = WholeBatchParallel(torch.nn.Linear(2, 2))\n" in result.stdout
        assert "edits" in result.stderr

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("import torch\nnet = torch.nn.Linear(2, 2)\n", id="no DataParallel"),
            pytest.param("", id="empty"),
            pytest.param('"""Not nn.DataParallel."""\n# torch.nn.DataParallel\n', id="in words only"),
            pytest.param("import torch\nnet = torch.nn.parallel.DistributedDataParallel(net)\n", id="DDP"),
        ],
    )
    def test_nothing_to_convert(self, script: Path, text: str) -> None:
        script.write_text(text)

        result = convert(script)

        assert (result.exit_code, result.stdout) == (0, f"{script}: nothing to convert\n")
        assert list(script.parent.iterdir()) == [script]

    def test_one_device_is_left_alone_with_a_reason(self, script: Path) -> None:
        script.write_text("import torch\nnet = torch.nn.DataParallel(net, device_ids=[0])\n")

        result = convert(script)

        assert result.exit_code == 0
        assert "one device: DataParallel is a plain call" in result.stdout
        assert list(script.parent.iterdir()) == [script]


VARIANTS = {
    "plain": SCRIPT.encode(),
    "CRLF": SCRIPT.replace("\n", "\r\n").encode(),
    "no final newline": SCRIPT.rstrip().encode(),
    "byte order mark": b"\xef\xbb\xbf" + SCRIPT.encode(),
    "latin-1": b"# coding: latin-1\n# \xe9\n" + SCRIPT.encode(),
    "form feed": SCRIPT.encode().replace(b"\n\n", b"\n\x0c\nx = '\xe2\x80\xa8'\n"),
    "tabs": SCRIPT.encode().replace(b"net", b"if True:\n\tnet", 1),
    "old Mac": SCRIPT.replace("\n", "\r").encode(),
}
# what stands in a script, and how its name is quoted in the head, know nothing of each other
PATCHED = [(kind, name) for kind in VARIANTS for name in ("train.py", "my train.py")]
SEEN = [(kind, "my train.py" if place % 2 else "train.py") for place, kind in enumerate(VARIANTS)]


class TestDifference:
    @pytest.mark.skipif(not shutil.which("patch"), reason="no `patch` on this machine")
    @pytest.mark.parametrize("variant", slow_but_for(SEEN, PATCHED, "-".join))
    def test_patch_makes_the_result_of_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: tuple[str, str]
    ) -> None:
        kind, name = variant
        data = VARIANTS[kind]
        (tmp_path / name).write_bytes(data)
        monkeypatch.chdir(tmp_path)
        convert(name, "-o", "out.py")
        command = f"{sys.executable} -m dp2ddp convert '{name}' --diff | patch"

        result = subprocess.run(
            command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False
        )

        assert result.returncode == 0, result.stdout + result.stderr
        assert (tmp_path / name).read_bytes() == (tmp_path / "out.py").read_bytes() != data
        assert {path.name for path in tmp_path.iterdir()} == {name, "out.py", "ddp_helpers.py"}

    @pytest.mark.parametrize("colours", [True, False], ids=["colours", "NO_COLOR"])
    def test_a_terminal_shows_the_change_and_no_helpers(self, script: Path, colours: bool) -> None:
        shown = on_a_terminal(script, "--diff", NO_COLOR="" if colours else "1")

        assert ("\x1b[32m+" in shown) is colours
        lines = re.sub("\x1b\\[[0-9]*m", "", shown).splitlines()
        assert [line for line in lines if line.startswith("-")] == [
            f"--- {script}",
            "-net = torch.nn.DataParallel(torch.nn.Linear(2, 2))",
        ]
        assert not [line for line in lines if "def " in line]


def on_a_terminal(*arguments: object, **variables: str) -> str:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "dp2ddp", "convert", *map(str, arguments)]
    process = subprocess.Popen(
        command, stdout=theirs, stderr=subprocess.DEVNULL, env={**os.environ, **variables}
    )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: the other end is closed
        while piece := os.read(ours, 4096):
            shown += piece
    os.close(ours)
    process.wait()
    return shown.decode().replace("\r\n", "\n")


class TestStdin:
    """What is no script is refused in test_bad_input.py."""

    def test_a_closed_one(self) -> None:
        command = f"{sys.executable} -m dp2ddp convert - <&-"

        result = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)

        assert result.returncode == 3
        assert result.stderr.startswith("dp2ddp: <stdin>: ")

    def test_an_empty_one(self) -> None:
        result = convert("-", stdin=b"")

        assert (result.exit_code, result.stdout) == (0, "")
