"""A replica computes as its module does and keeps what is assigned to it; a device's stream starts with the seed."""

from __future__ import annotations

import pytest
import torch
from dp2ddp.templates.ddp import ExactDDP, GraphDDP
from dp2ddp.templates.process import JOINED
from dp2ddp.templates.replicas import DeviceStream, replica_of
from torch import nn


def own_tensors(module: nn.Module) -> dict[int, torch.Tensor]:
    return {id(tensor): tensor for tensor in [*module.parameters(), *module.buffers()]}


class Holder(nn.Module):
    """Everything that a module can hold."""

    def __init__(self) -> None:
        super().__init__()
        line = nn.Linear(3, 3)
        self.parts = nn.ModuleList([line, nn.LSTM(3, 3), line])
        self.named = nn.ModuleDict({"norm": nn.BatchNorm1d(3), "plain": nn.Linear(3, 3, bias=False)})
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(3))])
        self.empty: nn.Module | None = None
        self.seen = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        x = self.parts[2](self.parts[1](self.parts[0](x))[0])
        out: torch.Tensor = self.named["plain"](self.named["norm"](x)) * self.weights[0]
        return out


def test_a_replica_computes_what_its_module_computes() -> None:
    module, x = Holder(), torch.randn(4, 3)
    replica = replica_of(module, own_tensors(module))
    found = replica(x)
    found.sum().backward()
    gradients = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    module.zero_grad()
    wanted = module(x)
    wanted.sum().backward()
    assert torch.equal(found, wanted)
    assert len(gradients) == len(list(module.parameters()))
    assert all(map(torch.equal, gradients, [p.grad for p in module.parameters() if p.grad is not None]))


def test_a_replica_keeps_attributes_and_its_module_does_not_get_them() -> None:
    module = Holder()
    replica = replica_of(module, own_tensors(module))
    replica(torch.ones(4, 3))
    assert (replica.seen, module.seen) == (1, 0)


def test_a_replica_computes_with_what_it_is_given() -> None:
    module = nn.Linear(2, 1)
    zeros = {id(tensor): torch.zeros_like(tensor) for tensor in module.parameters()}
    assert replica_of(module, zeros)(torch.ones(1, 2)).item() == 0


def drawn(stream: DeviceStream) -> float:
    """By a model; the script's stream is where it was."""
    before = torch.get_rng_state()
    with stream.drawn_from(torch.default_generator):
        found = float(torch.rand(()))
    torch.set_rng_state(before)
    return found


def test_a_devices_stream_starts_with_the_seed_and_goes_its_own_way() -> None:
    torch.manual_seed(5)
    first, second = float(torch.rand(())), float(torch.rand(()))
    stream = DeviceStream()
    found = []
    for _ in range(2):
        torch.manual_seed(5)
        found.append(drawn(stream))
        torch.manual_seed(5)
        torch.rand(3)  # the script draws, which does not move the device's stream
        found.append(drawn(stream))
    assert found == [first, second] * 2


def test_another_seed_starts_the_stream_anew() -> None:
    stream = DeviceStream()
    torch.manual_seed(5)
    torch.rand(1)
    drawn(stream)
    torch.manual_seed(6)
    wanted = float(torch.rand(()))
    assert drawn(stream) == wanted


def state_of(seed: int) -> torch.Tensor:
    return torch.Generator().manual_seed(seed).get_state()


@pytest.mark.parametrize(("own", "begins_at"), [(7, 7), (5, 5)], ids=["no seed", "one seed for all ranks"])
def test_where_nobody_set_a_seed_a_device_begins_where_its_rank_did(
    monkeypatch: pytest.MonkeyPatch, own: int, begins_at: int
) -> None:
    """The rank stood at `own` before it took over rank 0's stream, which began at 5."""
    monkeypatch.setitem(JOINED, "torch", (state_of(own), state_of(5)))
    torch.set_rng_state(state_of(5))
    stream = DeviceStream()
    expected = torch.Generator().manual_seed(begins_at)
    assert drawn(stream) == float(torch.rand((), generator=expected))
    torch.rand(3)  # the script draws
    assert drawn(stream) == float(torch.rand((), generator=expected))
    torch.manual_seed(6)
    assert drawn(stream) == float(torch.rand((), generator=torch.Generator().manual_seed(6)))


def test_a_world_of_one_is_the_module_itself() -> None:
    for kind in (GraphDDP, ExactDDP):
        module, x = Holder(), torch.randn(4, 3)
        net = kind(module)
        out = net(x)
        assert out.grad_fn is not None
        assert module.seen == 1
        unused = kind(nn.ModuleDict({"a": nn.Linear(1, 1)}))
        assert next(unused.parameters()).grad is None


def test_a_printed_model_reads_as_under_dataparallel() -> None:
    net = nn.Sequential(nn.Linear(2, 2))
    for kind in (GraphDDP, ExactDDP):
        assert repr(kind(net)) == repr(nn.DataParallel(net))
