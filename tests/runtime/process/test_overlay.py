"""A file that runs in the words of another keeps its place, its name and its lines; without torch."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from dp2ddp.runtime.process.overlay import Overlay, line_origins, write_overlay

EXAMPLES = Path(__file__).parents[3] / "examples"
BEFORE = """import sys

def train(x):
    # nothing yet
    raise ValueError(x)
"""
AFTER = """import sys
from json import dumps
from json import loads

def train(x):
    # nothing yet
    raise ValueError(loads(dumps(x)) + [2])
"""


def overlay(folder: Path, before: str = BEFORE, after: str = AFTER) -> tuple[Path, Overlay]:
    file = folder / "train.py"
    file.write_text(before)
    return file, Overlay(write_overlay(folder / "run", [(file, after.encode())]))


def test_every_line_comes_from_somewhere() -> None:
    assert line_origins([b"a", b"b", b"c"], [b"a", b"x", b"y", b"c"]) == [0, 1, 2, 2, 3]
    assert line_origins([], [b"a"]) == [0, 1]


def test_the_other_text_runs_under_the_files_own_name_and_lines(tmp_path: Path) -> None:
    file, laid = overlay(tmp_path)
    names: dict[str, object] = {}
    exec(laid.code(str(file)), names)
    with pytest.raises(ValueError, match=r"\[1, 2\]") as raised:
        names["train"]([1])  # type: ignore[operator]
    frame = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (frame.filename, frame.lineno, frame.line) == (str(file), 5, "raise ValueError(x)")
    assert file.read_text() == BEFORE


def test_other_files_run_as_they_are(tmp_path: Path) -> None:
    _, laid = overlay(tmp_path)
    (tmp_path / "other.py").write_text("x = 1\n")
    names: dict[str, object] = {}
    exec(laid.code(str(tmp_path / "other.py")), names)
    assert names["x"] == 1


def test_imports_find_it_and_leave_no_bytecode_of_it(tmp_path: Path) -> None:
    """A cached module of the same name, from before or behind, is the file's own."""
    file, laid = overlay(tmp_path, "answer = 1\n", "answer = 2\n")
    code = (
        "import sys; from dp2ddp.runtime.process.overlay import Overlay\n"
        f"if sys.argv[1:]: Overlay({laid.pairs!r}).install()\n"
        f"sys.path.insert(0, {str(file.parent)!r}); import train; print(train.answer, train.__file__)"
    )
    for arguments, answer in ((), 1), (("laid",), 2), ((), 1):
        command = [sys.executable, "-c", code, *arguments]
        said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        assert said.split() == [str(answer), str(file)]


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*/train.py")), ids=lambda path: path.parent.name)
def test_a_conversion_compiles_with_the_lines_of_the_script(script: Path, tmp_path: Path) -> None:
    """The compiler refuses a node that ends before it begins."""
    converted = script.with_name("train_ddp.py").read_bytes()
    code = Overlay(write_overlay(tmp_path, [(script, converted)])).code(str(script))
    last = len(script.read_bytes().splitlines())
    assert all(line <= last for _, _, line in code.co_lines() if line)
    assert {"init_distributed", "join_ranks"} & {*code.co_names}
