"""Draws of replicas on the host, against the numbers of generators that are seeded by hand."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from dp2ddp.runtime.virtual_cuda.virtual_data_parallel import ReplicaDraws

from .conftest import Install

Draw = Callable[[], float]
DRAWS: list[tuple[Draw, Callable[[int], float]]] = [
    (
        lambda: float(torch.rand((), device="cpu")),
        lambda seed: float(torch.rand((), generator=torch.Generator().manual_seed(seed))),
    ),
    (random.random, lambda seed: random.Random(seed).random()),
    (lambda: float(numpy.random.rand()), lambda seed: float(numpy.random.RandomState(seed % 2**32).rand())),
]


class Noisy(nn.Module):
    """Adds what it draws, on the replicas that are named."""

    def __init__(self, draw: Draw, first: int = 0, last: int = 9) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.draw, self.first, self.last = draw, first, last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        draws = self.first <= (x.get_device()) <= self.last
        return x * self.weight + (self.draw() if draws else 0.0)


def run(module: nn.Module, rows: int = 3, world: int = 3) -> list[float]:
    model = nn.DataParallel(module.cuda(), list(range(world)))
    return [each[0] for each in model(torch.zeros(rows, 1, dtype=torch.float64).cuda()).tolist()]


@pytest.mark.parametrize(("draw", "formula"), DRAWS)
def test_replica_r_draws_from_a_number_of_the_scripts_plus_r(
    virtual: Install, draw: Draw, formula: Any
) -> None:
    virtual(3, "float64")
    torch.manual_seed(7)
    seed = int(torch.randint(2**62, ()))
    torch.manual_seed(7)
    assert run(Noisy(draw)) == pytest.approx([formula(seed + r) for r in range(3)], rel=1e-7)


def next_numbers() -> tuple[float, float, float]:
    return float(torch.rand(())), random.random(), float(numpy.random.rand())


def begin() -> None:
    torch.manual_seed(1)
    random.seed(1)
    numpy.random.seed(1)


@pytest.mark.parametrize(("draw", "formula"), DRAWS)
@pytest.mark.parametrize(("first", "last", "drawn"), [(0, 9, 1), (0, 0, 1), (1, 9, 0), (8, 9, 0)])
def test_the_script_goes_on_behind_that_number_if_replica_0_drew(
    virtual: Install, draw: Draw, formula: Any, first: int, last: int, drawn: int
) -> None:
    virtual(3)
    begin()
    for _ in range(drawn):
        torch.randint(2**62, ())
    wanted = next_numbers()
    begin()
    run(Noisy(draw, first, last))
    assert next_numbers() == wanted


def test_a_forward_that_fails_costs_the_script_no_number(virtual: Install) -> None:
    virtual(2)

    def fail() -> float:
        torch.rand(())
        raise ValueError("not this time")

    begin()
    wanted = next_numbers()
    begin()
    with pytest.raises(ValueError, match="not this time"):
        run(Noisy(fail), world=2)
    assert next_numbers() == wanted


def test_on_one_device_the_script_and_the_model_draw_in_turn(virtual: Install) -> None:
    virtual(2, "float64")
    torch.manual_seed(3)
    wanted = float(torch.rand(()))
    torch.manual_seed(3)
    assert run(Noisy(DRAWS[0][0]), rows=1, world=1) == [wanted]


def test_a_forward_that_is_run_again_from_the_same_state_draws_the_same(virtual: Install) -> None:
    """A checkpoint around the model puts the host's stream back, and runs it again."""
    virtual(2, "float64")
    model = Noisy(DRAWS[0][0])
    state = torch.get_rng_state()
    first = run(model, world=2)
    torch.set_rng_state(state)
    assert run(model, world=2) == first


@pytest.mark.parametrize(("first", "last", "told"), [(0, 9, 1), (0, 0, 0), (1, 1, 0), (8, 9, 0)])
def test_whoever_wants_to_know_is_told_that_replicas_would_race(
    virtual: Install, monkeypatch: pytest.MonkeyPatch, first: int, last: int, told: int
) -> None:
    calls: list[None] = []
    monkeypatch.setattr(ReplicaDraws, "observers", [lambda: calls.append(None)])
    virtual(3)
    run(Noisy(DRAWS[0][0], first, last))
    assert len(calls) == told


def test_a_replica_that_begins_leaves_the_draw_of_another_ones_device_alone(virtual: Install) -> None:
    """On a busy machine a slow replica is taken to wait, and the next one begins beside it."""
    streams = virtual(2).streams
    begun, over = threading.Event(), threading.Event()
    drawn: list[float] = []

    def draw_late() -> None:
        begun.wait(0.5)
        drawn.append(float(torch.rand(())))

    class Late(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.get_device() == 1:
                begun.set()
                over.wait(20)
                return x
            streams.draw(0, draw_late, (), {})
            drawn.append(float(torch.rand((), device=x.device)))
            over.set()
            return x

    torch.manual_seed(5)
    nn.DataParallel(Late().cuda())(torch.zeros(2, 1))
    generator = torch.Generator().manual_seed(5)
    assert drawn == [float(torch.rand((), generator=generator)) for _ in range(2)]
