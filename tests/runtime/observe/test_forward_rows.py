"""Which rows each rank of a conversion gives its replica: those of DataParallel's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dp2ddp.runtime.process.run import watch
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.stage import Mode
from dp2ddp.trace.records import Forward, read_trace
from tests.ranks import stage_of

SCRIPT = """
import torch
{wrapper}
torch.manual_seed(0)
net = Wrapper(torch.nn.Linear(3, 2).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for rows in (7, 4, 1):  # on three devices: 3, 3, 1; 2, 2, 0; 1, 0, 0
    net(torch.randn(rows, 3).cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
JOIN = "\nfrom dp2ddp.helpers import init_distributed\ninit_distributed()"
WRAPPERS = {
    "DataParallel": "from torch.nn import DataParallel as Wrapper",
    "WholeBatchDDP": "from dp2ddp.helpers import WholeBatchDDP as Wrapper",
    "WholeBatchParallel": "from dp2ddp.helpers import WholeBatchParallel as Wrapper",
    "WholeBatchInTurns": "from dp2ddp.helpers import WholeBatchInTurns as Wrapper",
}

pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def forwards(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[Forward]]]:
    """Of each wrapper: of each process, what its forwards were given."""
    found = {}
    for name, wrapper in WRAPPERS.items():
        room = tmp_path_factory.mktemp(name)
        (room / "train.py").write_text(
            SCRIPT.format(wrapper=wrapper if name == "DataParallel" else wrapper + JOIN)
        )
        mode: Mode = "dp" if name == "DataParallel" else "ddp"
        stage = stage_of(room / "train.py", mode, world=3, trace=str(room / "trace"), dtype="float64")
        (run,) = watch([server.start(stage)], 120)
        assert run.failure is None, run.output(0, "err")
        found[name] = [list(_forwards(room / "trace", rank)) for rank in stage.ranks]
    return found


def _forwards(trace: Path, rank: int) -> Iterator[Forward]:
    for step in read_trace(trace, rank).steps():
        yield from step.forwards


@pytest.mark.parametrize("name", [name for name in WRAPPERS if name != "DataParallel"])
def test_each_rank_has_the_rows_of_its_replica(forwards: dict[str, list[list[Forward]]], name: str) -> None:
    (expected,) = forwards["DataParallel"]
    assert [forward.rows for forward in expected] == [(3, 3, 1), (2, 2, 0), (1, 0, 0)]
    assert len({digest for forward in expected for digest in forward.digests}) == 12
    for whole, *parts in zip(expected, *forwards[name], strict=True):
        assert tuple(rows for part in parts for rows in part.rows) == whole.rows
        assert tuple(digest for part in parts for digest in part.digests) == whole.digests
