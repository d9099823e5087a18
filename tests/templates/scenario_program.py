"""The scenarios with the small helpers, on forked ranks: python scenario_program.py FOLDER WORLDS [NAME ...]."""

from __future__ import annotations

import itertools
import random
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import torch  # noqa: E402
from ddp_refusals import GATHERS, REFUSALS, refusal  # noqa: E402
from dp2ddp.templates import alike, parts  # noqa: E402
from dp2ddp.templates.ddp import WholeBatchDDP  # noqa: E402
from dp2ddp.templates.model import WholeBatch  # noqa: E402
from dp2ddp.templates.overlapping import WholeBatchParallel  # noqa: E402
from dp2ddp.templates.parts import WholeBatchInParts  # noqa: E402
from forked_ranks import find_on_ranks  # noqa: E402
from reference import Devices, ReferenceDataParallel  # noqa: E402
from scenarios import SCENARIOS  # noqa: E402
from torch import nn  # noqa: E402

# by the names that they have before they take DataParallel's
KINDS = {kind.__name__: kind for kind in (WholeBatch, WholeBatchParallel, WholeBatchDDP, WholeBatchInParts)}


class RacelessDataParallel(ReferenceDataParallel):
    """DataParallel whose replicas draw on the host from streams of their own: replica r's begin at one number of the
    script's plus r. The script goes on behind that number if replica 0 drew any."""

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        self.script = streams()
        self.seed = int(torch.randint(2**62, ()))
        self.behind = torch.get_rng_state()
        self.drew = False
        outputs = super().forward(*inputs, **kwargs)
        set_streams(self.script)
        if self.drew:
            torch.set_rng_state(self.behind)
        return outputs

    def stream(self, r: int) -> Any:
        return OwnStreams(self, r)


class OwnStreams:
    def __init__(self, model: RacelessDataParallel, r: int) -> None:
        self.model, self.r = model, r

    def __enter__(self) -> None:
        seed = self.model.seed + self.r
        random.seed(seed)
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed % 2**32)
        self.begun = told()

    def __exit__(self, *error: Any) -> None:
        if self.r == 0:
            self.model.drew = told() != self.begun


def streams() -> list[Any]:
    numpy = np.random.get_state()
    return [random.getstate(), torch.get_rng_state(), (numpy[0], numpy[1].tolist(), *numpy[2:])]


def told() -> list[Any]:
    python, torch_state, numpy = streams()
    return [python, torch_state.tolist(), numpy]


def set_streams(states: list[Any]) -> None:
    random.setstate(states[0])
    torch.set_rng_state(states[1])
    np.random.set_state(states[2])


def numbers_of_data_parallel(name: str, world: int) -> list[torch.Tensor]:
    devices = Devices()

    def reference(module: nn.Module, dim: int = 0, count: int = world) -> nn.Module:
        return RacelessDataParallel(module, devices, count, dim)

    return [n.clone() for n in SCENARIOS[name](reference, devices.seed, world)]


def compare(name: str, kind: Any, world: int, wanted: list[torch.Tensor]) -> dict[str, Any]:
    """The largest relative difference to DataParallel's numbers, and how many of them are not the same bits."""

    def wrap(module: nn.Module, dim: int = 0, count: int | None = None) -> nn.Module:
        options = {"dim": dim} if dim else {"device_ids": [*range(count)]} if count else {}
        net = kind(module, **options)
        assert type(net).__name__ == nn.DataParallel.__name__  # which scripts ask for
        return net

    pairs = list(zip(SCENARIOS[name](wrap, Devices().seed, world), wanted, strict=True))
    return {
        "difference": max(difference(one, other) for one, other in pairs),
        "other_bits": sum(not torch.equal(a.nan_to_num(-7.0), b.nan_to_num(-7.0)) for a, b in pairs),
        "compared": len(pairs),
    }


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    if one.shape != other.shape or not torch.equal(one.isnan(), other.isnan()):
        return float("inf")
    one, other = one.double().nan_to_num(), other.double().nan_to_num()
    return float((one - other).norm()) / max(float(other.norm()), 1e-3)


def trained_beside(rank: int) -> list[list[float]]:
    """A layer that trains outside of the model, on a rank whose kernels round otherwise, behind 19 and 20 forwards."""
    alike.keep_ranks_alike()
    net, head, alike.FORWARDS = WholeBatch(nn.Linear(2, 2)), nn.Linear(2, 1), itertools.count(1)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
    head.weight.register_hook(lambda gradient: gradient + 1e-3 * rank)
    found = []
    for _ in range(20):
        loss = head(net(torch.ones(6, 2))).mean()
        found.append(head.weight.flatten().tolist())
        loss.backward()
        optimizer.step()
    alike.Rank.before_forward = None
    return found[-2:]


def find(rank: int, world: int) -> dict[str, Any]:
    parts.LARGE = 0  # whatever a model gives stays in parts
    found: dict[str, Any] = {}
    for name in sys.argv[3:] or SCENARIOS:
        for dtype in (torch.float64, torch.float32) if world == 2 else (torch.float64,):
            torch.set_default_dtype(dtype)
            wanted = numbers_of_data_parallel(name, world)  # once for all kinds
            for label, kind in KINDS.items():
                key = f"{name} {label} {str(dtype)[6:]}"
                try:
                    found[key] = compare(name, kind, world, wanted)
                except Exception:
                    found[key] = {"failed": traceback.format_exc()}
    torch.set_default_dtype(torch.float32)
    found["trained beside"] = trained_beside(rank)
    found["refusals"] = {name: refusal(act) for name, act in REFUSALS.items()}
    found["gathers"] = {name: refusal(act) for name, act in GATHERS.items()}
    return found


if __name__ == "__main__":
    find_on_ranks(find, Path(sys.argv[1]), sys.argv[2])
