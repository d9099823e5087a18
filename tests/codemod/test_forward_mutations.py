"""Whatever a forward changes: it trains the same among ranks, or it is a hazard. Never anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from covering import covering, slow_but_for

from dp2ddp.codemod.conversion import Conversion
from dp2ddp.codemod.convert import convert
from dp2ddp.progress import SILENT
from dp2ddp.runtime.server import Server
from dp2ddp.source.projects import read_project
from dp2ddp.trial.subject import Subject
from dp2ddp.trial.trial import run_trial
from tests.codemod.forward_mutations import ALL, LOST, Mutation
from tests.codemod.scripts import project_of

TIMEOUT = 120.0  # seconds without progress; the machine may be busy
HAZARDS = {  # nothing that ranks could tell each other: these are hazards, all others are converted
    *("iterator", "cycle", "count", "generator", "simple_queue", "function_attribute", "global_number"),
    *(
        "class_list_by_name",
        "class_number",
        "class_number_type",
        "class_setattr",
        "default",
        "default_keyword",
    ),
    *(
        "alias_dict",
        "alias_vars",
        "alias_getattr_unknown",
        "helper_default",
        "helper_closure",
        "cache_decorator",
    ),
}


CONVERTED = [one for one in ALL if one.name not in HAZARDS]


def kind(mutation: Mutation) -> set[str]:
    """list, tensor, alias, ...: the first word of its name."""
    return {mutation.name.partition("_")[0]}


def test_names_are_told_apart() -> None:
    assert len({one.name for one in ALL}) == len(ALL) >= 150
    assert {one.name for one in ALL} > HAZARDS | LOST


@pytest.mark.parametrize("mutation", ALL, ids=lambda one: one.name)
def test_it_takes_turns_or_is_a_hazard(mutation: Mutation) -> None:
    """Only what is set on a replica itself, and lost, or a buffer, which is copied, needs neither."""
    conversion = convert(project_of(mutation.text))
    assert bool(conversion.hazards) == (mutation.name in HAZARDS)
    if mutation.name not in HAZARDS:
        assert ("InTurnDDP(" in conversion.entry.data.decode()) == (mutation.name not in LOST)


@pytest.mark.torchrun
@pytest.mark.parametrize("mutation", slow_but_for(covering(CONVERTED, kind), CONVERTED, lambda one: one.name))
def test_it_trains_the_same(mutation: Mutation, server: Server, tmp_path: Path) -> None:
    folder, scratch = tmp_path / "folder", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    script = folder / "train.py"
    script.write_text(mutation.text, encoding="utf-8")
    verdict = run_trial(_subject(script, convert(read_project(script))), 2, server, scratch, SILENT)
    assert verdict.same
    assert verdict.trained


def _subject(script: Path, conversion: Conversion) -> Subject:
    return Subject(
        script=script,
        name=script.name,
        converted=conversion.entry.data,
        converted_name="train_ddp.py",
        modules=conversion.files_beside,
        module=None,
        arguments=(),
        folder=script.parent,
        mended={},
        timeout=TIMEOUT,
        torchrun=False,
        float32=False,
    )
