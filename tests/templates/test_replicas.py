"""A replica computes as its module does and keeps what is assigned to it; a device's stream starts with the seed."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dp2ddp.templates.ddp import ExactDDP, GraphDDP
from dp2ddp.templates.process import JOINED
from dp2ddp.templates.replicas import (
    DeviceStream,
    are_plain_layers,
    parts_of,
    replaced_parameters,
    replica_of,
)
from torch import nn
from torch.nn.utils import parametrize, prune, weight_norm


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


class Layers(nn.Module):
    """Whose output shows each thing that a script may change between two forwards."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.rest = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0), nn.Tanh())
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("offset", torch.zeros(3))
        self.scale = 1.0
        self.shifts = [1.0]
        self.options = {"power": 1}
        self.extra: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.rest(self.norm(self.first(x))) * self.weight * self.scale + sum(self.shifts)
        x = x ** self.options["power"] + self.offset + sum(1 for p in self.children())
        return x if self.extra is None else self.extra(x)


def put(holder: Any, name: str, value: Any) -> None:
    setattr(holder, name, value)


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


CHANGES: dict[str, Callable[[Layers], Any]] = {
    "an attribute": lambda m: put(m, "scale", 3.0),
    "a list that is another": lambda m: put(m, "shifts", [2.0]),
    "a list that has grown": lambda m: m.shifts.append(4.0),
    "a dict": lambda m: m.options.update(power=2),
    "an attribute of a layer": lambda m: put(m.rest[1], "p", 1.0),
    "eval": lambda m: m.eval(),
    "eval of a layer": lambda m: m.norm.eval(),
    "a layer that is another": lambda m: put(m, "first", nn.Linear(3, 3)),
    "a layer in a sequence": lambda m: m.rest.__setitem__(2, nn.Identity()),
    "one more layer": lambda m: m.rest.append(Doubled()),
    "one layer less": lambda m: m.rest.__delitem__(2),
    "a layer where there was none": lambda m: put(m, "extra", Doubled()),
    "a part that nobody calls": lambda m: m.add_module("more", nn.Identity()),
    "a parameter that is another": lambda m: put(m, "weight", nn.Parameter(torch.full((3,), 2.0))),
    "a parameter in its table": lambda m: m._parameters.update(weight=nn.Parameter(torch.zeros(3))),
    "a parameter in place": lambda m: m.weight.data.mul_(5),
    "other data": lambda m: put(m.weight, "data", torch.full((3,), 7.0)),
    "a state dict": lambda m: m.load_state_dict(Layers().state_dict() | {"offset": torch.full((3,), 2.0)}),
    "a buffer that is another": lambda m: put(m, "offset", torch.ones(3)),
    "a buffer in place": lambda m: m.offset.add_(9),
    "a buffer's table": lambda m: m._buffers.update(offset=torch.full((3,), 4.0)),
    "a hook": lambda m: m.rest.register_forward_hook(lambda part, given, out: out + 1),
    "a hook before": lambda m: m.first.register_forward_pre_hook(lambda part, given: (given[0] + 1,)),
    "a method": lambda m: put(m, "forward", types.MethodType(lambda self, x: self.first(x), m)),
    "a function": lambda m: put(m.first, "forward", lambda x: x * 9),
    "a class": lambda m: put(m.rest[2], "__class__", nn.Sigmoid),
    "weight norm": lambda m: (weight_norm(m.first), m.first.weight_g.data.mul_(2)),
    "a parametrization": lambda m: parametrize.register_parametrization(m.first, "weight", Doubled()),
    "doubles": lambda m: (m.double(), m.float(), m.offset.add_(1)),
    "pruned": lambda m: prune.l1_unstructured(m.first, "weight", 5),
}


# By these a module no longer runs as its classes have it.
BY_OTHER_WAYS = {
    "a hook",
    "a hook before",
    "a method",
    "a function",
    "weight norm",
    "a parametrization",
    "pruned",
}


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`:FutureWarning")
@pytest.mark.parametrize("change", CHANGES)
def test_a_module_runs_itself_if_its_layers_run_as_their_classes_have_it(change: str) -> None:
    module = Layers()
    assert are_plain_layers(parts_of(module), have_copies=True)
    CHANGES[change](module)
    assert are_plain_layers(parts_of(module), have_copies=True) is (change not in BY_OTHER_WAYS)


@pytest.mark.parametrize(
    ("layer", "have_copies", "runs"),
    [
        (nn.Embedding(4, 3), True, True),
        (nn.Embedding(4, 3, max_norm=1.0), False, False),
        (nn.SyncBatchNorm(3), False, False),
        (nn.LazyLinear(3), False, False),
        (nn.LSTM(3, 3), False, True),
        (nn.LSTM(3, 3), True, False),  # keeps its weights in a list as well
        (nn.DataParallel(nn.Linear(3, 3)), False, False),
    ],
    ids=lambda given: type(given).__name__ if isinstance(given, nn.Module) else str(given),
)
def test_a_layer_of_a_library_runs_itself_if_it_is_known_to_only_compute(
    layer: nn.Module, have_copies: bool, runs: bool
) -> None:
    assert are_plain_layers(parts_of(nn.Sequential(layer)), have_copies) is runs


@pytest.mark.parametrize("raises", [False, True])
def test_a_module_computes_with_what_stands_in_and_has_its_own_again(raises: bool) -> None:
    torch.manual_seed(0)
    module, x = Layers().double(), torch.randn(4, 5 if raises else 3, dtype=torch.float64)
    parts, before = parts_of(module), {name: one.clone() for name, one in module.state_dict().items()}
    tables = [(part._parameters, part._buffers) for part in parts]
    copies = {id(p): (p * 2).detach().requires_grad_() for p in module.parameters()}
    with pytest.raises(RuntimeError) if raises else contextlib.nullcontext():
        with replaced_parameters(parts, [part for part in parts if part._buffers], copies):
            found = module(x)
        twin = Layers().double()
        twin.load_state_dict(
            {name: one * 2 if "weight" in name or "bias" in name else one for name, one in before.items()}
        )
        assert torch.equal(found, twin(x))
        found.sum().backward()
        assert all(p.grad is None for p in module.parameters())
        assert all(copy.grad is not None for copy in copies.values())
    assert all(
        part._parameters is one and part._buffers is other
        for part, (one, other) in zip(parts, tables, strict=True)
    )
    assert all(torch.equal(p, before[name]) for name, p in module.named_parameters())


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
