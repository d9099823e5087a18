"""The conversion as a command of libcst's own tool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from libcst.codemod import CodemodContext, SkipFile

from dp2ddp.codemod.command import ConvertDataParallel
from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.helpers import module_text
from dp2ddp.codemod.lift import Library
from dp2ddp.source.projects import read_project

ROOT = Path(__file__).resolve().parent.parent.parent
HAZARD = "import torch\nnet = torch.nn.DataParallel(n).cuda(1)\nnet(x)\n"
WRAP = "import torch\nfrom torch.nn import DataParallel  # why\n\nnet = DataParallel(n)\nnet(x)\n"


def tool(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "libcst.tool",
        "codemod",
        "-x",
        "dp2ddp.codemod.command.ConvertDataParallel",
    ]
    return subprocess.run(
        [*command, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False
    )


def converted(path: Path, **options: object) -> bytes:
    import libcst as cst

    command = ConvertDataParallel(CodemodContext(filename=str(path)), **options)  # type: ignore[arg-type]
    return command.transform_module(cst.parse_module(path.read_bytes())).bytes


def test_the_tool_converts_a_folder_in_two_processes(tmp_path: Path) -> None:
    examples = {
        f"{name}.py": ROOT / "examples" / name / "train.py" for name in ("cifar_bn", "seed_four_layers")
    }
    expected = {}
    for name, source in examples.items():
        (tmp_path / name).write_bytes(source.read_bytes())
        expected[name] = convert(read_project(tmp_path / name))
    (tmp_path / "plain.py").write_text("print(1)\n")
    (tmp_path / "hazard.py").write_text(HAZARD)
    with_hazard = convert(read_project(tmp_path / "hazard.py")).helpers

    result = tool("-j", "2", tmp_path, cwd=tmp_path)

    assert result.returncode == 0, result.stderr
    assert "Transformed 3 files successfully" in result.stderr
    assert "plain.py: no DataParallel in it" in result.stderr
    assert "line 2: device 1 is not the one that DataParallel keeps the model on (DDP102)" in result.stderr
    for name, conversion in expected.items():
        assert (tmp_path / name).read_bytes() == conversion.entry.data
    assert with_hazard
    needed = {"init_distributed", *with_hazard.added}
    for conversion in expected.values():
        assert conversion.helpers
        needed |= set(conversion.helpers.added)
    assert (tmp_path / "ddp_helpers.py").read_text() == module_text(needed, Library())

    again = tool(tmp_path, cwd=tmp_path)

    assert "Transformed 0 files successfully" in again.stderr
    assert "Failed to codemod 0 files" in again.stderr
    assert "ddp_helpers.py: helpers of a conversion" in again.stderr


def test_a_file_that_cannot_be_converted_is_a_failure_and_stays(tmp_path: Path) -> None:
    (tmp_path / "ddp_helpers.py").write_text("mine = 1\n")
    (tmp_path / "train.py").write_text(WRAP)

    result = tool("train.py", cwd=tmp_path)

    assert "the helpers of the conversion need this name" in result.stderr
    assert (tmp_path / "train.py").read_text() == WRAP


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf" + WRAP.encode(), WRAP.replace("\n", "\r\n").encode(),
                                  b"# coding: latin-1\n# \xe9\n" + WRAP.encode()])  # fmt: skip
def test_bytes_of_a_file_stay(tmp_path: Path, data: bytes) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(data)

    after = converted(script)

    assert after == convert(read_project(script)).entry.data
    assert after.partition(b"import torch")[0] == data.partition(b"import torch")[0]
    assert (b"\r\n" in after) == (b"\r\n" in data)


def test_options_are_those_of_the_command_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(WRAP)

    assert b"from dp2ddp.helpers import" in converted(script, imports=True)
    assert b"def init_distributed" in converted(script, one_file=True)
    assert list(tmp_path.iterdir()) == [script]


def test_local_modules_are_converted_with_the_script(tmp_path: Path) -> None:
    module, script = tmp_path / "models.py", tmp_path / "train.py"
    module.write_text("import torch\n\n\ndef build():\n    return torch.nn.DataParallel(Net())\n")
    script.write_text("from models import build\n\nbuild()(x)\n")

    assert b"init_distributed()" in converted(script)
    assert "import torch\nfrom ddp_helpers import" in module.read_text()
    assert (tmp_path / "ddp_helpers.py").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = 1\n", "no DataParallel in it"),
        ("import torch\ndef f():\n    return torch.nn.DataParallel(n)\n", "hazards stand in the way"),
        ("import torch\nnet = torch.nn.DataParallel(n, device_ids=[0])\n", "nothing to convert"),
    ],
)
def test_what_does_not_change_is_skipped(tmp_path: Path, text: str, reason: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(text)

    with pytest.raises(SkipFile, match=reason):
        converted(script)

    assert list(tmp_path.iterdir()) == [script]
