"""What once went wrong, and its relatives: each trains the same among ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from covering import slow_but_for

from dp2ddp.codemod.convert import convert
from dp2ddp.options import VerifyOptions
from dp2ddp.progress import SILENT
from dp2ddp.runtime.server import Server
from dp2ddp.source.projects import read_project
from dp2ddp.trial.subject import Subject, Version
from dp2ddp.trial.trial import run_trial
from tests.codemod.relatives import RELATIVES, Relative

TIMEOUT = 120.0  # seconds without progress; the machine may be busy
EACH_TIME = {
    *("checkpoint-around_False", "checkpoint-around_both_False", "checkpoint-sequential_inside_False"),
    *(
        "backward-retained",
        "import-input_two_modules_deep",
        "import-makedirs_in_a_function",
        "set-vocabulary",
    ),
}


def test_there_are_enough_of_them() -> None:
    assert {each.id for each in RELATIVES} > EACH_TIME
    assert len(RELATIVES) >= 60


@pytest.mark.torchrun
@pytest.mark.parametrize(
    "relative",
    slow_but_for([each for each in RELATIVES if each.id in EACH_TIME], RELATIVES, lambda each: each.id),
)
def test_it_trains_the_same(relative: Relative, server: Server, tmp_path: Path) -> None:
    folder, scratch = tmp_path / "folder", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    for name, text in relative.files:
        (folder / name).write_text(text, encoding="utf-8")
    script = folder / "train.py"
    conversion = convert(read_project(script))
    assert not conversion.hazards
    subject = Subject(
        options=VerifyOptions(script, timeout=TIMEOUT),
        script=script,
        name=script.name,
        version=Version(
            conversion.entry.data,
            script.name if conversion.is_project else "train_ddp.py",
            conversion.files_beside,
        ),
        folder=folder,
        torchrun=False,
        float32=False,
    )
    verdict = run_trial(subject, 2, server, scratch, SILENT)
    assert verdict.same
    assert verdict.trained
