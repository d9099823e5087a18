"""Each script of docs/how_to.md and others is converted as is shown (tests/test_docs_code.py), and trains the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import dp2ddp
from dp2ddp.runtime.process.server import Server
from tests.living.verifying import findings, verified

pytestmark = pytest.mark.torchrun
SCRIPTS = sorted((Path(__file__).resolve().parent.parent / "how_to").glob("*/train.py"))
LEFT_TO_ALL = {"hf_trainer"}  # tests/trial/test_hidden.py trains one of these, too


@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path, id=path.parent.name, marks=[pytest.mark.slow] * (path.parent.name in LEFT_TO_ALL))
        for path in SCRIPTS
    ],
)
def test_the_script_of_a_page_trains_the_same(
    server: Server, script: Path, world: int, tmp_path: Path
) -> None:
    shutil.copy(script, tmp_path)
    dp2ddp.write_conversion(dp2ddp.convert(tmp_path / "train.py"))
    verdict = verified(server, tmp_path, world=world)
    assert verdict.same, findings(verdict)
    assert not verdict.unshared, "each has its seeds"
