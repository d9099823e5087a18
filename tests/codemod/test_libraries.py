"""Where files may be written unseen (a library that nobody knows, a name that is made), each rank looks at its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.codemod.conversion import Conversion
from dp2ddp.codemod.convert import convert
from dp2ddp.source.projects import read_project

SCRIPT = "{}\nimport torch\nnet = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n"


def converted(folder: Path, line: str) -> Conversion:
    script = folder / "train.py"
    script.write_text(SCRIPT.format(line))
    return convert(read_project(script))


@pytest.mark.parametrize(
    "line",
    [
        *("import somelib.io", "from somelib import save", "if x:\n    import somelib as np"),
        *("import torch\nkeep = getattr(torch, 'sa' + 've')", "exec(text)"),
    ],
)
def test_what_may_write_unseen_is_guarded(tmp_path: Path, line: str) -> None:
    conversion = converted(tmp_path, line)
    assert "\ninit_distributed()\n\nrefuse_own_files()\n" in conversion.entry.after
    assert conversion.helpers
    assert "def refuse_own_files()" in conversion.helpers.after


@pytest.mark.parametrize(
    "line",
    [
        "import os, numpy.random",
        "from PIL import Image",
        "import other",
        "from . import other",
        "import torch\nnet = getattr(torch.nn, name)()",
    ],
)
def test_what_is_known_or_local_is_not(tmp_path: Path, line: str) -> None:
    (tmp_path / "other.py").write_text("x = 1\n")
    assert "refuse_own_files" not in converted(tmp_path, line).entry.after
