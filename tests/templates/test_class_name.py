"""Scripts tell the wrapper by the name of its class: type(model).__name__, "DataParallel" in str(type(model))."""

from __future__ import annotations

import pytest
from dp2ddp.templates.ddp import WholeBatchDDP
from dp2ddp.templates.functions import DataParallelOnRanks
from dp2ddp.templates.model import WholeBatch
from dp2ddp.templates.overlapping import WholeBatchParallel
from dp2ddp.templates.parts import WholeBatchInParts
from dp2ddp.templates.turns import WholeBatchInTurns
from torch import nn


class Balanced(DataParallelOnRanks):
    pass


class BalancedDataParallel(nn.DataParallel):
    pass


Balanced.__name__ = Balanced.__qualname__ = "BalancedDataParallel"


def told(model: nn.Module) -> tuple[str, str, str]:
    return type(model).__name__, str(type(model)).rpartition(".")[2], str(model)


@pytest.mark.parametrize(
    "kind", [WholeBatch, WholeBatchDDP, WholeBatchParallel, WholeBatchInTurns, WholeBatchInParts]
)
def test_a_wrapper_is_told_by_data_parallels_name(kind: type[nn.Module]) -> None:
    """It was `WholeBatchDDP`: then checkpoints of such scripts had other keys."""
    assert told(kind(nn.Linear(2, 2))) == told(nn.DataParallel(nn.Linear(2, 2)))


@pytest.mark.parametrize("kind", [WholeBatch, WholeBatchDDP])
def test_its_class_is_printed_as_data_parallels(kind: type[nn.Module]) -> None:
    assert str(type(kind(nn.Linear(2, 2)))) == str(nn.DataParallel)


def test_so_is_one_that_the_script_derives() -> None:
    assert told(Balanced(nn.Linear(2, 2))) == told(BalancedDataParallel(nn.Linear(2, 2)))
