"""Scripts with the usual trackers, whose libraries are stand-ins here: one run, whose values all ranks read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dp2ddp.codemod.convert import convert
from dp2ddp.errors import RunError
from dp2ddp.options import VerifyOptions
from dp2ddp.progress import SILENT
from dp2ddp.report.comparison import Report, report_text
from dp2ddp.runtime.process.server import Server
from dp2ddp.source.projects import read_project
from dp2ddp.trial.runs import environment
from dp2ddp.trial.subject import subject_of
from dp2ddp.trial.trial import run_trial

HERE = Path(__file__).parent
USUAL = "wandb_usual.py"
SCRIPTS = sorted(path.name for path in (HERE / "scripts").glob("*.py"))
# Where ranks read of rank 0's tracker what they cannot know, the run ends with an error.
ENDED = {"comet_and_aim.py": "only rank 0 has this: ask_rank0"}
ONE_RUN = [name for name in SCRIPTS if name not in ENDED]


def with_stand_ins() -> str:
    """PYTHONPATH, the stand-ins first."""
    return os.pathsep.join(filter(None, (str(HERE / "stand_ins"), os.environ.get("PYTHONPATH", ""))))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Its runs find the stand-ins, as installed packages; whoever converts does not."""
    with Server({**environment(), "PYTHONPATH": with_stand_ins()}) as server:
        yield server


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_is_converted_without_a_hazard(name: str) -> None:
    conversion = convert(read_project(HERE / "scripts" / name))

    assert conversion.hazards == ()
    assert conversion.changed


@pytest.mark.torchrun
@pytest.mark.parametrize("name", ONE_RUN)
def test_it_is_one_run(
    name: str, server: Server, wants_all: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(HERE / "scripts" / name, folder / "train.py")
    monkeypatch.chdir(folder)

    subject = subject_of(VerifyOptions(script=Path("train.py")))
    subject = replace(subject, torchrun=wants_all and name == USUAL, float32=False)  # a real one once
    monkeypatch.setenv("PYTHONPATH", with_stand_ins())  # of a real torchrun

    verdict = run_trial(subject, 2, server, tmp_path, SILENT)

    assert verdict.same, report_text(Report("train.py", (verdict,), "", 0.0))


@pytest.mark.torchrun
@pytest.mark.parametrize(("name", "words"), ENDED.items())
def test_what_other_ranks_cannot_know_ends_the_run(
    name: str, words: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    shutil.copy(HERE / "scripts" / name, tmp_path / "folder" / "train.py")
    monkeypatch.chdir(tmp_path / "folder")
    subject = replace(subject_of(VerifyOptions(script=Path("train.py"))), torchrun=False, float32=False)
    with pytest.raises(RunError, match=words):
        run_trial(subject, 2, server, tmp_path, SILENT)
