"""Old code is run in the words of today: nothing but the name of an argument changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.source.files import SourceFile
from dp2ddp.source.old_code import mended, mended_files
from dp2ddp.source.projects import read_project


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("x.cuda(async=True)\n", "x.cuda(non_blocking=True)\n", id="argument"),
        pytest.param("x.cuda(0, async = a)", "x.cuda(0, non_blocking = a)", id="blanks"),
        pytest.param(
            "f('ä', x.cuda(async=True))", "f('ä', x.cuda(non_blocking=True))", id="behind an umlaut"
        ),
        pytest.param(
            "x.cuda(async=True).to(0, async=False)\r\n\fy.cuda(async=True)",
            "x.cuda(non_blocking=True).to(0, non_blocking=False)\r\n\fy.cuda(non_blocking=True)",
            id="several, line endings",
        ),
        pytest.param(
            "# x.cuda(async=True)\nx.cuda(async=True)\n",
            "# x.cuda(async=True)\nx.cuda(non_blocking=True)\n",
            id="not in a comment",
        ),
    ],
)
def test_async_becomes_non_blocking(before: str, after: str) -> None:
    assert mended(SourceFile(None, before)).text == after


@pytest.mark.parametrize(
    "text",
    [
        "print('x.cuda(async=True)')\n",
        "x.cuda(asynk=True)\n",
        "def f(async=1): x.cuda(async=True)\n",
        "x = (\n",
    ],
)
def test_anything_else_stays(text: str) -> None:
    assert mended(SourceFile(None, text)).text == text


def test_the_files_of_a_project_that_had_to_be_mended(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import old, new\n")
    (tmp_path / "old.py").write_text("def f(x): return x.cuda(async=True)\n")
    (tmp_path / "new.py").write_text("def f(x): return x.cuda()\n")

    files = mended_files(read_project(tmp_path / "train.py"))

    assert files == {tmp_path / "old.py": b"def f(x): return x.cuda(non_blocking=True)\n"}
