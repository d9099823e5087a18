"""Complex numbers through a whole verify: parameters, gradients, buffers, checkpoints, each with both of its parts."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch

from dp2ddp.runtime.process.server import Server
from tests.cli.forked import forked

pytestmark = [
    pytest.mark.torchrun,
    pytest.mark.skipif(
        "complex" not in inspect.getsource(torch.nn.parallel._functions),
        reason="an older torch (2.4), whose DataParallel fails in backward with a complex parameter",
    ),
]

# a spectral filter (complex64, in the float64 runs complex128) and turns in double precision (rotary embeddings)
COMMON = """
import sys
import numpy
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.filter = nn.Parameter(torch.complex(torch.randn(4), torch.randn(4)))
        self.out = nn.Linear(8, 2)
        angles = torch.arange(4, dtype=torch.float64)
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))
        self.register_buffer("spectrum", torch.zeros(4, dtype=torch.complex64))

    def forward(self, x):
        z = torch.fft.fft(x) * self.filter * self.turns.to(self.filter.dtype)
        return self.out(torch.cat([z.real, z.imag], 1).to(self.out.weight.dtype))


torch.manual_seed(0)
data = torch.Generator().manual_seed(1)
batches = [(torch.randn(6, 4, generator=data), torch.randn(6, 2, generator=data)) for _ in range(3)]
net = Net()
fault = FAULT
"""
TRAINING = """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for x, y in batches:
    optimizer.zero_grad()
    nn.functional.mse_loss(net(x.cuda()), y.cuda()).backward()
    optimizer.step()
"""
SAVING = """
    net.module.spectrum.copy_(net.module.filter.detach())
    if fault == "buffer":
        net.module.spectrum.imag.mul_(1.5)
    turns, filter = net.module.turns.cpu(), net.module.filter.detach().cpu()
    torch.save({"turns": turns.conj().resolve_conj() if fault == "checkpoint" else turns}, "turns.pt")
    numpy.savez("filter.npz", filter=filter.numpy() * (1 if fault != "array" else 1j))
    print("done")
"""
DP = COMMON.replace("FAULT", "''") + "net = nn.DataParallel(net.cuda())\n" + TRAINING + "if True:" + SAVING
PORT = (
    COMMON
    + """
import torch.distributed as dist
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
batches = [(x.chunk(world)[rank], y.chunk(world)[rank]) for x, y in batches]
if fault == "start":
    net.turns.imag.mul_(-1)
if fault == "gradient":
    net.filter.register_hook(lambda gradient: torch.complex(gradient.real, gradient.imag * 0.5))
net = nn.parallel.DistributedDataParallel(net.cuda(), device_ids=[rank])
"""
    + TRAINING
    + "if rank == 0:"
    + SAVING
    + "dist.destroy_process_group()\n"
)


def test_a_conversion_is_the_same_and_its_record_is_whole(tmp_path: Path, server: Server) -> None:
    (tmp_path / "train.py").write_text(DP)
    result = forked(server, tmp_path, "verify", "train.py", "-n", 2)
    assert result.exit_code == 0, result.output
    assert "without a word" not in result.output
    assert "every gradient, parameter, loss and buffer" in result.stdout
    assert "2 files" in result.stdout


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("", "trains the same"),
        ("start", "turns"),
        ("gradient", "at step 0: gradient of filter"),
        ("buffer", "at step 2: buffer spectrum"),
        ("checkpoint", "turns.pt"),
        ("array", "filter.npz"),
    ],
)
def test_a_port_with_other_imaginary_parts_is_not_the_same(
    tmp_path: Path, server: Server, fault: str, words: str
) -> None:
    (tmp_path / "train.py").write_text(DP)
    (tmp_path / "port.py").write_text(PORT.replace("FAULT", repr(fault)))
    result = forked(server, tmp_path, "verify", "train.py", "--converted", "port.py", "-n", 2)
    assert result.exit_code == (1 if fault else 0), result.output
    assert words in result.stdout
    assert "without a word" not in result.output
