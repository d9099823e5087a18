"""A short, seeded run of the fuzzer (tests/codemod/fuzz.py); long ones are in records."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from dp2ddp.codemod.conversion import Options
from dp2ddp.codemod.helpers import HelperPlace
from dp2ddp.source.parsing import parse_leniently
from tests.codemod.fuzz import SCRIPTS, Input, check, fuzz
from tests.codemod.mutations import MUTATIONS, Mutation, mutated, spelled

WRAPPED = "import torch\nnet = torch.nn.DataParallel(m)\nx = net(y)\n"


@pytest.mark.parametrize("count", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_mutated_scripts(count: int) -> None:
    outcomes = fuzz(count=count, number=20261121)
    assert outcomes["converted"] > count / 6, outcomes  # else it tests nothing


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.__name__)
def test_a_mutation_changes_scripts(mutation: Mutation) -> None:
    found = [mutation(SCRIPTS[number], Random(number), SCRIPTS[number + 1]) for number in range(30)]
    changed = [one for one, script in zip(found, SCRIPTS, strict=False) if one != script]
    assert len(changed) > 2
    assert any(parse_leniently(one) for one in changed)


def test_what_is_no_python_any_more_is_left_out() -> None:
    def spoil(text: str, dice: Random, other: str) -> str:
        return f"{text}("

    assert mutated("x = 1\n", "", [(spoil, 0)]) == "x = 1\n"
    assert mutated("x = 1\n", "", [(spoil, 0)], strict=False) == "x = 1\n("


@pytest.mark.parametrize(
    ("spelling", "outcome"),
    [
        pytest.param(lambda text: text.encode(), "converted", id="as it is"),
        pytest.param(
            lambda text: spelled(text, "mixed", False, b"", "utf-8"), "converted", id="mixed endings"
        ),
        pytest.param(
            lambda text: spelled(text, "\r", True, b"\xef\xbb\xbf", "utf-8"), "converted", id="lone CR"
        ),
        pytest.param(
            lambda text: b"# coding: nonsense\n" + text.encode(), "not readable", id="no such encoding"
        ),
        pytest.param(
            lambda text: text.replace("Data", "Model").encode(), "nothing in it", id="no DataParallel"
        ),
    ],
)
def test_outcomes(spelling: Callable[[str], bytes], outcome: str) -> None:
    assert check(Input(spelling(WRAPPED), None, Options(helpers=HelperPlace.PACKAGE))) == outcome
