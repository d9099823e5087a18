"""What WholeBatchDDP refuses beside what scenarios do, and what all wrappers refuse, as DataParallel does.

Each function makes one go, and should not come to its end.
"""

from __future__ import annotations

from collections import UserList
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from dp2ddp.templates.ddp import WholeBatchDDP
from dp2ddp.templates.model import WholeBatch
from torch import nn
from torch.utils.checkpoint import checkpoint


def refusal(act: Callable[[], object]) -> str:
    """The words of the error that it ends with; empty if it ends well."""
    try:
        act()
    except (RuntimeError, TypeError) as error:
        return str(error)
    return ""


def gradients_of_gradients() -> None:
    model = WholeBatchDDP(nn.Linear(3, 2))
    model(torch.ones(4, 3)).pow(2).sum().backward(create_graph=True)


def parameters_written_in_forward() -> None:
    """Refused by nothing: what the first replica writes is everybody's."""
    table, rows = nn.Embedding(6, 3, max_norm=0.1), torch.arange(6)
    with torch.no_grad():  # else DataParallel's first replica has a view that must not be written into
        WholeBatchDDP(table)(rows)
    renormed = table.weight.norm(dim=1) < 0.11
    if not torch.equal(renormed, rows < len(rows.chunk(dist.get_world_size())[0])):
        raise RuntimeError(f"renormed: {renormed}")


def hooks_of_layers() -> None:
    module = nn.Sequential(nn.Linear(3, 2))
    model = WholeBatchDDP(module)
    module[0].register_full_backward_hook(print)
    model(torch.ones(4, 3))


def two_forwards_two_backwards() -> None:
    model = WholeBatchDDP(nn.Linear(3, 2))
    first, second = model(torch.ones(4, 3)).sum(), model(torch.ones(4, 3)).sum()
    first.backward()
    second.backward()


def an_ordinary_step() -> None:
    """Refused by nothing: with forwards in between that no backward follows."""
    model = WholeBatchDDP(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    for _ in range(2):
        loss = model(torch.rand(4, 3)).pow(2).sum()
        with torch.no_grad():
            model(torch.rand(4, 3))
        model(torch.rand(4, 3))
        loss.backward()


def sums_beside_backward() -> None:
    """Refused by nothing: the last layer's gradients go to the reducer before backward comes to the first layer."""
    last = nn.Linear(3, 2**17)  # more than the first bucket takes
    module, order = nn.Sequential(nn.Linear(3, 3), Watched(), last), []
    module[1].gradient_came = lambda _: order.append("between")  # type: ignore[assignment]
    module[2].weight.register_post_accumulate_grad_hook(lambda _: order.append("last"))
    module[0].weight.register_post_accumulate_grad_hook(lambda _: order.append("first"))
    WholeBatchDDP(module)(torch.ones(4, 3)).sum().backward()
    if order != ["last", "between", "first"]:
        raise RuntimeError(f"gradients came in this order: {order}")


def reentrant_checkpoints_of_some() -> None:
    """Each of them sums by itself, so a rank whose rows want no gradient would wait for ever."""

    class Thrifty(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = checkpoint(super().forward, x + self.bias[0], use_reentrant=True)
            return out if x.min() < 4 else out.detach()

    WholeBatch(Thrifty(3, 2))(ROWS).sum().backward()


def gradients_of_sparse_gradients() -> None:
    """Refused by nothing: a penalty beside a table whose gradients are sparse, as on one device."""
    table, rows = nn.Embedding(6, 3, sparse=True), torch.arange(5)
    found = []
    for model in (table, WholeBatch(table)):
        (slope,) = torch.autograd.grad(model(rows).pow(2).sum(), table.weight, create_graph=True)
        found += torch.autograd.grad(slope.to_dense().pow(2).sum(), table.weight)
    torch.testing.assert_close(found[0].to_dense(), found[1].to_dense())


class Watched(nn.Module):
    """Tells when the gradient of what it hands on comes."""

    gradient_came: Callable[[torch.Tensor], None]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.requires_grad:
            x.register_hook(self.gradient_came)
        return x


class Giving(nn.Linear):
    """Gives what `make` makes of its rows and outputs."""

    def __init__(self, make: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
        super().__init__(3, 2)
        self.make = make

    def forward(self, x: torch.Tensor) -> Any:
        return self.make(x, super().forward(x))


ROWS = torch.arange(12.0).view(4, 3)
OUTPUTS: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "a number": lambda rows, out: (out, 0.0 * out.sum().item()),
    "a size": lambda rows, out: (out, out.shape),
    "an array": lambda rows, out: {"out": out, "rows": rows.numpy()},
    "an object": lambda rows, out: [out, slice(out)],
    "a set": lambda rows, out: {out},
    "other widths": lambda rows, out: out[:, : 1 + bool(rows.max() > 6)],
    "a dict in another order": lambda rows, out: dict(
        sorted({"a": out, "b": out * 2}.items(), reverse=bool(rows.max() > 6))
    ),
    "a list of its own": lambda rows, out: UserList([out]),
    "nothing, a text, a cache": lambda rows, out: (out, None, "loss", {}),
}


def give(kind: Any, outputs: str) -> None:
    kind(Giving(OUTPUTS[outputs]))(ROWS)


GATHERS: dict[str, Callable[[], None]] = {
    f"{name} {kind.__name__}": act
    for kind in (WholeBatch, WholeBatchDDP)
    for name, act in {outputs: partial(give, kind, outputs) for outputs in OUTPUTS}.items()
}
REFUSALS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        gradients_of_gradients,
        parameters_written_in_forward,
        hooks_of_layers,
        two_forwards_two_backwards,
        an_ordinary_step,
        sums_beside_backward,
        reentrant_checkpoints_of_some,
        gradients_of_sparse_gradients,
    )
}
