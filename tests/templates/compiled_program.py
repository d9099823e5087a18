"""Wrapped models under a real torch.compile on two ranks, against the reference.

compiled_program.py BACKEND FILE [--all]
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._dynamo
from dp2ddp.templates.ddp import ExactDDP, GraphDDP, compile_on_ranks
from dp2ddp.templates.in_turn import InTurnDDP
from dp2ddp.templates.process import join_process_group, own_rank, world_size
from reference import Devices, ReferenceDataParallel
from scenarios import Net, mean_loss, train
from torch import nn
from torch._dynamo.utils import counters

BACKEND = sys.argv[1] if __name__ == "__main__" else ""
KINDS = (GraphDDP, ExactDDP, InTurnDDP)


def unchanged(module: Any) -> Any:
    return module


def compiled(module: Any, **options: Any) -> Any:
    return torch.compile(module, backend=BACKEND, **options)


def of_layers() -> nn.Module:
    return Net(nn.LayerNorm)


class Plain(nn.Module):
    """What torch.jit.script can read."""

    def __init__(self) -> None:
        super().__init__()
        net = Net()
        self.body, self.head, self.unused = net.body, net.head, net.unused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.body(x))
        return scores


class Dropping(nn.Module):
    """Draws random numbers, and has several of DDP's buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.drop = nn.Linear(20, 2000), nn.Linear(2000, 5), nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.two(self.drop(self.one(x)))
        return scores


class InTwoGraphs(Net):
    def forward(self, x: torch.Tensor, *_: Any) -> torch.Tensor:
        x = self.body(x)
        torch._dynamo.graph_break()
        scores: torch.Tensor = self.head(x) * (1.0 if x.sum().item() > 0 else 2.0)
        return scores


class OwnMethod(nn.Module):
    """Compiles a method of its own, as many models do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()
        self.encode = compiled(self.encode)  # type: ignore[method-assign]

    def encode(self, x: torch.Tensor) -> Any:
        return self.net(x)

    def forward(self, x: torch.Tensor) -> Any:
        return self.encode(x)


class OwnForward(Net):
    def __init__(self) -> None:
        super().__init__()
        self.forward = compiled(self.forward)  # type: ignore[method-assign]


class ChosenForward(Net):
    """A method as an attribute, nothing compiled: bound to the module, which is not the replica."""

    def __init__(self) -> None:
        super().__init__()
        self.forward = self.forward_of_choice  # type: ignore[method-assign]

    def forward_of_choice(self, x: torch.Tensor) -> Any:
        return self.head(self.body(x))


def with_compiled_part(module: Any) -> Any:
    module.body = compiled(module.body)
    return module


def with_part_compiled_in_place(module: Any) -> Any:
    module.body.compile(backend=BACKEND)
    return module


def with_scripted_part(module: Any) -> Any:
    module.body = torch.jit.script(module.body)
    return module


def compiled_in_place(module: Any, **options: Any) -> Any:
    module.compile(backend=BACKEND, **options)
    return module


@dataclass(frozen=True)
class Way:
    """What is done to the module before the wrap, to the wrapped one, and to the function that runs it."""

    make: Callable[[], nn.Module] = Net
    before: Callable[[Any], Any] = unchanged
    after: Callable[[Any], Any] = unchanged
    loss: Callable[[Any], Any] = unchanged


WAYS = {
    "around": Way(after=compiled),
    "around, what ranks run": Way(after=lambda net: compile_on_ranks(net, backend=BACKEND)),
    "around, whole": Way(after=lambda net: compile_on_ranks(net, backend=BACKEND, fullgraph=True)),
    "around, in place": Way(after=compiled_in_place),
    "around, in place, whole": Way(after=lambda net: compiled_in_place(net, fullgraph=True)),
    "before": Way(before=compiled),
    "before, whole": Way(before=lambda net: compiled(net, fullgraph=True)),
    "before, any shape": Way(before=lambda net: compiled(net, dynamic=True)),
    "before, in place": Way(before=compiled_in_place),
    "before, disabled": Way(before=lambda net: compiled(net, disable=True)),
    "before and around": Way(before=compiled, after=lambda net: compile_on_ranks(net, backend=BACKEND)),
    "a part": Way(before=with_compiled_part),
    "a part, in place": Way(before=with_part_compiled_in_place),
    "a method": Way(make=OwnMethod),
    "forward": Way(make=OwnForward),
    "the step": Way(loss=compiled),
    "two graphs": Way(make=InTwoGraphs, before=compiled),
    "random": Way(make=Dropping, before=compiled),
    "random, around": Way(make=Dropping, after=lambda net: compile_on_ranks(net, backend=BACKEND)),
    "scripted": Way(make=Plain, before=torch.jit.script),
    "a scripted part": Way(before=with_scripted_part),
    "another method": Way(make=ChosenForward),
    "layer norm": Way(make=of_layers, before=compiled),
}
FEW = (
    "around, what ranks run",
    "before",
    "before, in place",
    "random",
    "the step",
)  # for compilers that take long


WITH_ALL_KINDS = (*FEW, "around", "a method")  # always; the others with GraphDDP, and with `--all` too


def pairs_of(backend: str, all_kinds: bool) -> list[tuple[str, type[nn.Module]]]:
    """The ways and wrappers to try."""
    ways = WAYS if backend == "eager" else FEW
    return [
        (way, kind)
        for way in ways
        for kind in KINDS
        if all_kinds or way in WITH_ALL_KINDS or kind is GraphDDP
    ]


def uncompiled() -> Any:
    """Nothing is compiled in here."""
    if hasattr(torch.compiler, "set_stance"):  # since torch 2.6
        return torch.compiler.set_stance("force_eager")
    return mock.patch.object(torch._dynamo.config, "disable", True)


def compare(way: Way, kind: type[nn.Module], seed: int) -> dict[str, Any]:
    devices = Devices()
    torch._dynamo.reset()
    counters.clear()
    devices.seed(seed)
    module = way.make()
    with uncompiled():
        reference = ReferenceDataParallel(module, devices, world_size())
        wanted = list(train(reference, module, mean_loss, 9))
    devices.seed(seed)
    module = way.before(way.make())
    net = way.after(kind(module))
    found = list(train(net, module, way.loss(mean_loss), 9))
    pairs = list(zip(found, wanted, strict=True))
    return {
        "difference": max(float((one - other).nan_to_num().abs().max()) for one, other in pairs),
        "missing": [bool(one.isnan().any()) for one, _ in pairs]
        != [bool(two.isnan().any()) for _, two in pairs],
        # not frames: with some releases (torch 2.14) the compiler also looks at an audit hook, of which nothing comes
        "graphs": counters["stats"]["unique_graphs"],
        "keys": next(iter(net.state_dict())),
    }


def main(file: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    if BACKEND == "inductor":
        vars(torch._inductor.config)["fallback_random"] = True  # or dropout draws other numbers
    join_process_group()
    found: dict[str, Any] = {}
    for way, kind in pairs_of(BACKEND, all_kinds="--all" in sys.argv):
        try:
            found[f"{way} {kind.__qualname__}"] = compare(WAYS[way], kind, len(found))
        except Exception:
            found[f"{way} {kind.__qualname__}"] = {"failed": traceback.format_exc()}
    file.with_suffix(f".{own_rank()}").write_text(json.dumps(found))


if __name__ == "__main__":
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    import torch._inductor.config

    main(Path(sys.argv[2]))
