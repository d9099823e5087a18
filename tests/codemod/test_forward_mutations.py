"""Whatever a forward changes: it trains the same among ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from covering import covering, slow_but_for
from verdicts import forked_verdict

from dp2ddp.codemod.conversion import Conversion
from dp2ddp.codemod.convert import convert
from dp2ddp.runtime.process.server import Server
from dp2ddp.source.projects import read_project
from tests.codemod.forward_mutations import ALL, LOST
from tests.codemod.scripts import project_of
from tests.diffs import Script

IN_WEIGHTS = {"parameter_data"}  # written by all replicas at once: rank 0's stay
NEEDLESS = {"anew", "number_in_dict"}  # they take turns for what is lost


def kind(mutation: Script) -> set[str]:
    """list, tensor, alias, ...: the first word of its name."""
    return {mutation.name.partition("_")[0]}


FEW = covering(ALL, kind)[
    ::3
]  # tests/templates/test_turns.py trains all of them, with the wrapper put in by hand


def test_names_are_told_apart() -> None:
    assert len({one.name for one in ALL}) == len(ALL) >= 150
    assert {one.name for one in ALL} > LOST > NEEDLESS


@pytest.mark.parametrize("mutation", ALL, ids=lambda one: one.name)
def test_ranks_take_turns_for_what_it_fills(mutation: Script) -> None:
    """Only what is set on a replica itself, and lost, or a buffer, or a weight, which are copied, needs no turns."""
    conversion = convert(project_of(mutation.text))
    assert not conversion.hazards
    takes_turns = "WholeBatchInTurns(" in conversion.entry.after
    assert takes_turns == (mutation.name not in (LOST - NEEDLESS) | IN_WEIGHTS)


@pytest.mark.torchrun
@pytest.mark.parametrize("mutation", slow_but_for(FEW, ALL, lambda one: one.name))
def test_it_trains_the_same(mutation: Script, server: Server, tmp_path: Path) -> None:
    verdict = forked_verdict(server, converted_in(tmp_path, mutation), tmp_path)
    assert verdict.same
    assert verdict.trained


def converted_in(folder: Path, mutation: Script) -> Conversion:
    script = folder / "train.py"
    script.write_text(mutation.text, encoding="utf-8")
    return convert(read_project(script))
