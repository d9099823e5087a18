"""Checkpoints from before a conversion load after it, and the other way round, and training goes on the same.

Real runs: the original under DataParallel and its conversion, each writes every form of checkpoint, and each goes on
from those of both. Two devices, even chunks: to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest

from dp2ddp.codemod.convert import convert
from dp2ddp.runtime.process.run import watch
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.stage import Mode, Stage
from dp2ddp.source.projects import read_project
from tests.comparison.unlike import difference
from tests.ranks import stage_of

pytestmark = pytest.mark.torchrun
PROGRAM = Path(__file__).parent / "programs" / "checkpoints.py"
MODES: tuple[Mode, ...] = get_args(Mode)
FORMS = ("prefixed", "unprefixed", "whole", "wrapper", "module")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The original, and its conversion."""
    folder = tmp_path_factory.mktemp("checkpoints")
    (folder / "dp.py").write_bytes(PROGRAM.read_bytes())
    conversion = convert(read_project(PROGRAM))
    assert conversion.hazards == ()
    (folder / "ddp.py").write_bytes(conversion.entry.data)
    for path, data in conversion.files_beside.items():
        (folder / path.name).write_bytes(data)
    return folder


def stage(folder: Path, mode: Mode, *arguments: str) -> Stage:
    script, run_folder = folder / f"{mode}.py", folder / " ".join(("run", mode, *arguments))
    return stage_of(script, mode, folder=str(folder), run_folder=str(run_folder), arguments=arguments)


def outputs(server: Server, stages: Mapping[tuple[str, ...], Stage]) -> dict[tuple[str, ...], dict[str, str]]:
    """What each run printed: first words of a line -> the last."""
    runs = watch([server.start(one) for one in stages.values()], 300.0)
    assert [run.output(0, "err")[-2000:] for run in runs if run.failure] == []
    lines = {
        name: [line.rpartition(" ") for line in run.output(0).splitlines()]
        for name, run in zip(stages, runs, strict=True)
    }
    return {name: {first: last for first, _, last in each} for name, each in lines.items()}


@pytest.fixture(scope="module")
def written(folder: Path, server: Server) -> dict[tuple[str, ...], dict[str, str]]:
    return outputs(server, {(mode,): stage(folder, mode, "--write", f"by_{mode}") for mode in MODES})


@pytest.fixture(scope="module")
def resumed(
    folder: Path, server: Server, written: dict[tuple[str, ...], dict[str, str]]
) -> dict[tuple[str, ...], dict[str, str]]:
    pairs = [(mode, source) for mode in MODES for source in MODES]
    return outputs(
        server, {(mode, source): stage(folder, mode, "--resume", f"by_{source}") for mode, source in pairs}
    )


def test_both_write_the_same(folder: Path, written: dict[tuple[str, ...], dict[str, str]]) -> None:
    assert written["dp",] == written["ddp",]
    files = [(folder / "by_dp" / f"{form}.pt", folder / "by_ddp" / f"{form}.pt") for form in FORMS]
    assert [difference(ours, theirs, 0.0) for ours, theirs in files] == [""] * len(FORMS)

    # pickle refuses to name another class than the object's own in the shorter way that it takes for DataParallel
    other = [
        form
        for form, (ours, theirs) in zip(FORMS, files, strict=True)
        if ours.read_bytes() != theirs.read_bytes()
    ]
    assert other == ["wrapper"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("source", MODES)
def test_each_goes_on_from_what_either_wrote(
    resumed: dict[tuple[str, ...], dict[str, str]], mode: Mode, source: Mode
) -> None:
    """Keys with and without `module.`, put on and taken off, not strict, refused, whole runs, pickled models."""
    found = resumed[mode, source]
    assert found == resumed["dp", "dp"]
    same = {found[how] for how in ("prefixed", "unprefixed", "prefix taken off", "prefix put on")}
    assert len(same) == 1
    assert found["not strict"] == found["refused"] not in same  # keys that do not fit: nothing is loaded


@pytest.mark.parametrize("mode", MODES)
def test_a_whole_checkpoint_is_as_if_it_had_never_stopped(
    written: dict[tuple[str, ...], dict[str, str]], resumed: dict[tuple[str, ...], dict[str, str]], mode: Mode
) -> None:
    """Optimizer, scheduler, and the random streams of every device: dropout goes on where it was."""
    assert resumed[mode, "dp"]["whole"] == written[mode,]["in one go"]
