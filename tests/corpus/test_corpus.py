"""Every script of the corpus: converted, both run, every optimizer step compared; or refused with the right words."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pytest
from corpus.cases import Case, all_cases
from corpus.idioms import IDIOMS
from corpus.outcomes import outcome
from covering import covering
from verdicts import forked_verdict

from dp2ddp.codemod.convert import convert
from dp2ddp.report.comparison import Report, print_report
from dp2ddp.runtime.process.server import Server
from dp2ddp.source.old_code import mended_files

Run = tuple[Case, int]  # a script, and on how many devices


def features(run: Run) -> set[Hashable]:
    """What a run shows: idioms, its helpers, and its group on so many devices."""
    case, world = run
    group = case.name.partition("/")[0]
    module = ("module", case.module is not None)
    return {*case.idioms, group, world, *case.helpers, module, ("trains", case.trains)}


COMPUTING = {  # of what is computed; what is only written, or chosen, is the same in doubles
    *("Spelling of the wrap", "Special wraps", "Inputs of the wrapped forward"),
    *("Loss", "Model / BN", "Gradients / autograd", "AMP"),
}
COMPUTED = {idiom.text for idiom in IDIOMS if idiom.group in COMPUTING}


def computed(run: Run) -> set[Hashable]:
    """What doubles may hide."""
    return {feature for feature in features(run) if feature in COMPUTED or feature in run[0].helpers}


CASES = all_cases()
TRAINING = [(case, world) for case in CASES if case.answer is None and case.runs for world in case.worlds]
COVERING = covering(TRAINING, features)
IN_FLOAT32 = covering(COVERING, computed)


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
def test_a_script_trains_the_same(
    case: Case, world: int, server: Server, tmp_path: Path, wants_all: bool
) -> None:
    folder = tmp_path / "folder"
    project = case.project(case.copied_to(folder))
    verdict = forked_verdict(
        server,
        convert(project),
        folder,
        world,
        module=case.module,
        arguments=case.arguments,
        mended=mended_files(project),
        # what doubles hide does not hang on the number of devices
        float32=world == min(case.worlds) if wants_all else (case, world) in IN_FLOAT32,
    )
    print_report(Report(case.name, (verdict,), "", 0.0))  # pytest shows it where one of these is false
    assert verdict.same
    assert verdict.trained is case.trains
    if world == 2 and verdict.float32 and has_even_chunks(verdict.float32.rows):
        assert verdict.float32.identical


def has_even_chunks(rows: tuple[tuple[int, ...], ...]) -> bool:
    return all(len(set(each)) == 1 for each in rows)
