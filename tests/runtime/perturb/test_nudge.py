"""A nudged run: parameters move by an ulp, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from dp2ddp.runtime.perturb.nudge import install_nudge
from dp2ddp.taps import Taps


@pytest.fixture
def nudged() -> Iterator[None]:
    taps = Taps()
    install_nudge(taps)
    yield
    taps.undo()


def made() -> nn.Linear:
    torch.manual_seed(3)
    model = nn.Linear(40, 3).double()
    model.register_parameter("frozen", nn.Parameter(torch.ones(2), requires_grad=False))
    nn.init.zeros_(model.bias)
    return model


def by_hand(model: nn.Module) -> object:
    """As scripts replicate that have no DataParallel: `replicate`, `scatter`, `parallel_apply`."""
    return nn.parallel.replicate(model, [])


def ulps_apart(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return ((one - other) / other.abs() / torch.finfo(other.dtype).eps).abs()


def test_parameters_move_before_the_first_forward_and_after_each_step(nudged: None) -> None:
    model, plain = made(), made()
    state = torch.get_rng_state()
    wrapped = nn.DataParallel(model)
    wrapped(torch.ones(2, 40).double())
    wrapped(torch.ones(2, 40).double())  # once is enough
    moved = ulps_apart(model.weight, plain.weight)
    assert moved.max() <= 2
    assert (moved > 0).all()
    up = (model.weight > plain.weight).double().mean()
    assert 0.2 < up < 0.8  # both ways
    before = model.weight.detach().clone()
    torch.optim.SGD(model.parameters(), lr=0.0).step()
    assert torch.equal(before, model.weight)  # no gradient yet, no step
    wrapped(torch.ones(2, 40).double()).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.0).step()
    assert (ulps_apart(model.weight, before) > 0).all()
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("run", [lambda model: nn.DataParallel(model)(torch.ones(2, 40).double()), by_hand])
def test_zeros_and_what_is_not_trained_stay(nudged: None, run: Callable[[nn.Module], object]) -> None:
    model = made()
    run(model)
    assert not torch.equal(model.weight, made().weight)
    assert not model.bias.any()
    assert torch.equal(model.frozen, torch.ones(2))


def test_it_is_the_same_in_every_run() -> None:
    found = []
    for _ in range(2):
        taps = Taps()
        install_nudge(taps)
        model = made()
        nn.DataParallel(model)(torch.ones(2, 40).double())
        taps.undo()
        found.append(model.weight.detach().clone())
    assert torch.equal(*found)
