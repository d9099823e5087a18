"""The parts of DataParallel over ranks, beside torch's own replicas in one process; on 2 and 3 ranks over gloo."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from dp2ddp.templates import functions

from dp2ddp.runtime.process.server import Server
from tests.ranks import found_on_ranks

HERE = Path(__file__).parent
pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Any:
    """What every rank found, in rank order, by the number of ranks."""
    return found_on_ranks(server, HERE / "functions_program.py", tmp_path_factory.mktemp("ranks"), "2,3")


@pytest.mark.parametrize("world", [2, 3])
def test_outputs_gradients_and_parameters_are_those_of_one_process(found: Any, world: int) -> None:
    answers = [(name, each) for rank in found[world] for name, each in rank.items() if name[:3] != "of_"]
    assert len(answers) == 12 * world
    assert [each for each in answers if not (isinstance(each[1], float) and each[1] < 1e-12)] == []


@pytest.mark.parametrize("world", [2, 3])
def test_a_replica_of_another_rank_refuses_to_run(found: Any, world: int) -> None:
    assert all("call it by parallel_apply" in each["of_another_rank"] for each in found[world])


@pytest.mark.parametrize("world", [2, 3])
def test_tensors_with_gradients_in_objects_are_refused_on_all_ranks(found: Any, world: int) -> None:
    for each in found[world]:
        assert "are in an object" in each["of_hidden"]["inputs"]
        assert "are in an object" in each["of_hidden"]["outputs"]
        assert each["of_hidden"]["nothing"] == "nothing"


@pytest.mark.parametrize("world", [2, 3])
def test_rank_0_alone_computes_all_replicas(found: Any, world: int) -> None:
    assert all(each["of_rank_0_alone"] for each in found[world])


def test_gathered_dicts_keep_their_kind_and_keys() -> None:
    """As torch's own, which gathers from GPUs alone: numbers make a vector, rows follow one another."""
    ranks = [
        OrderedDict(loss=torch.tensor(float(rank)), pair=(torch.full((2, 3), rank), None), rows=torch.ones(1))
        for rank in range(2)
    ]
    gathered = functions.gather_on_ranks(ranks)

    assert type(gathered) is OrderedDict
    assert list(gathered) == ["loss", "pair", "rows"]
    assert gathered["loss"].tolist() == [0.0, 1.0]
    assert gathered["pair"][0][:, 0].tolist() == [0, 0, 1, 1]
    assert gathered["pair"][1] is None
    assert gathered["rows"].shape == (2,)
