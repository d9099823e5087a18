"""Scripts tell the wrapper by the name of its class: type(model).__name__, "DataParallel" in str(type(model))."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from torch import nn
from dp2ddp.templates.ddp import WholeBatchDDP
from dp2ddp.templates.functions import DataParallelOnRanks
from dp2ddp.templates.model import WholeBatch
from dp2ddp.templates.overlapping import WholeBatchParallel
from dp2ddp.templates.parts import WholeBatchInParts
from dp2ddp.templates.turns import WholeBatchInTurns

class Balanced(DataParallelOnRanks):
    pass

class BalancedDataParallel(nn.DataParallel):
    pass

def told(model):
    return type(model).__name__, str(type(model)).rpartition(".")[2], str(model)

for kind in (WholeBatch, WholeBatchDDP, WholeBatchParallel, WholeBatchInTurns, WholeBatchInParts):
    assert told(kind(nn.Linear(2, 2))) == told(nn.DataParallel(nn.Linear(2, 2))), kind
Balanced.__name__ = Balanced.__qualname__ = "BalancedDataParallel"
assert told(Balanced(nn.Linear(2, 2))) == told(BalancedDataParallel(nn.Linear(2, 2)))
print("asked")
"""


def test_a_wrapper_is_told_by_data_parallels_name() -> None:
    """It was `WholeBatchDDP`: then checkpoints of such scripts had other keys."""
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert run.stdout == "asked\n", run.stderr
