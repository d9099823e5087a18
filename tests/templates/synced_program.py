"""Batch norm over all replicas on forked ranks (W = 1, 2, 3, 4), beside one batch norm of the whole batch.

python synced_program.py FOLDER [W ...]: the layer talks with the other replicas as Synchronized-BatchNorm-PyTorch does;
the formula beside it knows no ranks.
"""

from __future__ import annotations

import contextlib
import copy
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import rank_program
import torch
from dp2ddp.templates.parts import broadcast_to_ranks, reduce_add_on_ranks
from dp2ddp.templates.process import exchange, own_rank, world_size
from dp2ddp.templates.synced import SyncedOnRanks, master_on_ranks
from torch import nn

MOMENTUM, EPS = 0.3, 1e-3


class Sums(NamedTuple):
    total: torch.Tensor
    squares: torch.Tensor
    count: int


@master_on_ranks("of_all", "enrol", "lead", "follow")
class Master:
    def __init__(self, of_all: Callable[[Any], Any]) -> None:
        self.of_all = of_all

    def enrol(self, number: int) -> Any:
        raise AssertionError("the decorator has this of its own")

    def lead(self, message: Any) -> Any:
        raise AssertionError("the decorator has this of its own")


class Synced(nn.Module):
    """Unbiased running variance, biased normalisation, clamped, on the rows of all replicas."""

    running_mean: torch.Tensor
    running_var: torch.Tensor
    number: int | None = None

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))
        self.master = Master(self.statistics)
        self.seen: list[list[int]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.number is None or not self.training:
            return normalised(x, self)
        sums = Sums(x.sum(0), (x**2).sum(0), len(x))
        mean, scale = self.master.lead(sums) if self.number == 0 else self.pipe.follow(sums)
        if bool((x > 1e6).any()):
            raise FloatingPointError("too large")
        return (x - mean) * (scale * self.weight)

    def __data_parallel_replicate__(self, context: Any, number: int) -> None:
        self.number = number
        if number == 0:
            context.master = self.master
        else:
            self.pipe = context.master.enrol(number)

    def statistics(self, messages: Sequence[tuple[int, Sums]]) -> list[tuple[int, Any]]:
        self.seen.append([number for number, _ in messages])
        print("computed once")
        total, squares = reduce_add_on_ranks(0, 2, *(tensor for _, sums in messages for tensor in sums[:2]))
        count = sum(sums.count for _, sums in messages)
        assert count > 1, "one row"
        mean = total / count
        deviation = squares - total * mean
        self.running_mean = (1 - MOMENTUM) * self.running_mean + MOMENTUM * mean.data
        self.running_var = (1 - MOMENTUM) * self.running_var + MOMENTUM * (deviation / (count - 1)).data
        parts = broadcast_to_ranks([0] * len(messages), mean, (deviation / count).clamp(EPS) ** -0.5)
        return [(number, parts[2 * place : 2 * place + 2]) for place, (number, _) in enumerate(messages)]


def normalised(x: torch.Tensor, layer: Synced) -> torch.Tensor:
    return (x - layer.running_mean) * layer.running_var.clamp(EPS) ** -0.5 * layer.weight


class Whole(Synced):
    """The same of one batch, by torch's own mean and variance."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return normalised(x, self)
        mean, variance = x.mean(0), x.var(0, unbiased=False)
        self.running_mean = torch.lerp(self.running_mean, mean.detach(), MOMENTUM)
        self.running_var = torch.lerp(self.running_var, x.var(0).detach(), MOMENTUM)
        return (x - mean) / variance.clamp(EPS).sqrt() * self.weight


class Leaving(Synced):
    """Ranks > 0 go by without a word, for which rank 0 waits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if own_rank() else super().forward(x)


class WithCallbacks(SyncedOnRanks):
    def replicate(self, module: nn.Module, device_ids: Any) -> list[nn.Module]:
        replicas = super().replicate(module, device_ids)
        contexts = [SimpleNamespace() for _ in module.modules()]
        for number, replica in enumerate(replicas):
            for context, part in zip(contexts, replica.modules(), strict=True):
                if isinstance(part, Synced):
                    part.__data_parallel_replicate__(context, number)
        return replicas


def pair(*, norms: int = 2, kind: type[Synced] = Synced) -> tuple[nn.Module, nn.Module]:
    """A net over the ranks, and the same net as a whole."""
    nets = []
    for each in (kind, Whole):
        torch.manual_seed(1)
        layers = [one for _ in range(norms) for one in (nn.Linear(3, 3), each(3), nn.Tanh())]
        nets.append(nn.Sequential(*layers, nn.Linear(3, 2)))
    if world_size() == 1:  # nobody to talk with: a layer on its own is whole
        return SyncedOnRanks(copy.deepcopy(nets[1])), nets[1]
    return WithCallbacks(nets[0]), nets[1]


def rows(count: int) -> torch.Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(count))


def quietly(function: Callable[[], Any]) -> Any:
    with contextlib.redirect_stdout(io.StringIO()):
        return function()


def facts(net: nn.Module) -> Iterator[torch.Tensor]:
    for parameter in net.parameters():
        yield torch.zeros(1) if parameter.grad is None else parameter.grad
    yield from net.buffers()


def apart(net: nn.Module, whole: nn.Module) -> float:
    pairs = zip(facts(net), facts(whole), strict=True)
    return max(float((one - other).abs().max()) for one, other in pairs)


def trained() -> Any:
    """Uneven rows, two forwards in one backward, and a batch with fewer rows than ranks."""
    net, whole = pair()
    for one in (net, whole):
        (one(rows(2 * world_size() + 1)).pow(2).mean() + one(rows(7)).pow(3).sum()).backward()
        one(rows(2)).sin().sum().backward()
    return apart(net, whole)


def without_gradients() -> Any:
    """In training mode the averages move; in evaluation they are used."""
    net, whole = pair()
    for one in (net, whole):
        with torch.no_grad():
            one(rows(9))
        one.eval()
        one(rows(5)).sum().backward()
        one.train()
        one(rows(6)).sin().sum().backward()
    return apart(net, whole)


def frozen() -> Any:
    """Only the head is trained; then nothing is."""
    net, whole = pair()
    for one in (net, whole):
        for parameter in list(one.parameters())[:-2]:
            parameter.requires_grad_(False)
        one(rows(2)).sin().sum().backward()
        one.requires_grad_(False)
        one(rows(2))
    return apart(net, whole)


def gradients_of_gradients() -> Any:
    """A penalty on the slope at the inputs: through the statistics, twice."""
    net, whole = pair()
    for one in (net, whole):
        for count in (2 * world_size() + 1, 2):
            x = rows(count).requires_grad_()
            (slope,) = torch.autograd.grad(one(x).sin().sum(), x, create_graph=True)
            slope.pow(2).sum().backward()
    return apart(net, whole)


def messages_in_order() -> Any:
    """Each forward has the messages of the replicas that there are, and is computed once for those that look."""
    net, _ = pair(norms=1)
    with contextlib.redirect_stdout(io.StringIO()) as heard:
        net(rows(world_size()))
        net(rows(2))
    layer = net.module[1]
    return [layer.seen, exchange(heard.getvalue().count("computed once"))[0]]


def failing(x: torch.Tensor, kind: type[Synced] = Synced) -> str:
    net, _ = pair(kind=kind)
    try:
        net(x).sum().backward()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
    return "none"


def errors() -> Any:
    """Before, in and after an exchange; every rank hears the same, and no rank waits."""
    late = rows(2 * world_size())
    late[-1] = 1e9
    found = [failing(late), failing(rows(1)), failing(rows(world_size())[:, :2])]
    return [*found, failing(rows(4), Leaving)]


def outside_of_a_forward() -> Any:
    layer = Synced(3)
    try:
        answered = layer.master.lead(Sums(rows(4).sum(0), rows(4).pow(2).sum(0), 4))
    except RuntimeError as error:
        return "outside" in str(error)
    return len(answered) == 2


CHECKS = (
    trained,
    without_gradients,
    frozen,
    gradients_of_gradients,
    messages_in_order,
    errors,
    outside_of_a_forward,
)


def work(world: int) -> dict[str, Any]:
    torch.set_default_dtype(torch.float64)
    return {check.__name__: rank_program.attempt(lambda one=check: quietly(one)) for check in CHECKS}


if __name__ == "__main__":
    rank_program.run_ranks(Path(sys.argv[1]), tuple(map(int, sys.argv[2:])) or (1, 2, 3, 4), work)
