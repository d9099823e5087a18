"""Every script of the corpus: converted, both run, every optimizer step compared; or refused with the right words."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from corpus.cases import Case, all_cases
from corpus.features import Run, features
from corpus.outcomes import outcome
from covering import covering

from dp2ddp.codemod.convert import convert
from dp2ddp.options import VerifyOptions
from dp2ddp.progress import SILENT
from dp2ddp.report.comparison import Report, print_report
from dp2ddp.runtime.server import Server
from dp2ddp.source.old_code import mended_files
from dp2ddp.source.projects import read_project
from dp2ddp.trial.subject import Subject, Version
from dp2ddp.trial.trial import run_trial

CASES = all_cases()
TRAINING = [(case, world) for case in CASES if case.answer is None and case.runs for world in case.worlds]
COVERING = set(covering(TRAINING, features))
TIMEOUT = 120.0  # seconds without progress; the machine may be busy


def as_parameter(run: Run) -> Any:
    """Slow, unless it is one of the few that have every idiom among them."""
    case, world = run
    return pytest.param(*run, id=f"{case.name}-{world}", marks=[] if run in COVERING else [pytest.mark.slow])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_script_is_converted_or_refused_as_its_head_says(case: Case) -> None:
    found = outcome(case)
    if case.answer is None:
        assert found.hazards == ()
        assert found.changed
    else:
        assert found.answer == case.answer
        assert not found.changed or found.hazards
    if case.helpers:
        assert found.helpers == case.helpers


@pytest.mark.torchrun
@pytest.mark.parametrize(("case", "world"), [as_parameter(run) for run in TRAINING])
def test_a_script_trains_the_same(case: Case, world: int, server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    if case.folder:
        shutil.copytree(case.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
        script = folder / case.path.relative_to(case.folder)
    else:
        folder.mkdir()
        script = folder / f"train{case.path.suffix}"
        script.write_bytes(case.path.read_bytes())
    project = read_project(script, as_module=case.module is not None)
    conversion = convert(project)
    subject = Subject(
        options=VerifyOptions(script, arguments=case.arguments, timeout=TIMEOUT),
        script=script,
        name=str(script.relative_to(folder)),
        version=Version(
            conversion.entry.data,
            script.name if conversion.is_project else "train_ddp.py",
            conversion.files_beside,
        ),
        module=case.module,
        folder=folder,
        mended=mended_files(project),
        torchrun=False,
        float32=world == min(case.worlds),  # what doubles hide does not hang on the number of devices
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    verdict = run_trial(subject, world, server, scratch, SILENT)
    print_report(Report(case.name, (verdict,), "", 0.0))  # pytest shows it where one of these is false
    assert verdict.same
    assert verdict.trained is case.trains
    if world == 2 and verdict.float32 and has_even_chunks(verdict.float32.rows):
        assert verdict.float32.identical


def has_even_chunks(rows: tuple[tuple[int, ...], ...]) -> bool:
    return all(len(set(each)) == 1 for each in rows)
