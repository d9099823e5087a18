"""Forwards that leave traces, in turns, beside torch's own replicas in one process; on 2 and 3 ranks over gloo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dp2ddp.runtime.process.server import Server
from tests.codemod.forward_mutations import ALL
from tests.codemod.forward_mutations import MORE as NEWER
from tests.ranks import found_on_ranks

HERE = Path(__file__).parent
OF_TWO = [one.name for one in (*ALL, *NEWER)]
OF_THREE = OF_TWO[::4]  # the last batch has rows for two ranks
MORE = [
    "kept_for_the_loss",
    "penalty",
    "checkpointed",
    "evaluates",
    "some_without_gradient",
    "prints",
    "error_of_one",
    "assigns",
    "only_assigns",
    "only_prints",
    "only_writes",
    "left_later",
    "left_never",
]
pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Any:
    """What every rank found, in rank order, by the number of ranks."""
    folder, program = tmp_path_factory.mktemp("ranks"), HERE / "turns_program.py"
    found: dict[int, Any] = {}
    for world, names in ((2, OF_TWO), (3, OF_THREE)):
        found |= found_on_ranks(server, program, folder, str(world), *names, *MORE)
    return found


def wrong(name: str, rank: int, answer: Any) -> object:
    """What is not as in one process; nothing if all is."""
    if "failed" in answer or not answer["difference"] < 1e-12:
        return answer
    return None if rank or answer["found"] == answer["wanted"] else answer  # rank 0 prints for all


@pytest.mark.parametrize(("world", "names"), [(2, [*OF_TWO, *MORE]), (3, [*OF_THREE, *MORE])], ids=["2", "3"])
def test_it_trains_as_one_process_does(found: Any, world: int, names: list[str]) -> None:
    told = {
        (name, rank): wrong(name, rank, answers[name])
        for rank, answers in enumerate(found[world])
        for name in names
    }
    assert {case: what for case, what in told.items() if what} == {}


def test_what_is_compared_prints_something(found: Any) -> None:
    assert found[3][0]["prints"]["wanted"].count("rows") == 3 * 3 + 2
    assert "two rows" in found[3][0]["error_of_one"]["wanted"]
