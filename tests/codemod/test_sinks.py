"""Whatever writes a file is left to rank 0, or is a hazard, of whichever library, and however its path is named."""

from __future__ import annotations

from collections import Counter

import pytest

from dp2ddp.codemod.conversion import Conversion
from tests.codemod.scripts import converted
from tests.codemod.sink_scripts import MARK, PATHS, SinkScript, sink_scripts

SCRIPTS = list(sink_scripts())


HELPERS = ("on_rank0", "LogFile(")


def marked(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.endswith(MARK)]


def answer(script: SinkScript, conversion: Conversion) -> str:
    """What happened to the line that writes."""
    if any(hazard.code.startswith("DDP50") for hazard in conversion.hazards):
        return "hazard"
    (before,), (after,) = marked(script.text), marked(conversion.after)
    return "once" if before != after and any(one in after for one in HELPERS) else "left to every rank"


@pytest.mark.parametrize("path", PATHS)
def test_no_sink_is_left_to_every_rank(path: str, wants_all: bool) -> None:
    """Each commit: every third writer, others with the next path."""
    scripts = [script for script in SCRIPTS if script.path == path]
    scripts = scripts if wants_all else scripts[list(PATHS).index(path) % 3 :: 3]
    answers = {script.name: answer(script, converted(script.text)) for script in scripts}
    assert [name for name, one in answers.items() if one == "left to every rank"] == []
    assert (
        Counter(answers.values())["once"] >= len(scripts) - 5
    )  # shelves, memory maps and their like may be read


def test_there_are_enough_of_them() -> None:
    assert len(SCRIPTS) > 600


@pytest.mark.parametrize("path", ["literal", "parameter"])
def test_a_second_conversion_leaves_them_alone(path: str) -> None:
    scripts = [script for script in SCRIPTS if script.path == path]
    first = {script.name: converted(script.text) for script in scripts}
    again = {name: converted(each.after) for name, each in first.items()}
    assert [name for name, each in again.items() if each.changed or each.hazards] == []
