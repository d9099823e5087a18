"""A guarded script with the plain helpers, whose loader's workers are spawned: each of them imports it anew."""

import gc
import os
import weakref

import torch
from torch.utils.data import DataLoader, Dataset

from dp2ddp.helpers import (
    Rank0Loader,
    WholeBatchDDP,
    WholeBatchDropoutDDP,
    WholeBatchParallel,
    init_distributed,
)


class Samples(Dataset[torch.Tensor]):
    """Eight samples."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3,), float(index))


class Views(Dataset[tuple[torch.Tensor, ...]]):
    """A few numbers or many, and a view of some of them."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        whole = torch.zeros(8 if index else 2**16)
        return whole, whole[:3]


init_distributed()


class Failing(torch.nn.Module):
    """Draws, and fails at its second call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
        self.calls = 0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        rows = torch.nn.functional.dropout(self.layer(rows))
        if self.calls == 2:
            raise RuntimeError("out of memory")
        return rows


def say(*words: object) -> None:
    """On the stream that stays with every rank."""
    line = " ".join(map(str, (torch.distributed.get_rank(), *words)))
    os.write(2, f"{line}\n".encode())  # whole, beside what the other rank says


if __name__ == "__main__":
    print("café ✓")  # nowhere has no alphabet of its own
    loader: DataLoader[torch.Tensor] = Rank0Loader(
        Samples(), batch_size=4, num_workers=1, multiprocessing_context="spawn"
    )
    net = WholeBatchDDP(torch.nn.Linear(3, 1))
    say("sums", [float(net(rows).sum().isfinite()) for rows in loader])
    views = Rank0Loader(Views(), batch_size=None)
    say("views", [(whole.add_(1).sum().item(), view.tolist()) for whole, view in views])
    failing = WholeBatchDropoutDDP(Failing())
    failing(torch.ones(4, 3))
    try:
        failing(torch.ones(4, 3))
    except RuntimeError:
        say("drew", f"{float(torch.rand(1)):.6f}")
    apart = torch.nn.Linear(3, 1).requires_grad_(False)
    apart.weight.fill_(torch.distributed.get_rank())
    say("begins at", WholeBatchParallel(apart).module.weight.tolist())
    gone = weakref.ref(WholeBatchDDP(torch.nn.Linear(3, 1)))
    gc.collect()
    say("kept" if gone() else "let go")
