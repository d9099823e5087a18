"""Scripts that wrap by a library's subclass of DataParallel, beside that class on virtual devices, in float64."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from verdicts import Document, forked_verdicts

from dp2ddp.codemod.convert import convert
from dp2ddp.runtime.process.server import Server
from dp2ddp.source.projects import read_project

HERE = Path(__file__).parent / "library_wrappers"
pytestmark = pytest.mark.torchrun


def verdict_of(server: Server, folder: Path, name: str, world: int) -> Document:
    """`mmcv` is not there when the script is converted; what stands in for it comes behind."""
    script, converted = folder / "train.py", folder / "train_ddp.py"
    shutil.copy(HERE / name, script)
    conversion = convert(read_project(script))
    assert conversion.hazards == ()
    assert conversion.helpers
    converted.write_text(conversion.entry.after)
    (folder / "ddp_helpers.py").write_text(conversion.helpers.after)
    (folder / "mmcv").mkdir()
    shutil.copy(HERE / "mmcv_parallel.py", folder / "mmcv" / "parallel.py")
    return forked_verdicts(server, script, converted, [world], timeout=120)[0]


@pytest.mark.skipif(find_spec("torch_geometric") is None, reason="it is not installed")
@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_lists_of_graphs_train_the_same(server: Server, tmp_path: Path, world: int) -> None:
    """Batches of 8, 8 and 1 graphs; batch norm, dropout, workers."""
    verdict = verdict_of(server, tmp_path, "pyg.py", world)
    assert verdict["same"], verdict
    assert verdict["float64"]["steps"] == 6


@pytest.mark.parametrize("world", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_what_a_library_scatters_by_itself_trains_the_same(
    server: Server, tmp_path: Path, world: int
) -> None:
    verdict = verdict_of(server, tmp_path, "mm.py", world)
    assert verdict["same"], verdict
    assert verdict["float64"]["steps"] == 4
