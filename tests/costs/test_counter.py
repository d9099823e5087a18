"""What is counted in a run, held against what torch itself says and against formulas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dp2ddp.costs.figures import Counted, Sent, read
from dp2ddp.runtime.process.run import watch
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.stage import Mode
from tests.ranks import stage_of

pytestmark = pytest.mark.torchrun
ROWS, INS, HIDDEN, OUTS = 6, 40, 600, 8
WEIGHTS = 4 * (INS * HIDDEN + HIDDEN + HIDDEN * HIDDEN + HIDDEN + HIDDEN * OUTS + OUTS)

START = f"""
import json, torch, torch.nn as nn, torch.distributed as dist
torch.manual_seed(0)
net = nn.Sequential(nn.Linear({INS}, {HIDDEN}), nn.Linear({HIDDEN}, {HIDDEN}), nn.Linear({HIDDEN}, {OUTS})).cuda()
x = torch.randn({ROWS}, {INS})
"""
# a port by hand with three collectives of its own in a step, and buckets of about 1 MB
PORT = f"""
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
{START}
net = nn.parallel.DistributedDataParallel(net, device_ids=[rank], bucket_cap_mb=1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(20):
    loss = net(x[rank::2].cuda()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    told = torch.zeros(10, dtype=torch.float64).cuda()
    dist.all_reduce(told)
    dist.broadcast(told[:3], 0)
    dist.all_gather([torch.empty(4).cuda() for _ in range(2)], torch.ones(4).cuda())
    dist.barrier()
    data = net._get_ddp_logging_data()
    open(f"torch{{rank}}.json", "w").write(json.dumps({{k: str(v) for k, v in data.items()}}))
dist.destroy_process_group()
"""
PLAIN = f"""
{START}
net = nn.DataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(20):
    x.cuda()
    loss = net(x.cuda()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
# nothing is freed behind the forward: all activations live, and one block that comes and goes
MEMORY = """
import torch, torch.nn as nn
net = nn.Linear(1000, 1000, bias=False).cuda()  # 4 MB
wrapped = nn.DataParallel(net, device_ids=[0])
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(8):
    wrapped(torch.ones(1, 1000).cuda()).sum().backward()  # and 4 MB of gradients
    block = torch.zeros(2_000_000).cuda(1)  # 8 MB on the other
    view = block[5:]
    del block, view
    host = torch.zeros(5_000_000)
    optimizer.step()
    optimizer.zero_grad()  # else new gradients would live beside the old ones
"""


def counted(server: Server, folder: Path, code: str, mode: Mode, **more: Any) -> tuple[Counted, ...]:
    script = folder / "train.py"
    script.write_text(code)
    stage = stage_of(script, mode, **{"counted": str(folder / "counted"), "warm_up": 2, "steps": 4, **more})
    run = watch([server.start(stage)], 60)[0]
    assert run.failure is None, run.output(0, "err")
    return read(folder / "counted", stage.ranks, Counted)


@pytest.fixture(scope="module")
def port(server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[Counted, ...]]:
    folder = tmp_path_factory.mktemp("port")
    return folder, counted(server, folder, PORT, "ddp")


def test_collectives_are_those_of_the_reducer_and_of_the_script(
    port: tuple[Path, tuple[Counted, ...]],
) -> None:
    folder, found = port
    assert len(found) == 2
    assert found[0].collectives == found[1].collectives
    data = json.loads((folder / "torch0.json").read_text())
    buckets = [int(size) for size in data["rebuilt_bucket_sizes"].split(",")]
    assert len(buckets) > 1
    assert sum(buckets) == WEIGHTS == found[0].parameters
    assert found[0].collectives == {
        "all_reduce": Sent(len(buckets) + 1, WEIGHTS + 10 * 8),
        "broadcast": Sent(1, 3 * 8),
        "all_gather": Sent(1, 2 * 4 * 4),
        "barrier": Sent(1, 0),
    }


def test_copies_of_data_parallel_are_weights_rows_outputs_and_gradients(
    server: Server, tmp_path: Path
) -> None:
    (found,) = counted(server, tmp_path, PLAIN, "dp")
    half = ROWS // 2
    assert found.collectives == {}
    assert {kind: each.bytes for kind, each in found.copies.items()} == {
        "weights": WEIGHTS,
        "inputs": half * INS * 4,
        "outputs": half * OUTS * 4,
        "gradients": WEIGHTS
        + half * OUTS * 4,  # of the weights, and those of the outputs on their way to them
    }


def test_memory_is_what_lives_at_once_on_each_device(server: Server, tmp_path: Path) -> None:
    (found,) = counted(server, tmp_path, MEMORY, "dp")
    small = 4 * (1000 + 1000 + 2)  # input, output, loss and its gradient
    assert 8_000_000 <= found.devices[0] <= 8_000_000 + 4 * small
    assert found.devices[1] == 8_000_000


def test_a_script_that_ends_early_is_counted_as_far_as_it_went(server: Server, tmp_path: Path) -> None:
    (found,) = counted(server, tmp_path, PLAIN.replace("range(20)", "range(3)"), "dp")
    assert found.steps == 3
    assert found.copies["weights"] == Sent(1, WEIGHTS)


def test_a_script_without_a_step_has_no_figures(server: Server, tmp_path: Path) -> None:
    (found,) = counted(server, tmp_path, PLAIN.replace("optimizer.step()", "pass"), "dp")
    assert (found.steps, found.copies) == (0, {})
