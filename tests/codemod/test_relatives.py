"""What once went wrong, and its relatives: each trains the same among ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from covering import slow_but_for
from verdicts import forked_verdict

from dp2ddp.codemod.convert import convert
from dp2ddp.runtime.process.server import Server
from dp2ddp.source.projects import read_project
from tests.codemod.relatives import RELATIVES, Relative

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
    for name, text in relative.files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    conversion = convert(read_project(tmp_path / "train.py"))
    assert not conversion.hazards
    verdict = forked_verdict(server, conversion, tmp_path)
    assert verdict.same
    assert verdict.trained
