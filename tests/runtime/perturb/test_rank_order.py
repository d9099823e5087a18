"""Sums over ranks are added first rank first, so that they round as DataParallel's do."""

from __future__ import annotations

import pytest

from dp2ddp.runtime.process.run import Run, watch
from dp2ddp.runtime.process.server import Server
from tests.ranks import stage_of

SUMS = """
import copy, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
own = [2.0**24, 1.0, -(2.0**24)][rank]  # added in this order: 0, for 2**24 + 1 is 2**24; else 1
dist.all_reduce(total := torch.full((1000,), own, device="cuda"))
dist.all_reduce(mean := torch.full((1000,), own, device="cuda"), op=dist.ReduceOp.AVG)
dist.all_reduce(later := torch.full((1000,), own, device="cuda"), async_op=True).wait()
dist.reduce(at := torch.full((1000,), own, device="cuda"), dst=1)
count = torch.tensor(rank, device="cuda")
dist.all_reduce(count)

def gradient(hook=None, late_hook=None):
    model = torch.nn.Linear(1, 1, bias=False).cuda(rank)
    ddp = DistributedDataParallel(model, device_ids=[rank])
    if hook:
        ddp.register_comm_hook(None, hook)
    x = torch.full((1, 1), 3 * own, device=f"cuda:{rank}")
    if late_hook:
        ddp(x)
        ddp.register_comm_hook(None, late_hook)
    ddp(x).sum().backward()
    if not (hook or late_hook):
        average = copy.deepcopy(ddp)  # as for a running mean of weights
        average(x).sum().backward()
        assert average.module.weight.grad.equal(2 * model.weight.grad)
    return model.weight.grad.item()

said = []
def own_hook(state, bucket):
    said.append(bucket.index())
    return allreduce_hook(None, bucket)
found = [total.unique().tolist(), mean.unique().tolist(), later.unique().tolist(),
         at.unique().tolist() if rank == 1 else [0.0], [gradient()]]
gradient(own_hook)
assert said  # a hook of the script's own stays
said.clear()
gradient(late_hook=own_hook)
assert said  # one that it registers after the first forward as well
print(found, count.item())
"""

pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def run(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("sums") / "train.py"
    path.write_text(SUMS)
    return watch([server.start(stage_of(path, "ddp", world=3, rank_order=True))], 60)[0]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_every_sum_is_in_the_order_of_the_ranks(run: Run, rank: int) -> None:
    assert run.codes == (0, 0, 0), run.output(rank, "err")
    assert run.output(rank).strip() == "[[0.0], [0.0], [0.0], [0.0], [0.0]] 3"
