"""A unit test of one's own: gloo, spawned ranks, asserts on each of them."""
import os
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def _worker(rank, world_size, file_name):
    dist.init_process_group("gloo", init_method=f"file://{file_name}", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(2, 1))
    x = torch.full((4, 2), float(rank))
    model(x).sum().backward()
    for parameter in model.parameters():
        gathered = [torch.zeros_like(parameter.grad) for _ in range(world_size)]
        dist.all_gather(gathered, parameter.grad)
        for other in gathered:
            assert torch.equal(other, gathered[0])
    if rank == 0:
        print("gradients are the same")
    dist.barrier()


class TestGradients(unittest.TestCase):
    def test_two_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(_worker, args=(2, os.path.join(folder, "store")), nprocs=2)


if __name__ == "__main__":
    unittest.main()
