"""Which wrapper a program gets: each case of wrappers/cases.diff says it, and some of them why."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.codemod.looks.wrapper import Choice, wrapper
from tests.codemod.programs import program
from tests.diffs import Script, cases, scripts

FILE = Path(__file__).with_name("wrappers") / "cases.diff"


def test_an_ordinary_script_gets_torchs_own() -> None:
    assert wrapper(program(scripts(FILE)["bases/ordinary"].text)) is Choice.ONE_PLAIN_STEP


@pytest.mark.parametrize("script", cases(FILE), ids=lambda script: script.name)
def test_a_program_gets_its_wrapper(script: Script) -> None:
    choice = wrapper(program(script.text))
    assert choice.helper == script.said["wrapper"]
    assert choice.reason == script.said.get("why", choice.reason)


def test_a_layer_that_a_library_makes_by_its_name_fills_nothing() -> None:
    assert wrapper(program(scripts(FILE)["bases/of_library"].text)).helper == "WholeBatchParallel"
