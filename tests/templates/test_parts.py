"""Outputs in parts against the same functions of the whole: values and gradients, on 2 and 3 ranks over gloo."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dp2ddp.runtime.process.server import Server
from tests.ranks import found_on_ranks

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from parts_program import IN_PARTS, PENALTIES, REFUSED, WHOLE  # noqa: E402

pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Any:
    """What every rank found, in rank order, by the number of ranks."""
    return found_on_ranks(server, HERE / "parts_program.py", tmp_path_factory.mktemp("ranks"), "2,3")


@pytest.mark.parametrize("world", [2, 3])
def test_values_and_gradients_are_those_of_the_whole(found: Any, world: int) -> None:
    answers = [(case, rank[case]) for rank in found[world] for case in (*IN_PARTS, *WHOLE, *PENALTIES)]
    failed = {case: answer["failed"] for case, answer in answers if "failed" in answer}
    assert failed == {}
    assert {case: each for case, each in answers if not (each["shape"] and each["difference"] < 1e-12)} == {}


def test_nothing_is_gathered(found: Any) -> None:
    """Not by the function itself; the test gathers what is in parts at its end."""
    assert {case for case in IN_PARTS for rank in found[2] if rank[case]["gathered"]} == set()


@pytest.mark.parametrize("case", REFUSED)
def test_what_parts_would_pass_by_is_refused(found: Any, case: str) -> None:
    assert all("clone it before" in rank[case]["failed"] for world in (2, 3) for rank in found[world])
