"""Batches of which each rank loads its own rows, as the script sees them: whole. Each check returns facts."""

from __future__ import annotations

import random
import threading
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from dp2ddp.templates.batches import see_whole, shard
from dp2ddp.templates.ddp import ExactDDP, GraphDDP
from dp2ddp.templates.in_turn import InTurnDDP
from dp2ddp.templates.loaded import MOST_WAITING, WAITING
from dp2ddp.templates.parted import RowsOnRanks, is_parted
from dp2ddp.templates.process import exchange, own_rank, world_size
from dp2ddp.templates.rank_zero_output import on_rank_zero
from lean_checks import counted
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

Pair = namedtuple("Pair", "one two")
KINDS = (GraphDDP, ExactDDP)


def loader_of(rows: int, batch_size: int = 5, width: int = 6, **options: Any) -> DataLoader[Any]:
    """Rows of numbers, and their classes."""
    x = torch.arange(rows * width, dtype=torch.float64).view(rows, width).sin()
    return DataLoader(TensorDataset(x, torch.arange(rows) % 3), batch_size, **options)


def sizes_of(total: int) -> list[int]:
    sizes = [len(chunk) for chunk in torch.arange(total).chunk(world_size())]
    return sizes + [0] * (world_size() - len(sizes))


class Noisy(TensorDataset):
    """Rows with noise of their own, from three streams."""

    def __getitem__(self, index: Any) -> Any:
        (x,) = super().__getitem__(index)
        return x, torch.rand(()) + random.random() + np.random.rand()


def batches_are_the_whole_loaders() -> Any:
    """The same batches as the whole loader draws; streams that stay together; noise that differs from row to row."""

    def make() -> DataLoader[Any]:
        torch.manual_seed(3)
        return DataLoader(Noisy(torch.arange(11.0)), batch_size=5, shuffle=True)

    loader = shard(make)
    batches = [(x.tolist(), noise.tolist(), len(x), x.shape) for x, noise in loader]
    drawn = torch.rand(2).tolist()
    plain = [x.tolist() for (x,) in DataLoader(TensorDataset(torch.arange(11.0)), 5)]
    torch.manual_seed(3)
    wanted = [x.tolist() for (x,) in DataLoader(TensorDataset(torch.arange(11.0)), 5, shuffle=True)]
    return [
        [x for x, *_ in batches] == wanted != plain,
        [len(x) for x in wanted] == [size for *_, size, _ in batches],
        len({number for _, noise, *_ in batches for number in noise}) == 11,
        exchange([batches, drawn]) == [[batches, drawn]] * world_size(),
        len(loader) == 3 and loader.batch_size == 5 and isinstance(loader, DataLoader),
    ]


def batches_of_anything() -> Any:
    """Tensors, lists, arrays, names in any form; ranks without rows bring one that shows the form."""
    facts: list[Any] = []
    for total in (2 * world_size() + 1, 2, 1):
        sizes = sizes_of(total)
        first = sum(sizes[: own_rank()])
        rows = list(range(first, first + sizes[own_rank()])) or [0]
        y = torch.tensor(rows)
        batch = {
            "x": torch.tensor([[float(row), -row] for row in rows]),
            "pair": Pair(y, [f"name {row}" for row in rows]),
            "again": y,
            "array": np.array([[row] for row in rows]),
            "all": [torch.tensor(7), "yes", None],
            "flags": (torch.tensor(rows) > 0,),
        }
        whole = see_whole(batch, sizes)
        everything = list(range(total))
        facts += [
            whole["x"].tolist() == [[float(row), -row] for row in everything],
            whole["pair"].one.tolist() == everything and type(whole["pair"]) is Pair,
            whole["pair"].two == [f"name {row}" for row in everything],
            whole["pair"].one is whole["again"],
            whole["array"].tolist() == [[row] for row in everything] and type(whole["array"]) is np.ndarray,
            [int(whole["all"][0]), *whole["all"][1:]] == [7, "yes", None],
            whole["flags"][0].tolist() == [row > 0 for row in everything],
        ]
    return facts


def steps_are_those_of_whole_batches() -> Any:
    """Two wrappers, batches that leave ranks without rows, everything a loop does with labels: to the last bit."""
    facts = []
    for kind in KINDS:
        found = []
        for make in (loader_of, lambda *sizes: shard(loader_of, *sizes)):
            torch.manual_seed(2)
            net = kind(nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)).double())
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            told: list[Any] = []
            for x, y in make(17):
                seen, y = y.size(0), y.long().view(-1)
                out = net(x)
                loss = F.cross_entropy(out, y) + 0.1 * F.mse_loss(out[:, 0], (y - 1).double())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                correct = (out.argmax(1) == y).sum().item()
                told += [seen, loss.item(), correct, y.tolist(), out[y == 1].sum().item(), x.sum().item()]
            found.append([told, [p.tolist() for p in net.parameters()]])
        facts.append(found[0] == found[1])
    return facts


def labels_travel_with_the_forward() -> Any:
    """One collective for outputs and labels, whatever the script does with both; none for inputs."""
    net = ExactDDP(nn.Linear(6, 3).double())
    loader = shard(loader_of, 40, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    counts = []
    for x, y in loader:
        with counted() as calls:
            y = y.to(torch.int64).cpu().reshape(-1)
            out = net(x)
            F.cross_entropy(out, y).backward()
            optimizer.step()
            _ = (out.argmax(1) == y).float().mean().item(), y.float().sum().item(), y.tolist(), len(x)
        counts.append([len(calls), sum(size for _, size in calls)])
    with counted() as unasked:
        for _, y in loader:
            y.size(0)
    return [[one for one, _ in counts[2:]], max(size for _, size in counts[2:]) < 1024, len(unasked)]


def large_ones_do_not_travel() -> Any:
    """Tensors above 64 KB stay where they are, and losses beside large outputs need no whole."""
    net = GraphDDP(nn.Linear(600, 8000).double())
    (x, y), *_ = shard(loader_of, 16, 16, 600)
    out = net(x)
    mask = (x[:, 0] > 0).float()
    with counted() as calls:
        loss = F.cross_entropy(out, y)
    return [
        is_parted(x),
        is_parted(out),
        is_parted(mask),
        len(calls),
        sum(n for _, n in calls) <= 64,
        loss.item() > 0,
    ]


def masks_are_counted_where_they_are() -> Any:
    """The sum of a small mask of large rows costs its own few bytes, until the whole is there anyway."""
    net = GraphDDP(nn.Linear(600, 8000).double())
    (x, _), *_ = shard(loader_of, 16, 16, 600)
    out = net(x)

    with counted() as calls:
        heads = (out > 0)[:, :9]
        sums = [(x > 0).sum(), heads.sum(), heads.sum(0), heads.sum(0, dtype=torch.int32)]
        found = [one.tolist() for one in sums]
    rows, head = torch.tensor(x.tolist()), torch.tensor(out.tolist())[:, :9] > 0
    wanted = [int((rows > 0).sum()), int(head.sum()), head.sum(0).tolist(), head.sum(0).tolist()]
    with counted() as free:
        again = int((x > 0).sum())
    return [found == wanted, again == wanted[0], len(calls) == 4, max(n for _, n in calls) <= 72, not free]


def changes_in_place() -> Any:
    """What the script writes into a batch it reads back, before and behind a forward; loaded rows stay as they are."""
    net = GraphDDP(nn.Linear(6, 3).double())
    facts = []
    for x, y in shard(loader_of, 10, 10):
        view, y1 = y.view(-1), y + 1
        y1.mul_(2)
        view.add_(5)
        net(x)
        y1[0] = 100
        y += 1
        plus = [n % 3 + 6 for n in range(10)]
        changed = [100, *(2 * (n % 3) + 2 for n in range(1, 10))]
        facts += [y.tolist() == plus, view.tolist() == plus, y1.tolist() == changed]
        z = y.clone()
        z[z > 6] = 0
        facts += [z.tolist() == [n if n <= 6 else 0 for n in plus], y.tolist() == plus]
    for x, y in shard(loader_of, 10, 10):
        kept = y.view(-1)
        net(x)
        y[1] = 9
        facts.append(y.tolist()[:3] == [0, 9, 2])
        del kept
    return facts


def where_not_all_ranks_come_by() -> Any:
    """In a thread, and where rank 0 is alone, it is the whole loader."""
    loader = shard(loader_of, 7)
    found: list[Any] = []

    def read() -> list[Any]:
        return [(type(x) is torch.Tensor, len(x)) for x, _ in loader]

    thread = threading.Thread(target=lambda: found.extend(read()))
    thread.start()
    thread.join()
    alone = on_rank_zero(read)
    (x, y), *_ = loader
    kinds = [isinstance(x, RowsOnRanks), on_rank_zero(lambda one: one.tolist(), y)]
    (x, y), *_ = loader
    kinds.append(refusal(lambda: on_rank_zero(lambda: y.tolist()))[:17])
    asked: list[str] = []
    thread = threading.Thread(target=lambda: asked.append(refusal(lambda: (y + 1).tolist())[:17]))
    thread.start()
    thread.join()
    return exchange([found, alone if own_rank() == 0 else found, [*kinds, *asked, y.tolist()]])[0]


def refusal(ask: Callable[[], Any]) -> str:
    """What somebody is told who asks where not all ranks come by."""
    try:
        ask()
    except RuntimeError as error:
        return str(error)
    return ""


def samples_of_different_shapes() -> Any:
    """What could not be stacked to a batch by one process is refused on every rank, with the forward at the latest."""
    sizes = [2] * world_size()
    x = see_whole(torch.ones(2, 6 + (own_rank() == world_size() - 1)), sizes)
    net = GraphDDP(nn.Linear(6, 2))
    try:
        net(torch.ones(4, 6))
    except ValueError as error:
        return ["cannot be stacked" in str(error), x.dim()]
    return None


def batches_that_no_model_sees() -> Any:
    """Kept over an epoch: they do not pile up in the next message, and all are there when they are asked for."""
    kept = [y for _, y in shard(loader_of, 400, 4)]
    waiting = len(WAITING) <= MOST_WAITING
    net = GraphDDP(nn.Linear(6, 2).double())
    net(torch.ones(4, 6).double())
    return [waiting, torch.cat(kept).tolist() == [n % 3 for n in range(400)]]


def mistaken_collate() -> Any:
    """A collate function that does not give a row a sample is refused, with what to do."""
    try:
        see_whole(torch.ones(7, 2), [2] * world_size())
    except ValueError as error:
        return "share(DataLoader" in str(error)
    return False


class Reaching(nn.Module):
    """Draws on the host, so that ranks take turns; its forward can reach the loader and a batch of it."""

    def __init__(self, loader: Any, batch: Any) -> None:
        super().__init__()
        self.line = nn.Linear(6, 2).double()
        self.loader, self.batch, self.count = loader, [batch], [0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count[0] += len(self.loader)
        out: torch.Tensor = self.line(x + random.random())
        return out


def what_replicas_can_reach_stays_each_ranks_own() -> Any:
    """In turns, ranks take over what replicas fill, and not whose rows a loader gives."""
    loader = shard(loader_of, 10, 5)
    net = InTurnDDP(Reaching(loader, next(iter(loader))[0]))
    found = []
    for x, y in loader:
        net(x)
        found += y.tolist()
    return [
        found == [n % 3 for n in range(10)],
        net.module.count == [2 * 2 * len(torch.arange(5).chunk(world_size()))],
    ]


class Holder:
    """An object of the script's, which every replica gets as it is."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


class Looking(nn.Module):
    """Uses a batch that it finds in an object."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(6, 2).double()

    def forward(self, x: torch.Tensor, holder: Holder) -> torch.Tensor:
        out: torch.Tensor = self.line(x) + holder.x.mean()
        return out


def rows_that_a_forward_finds_in_an_object() -> Any:
    """Refused on every rank, also where some have no replica to run; what has come already may be used."""
    net = GraphDDP(Looking())
    facts: list[Any] = []
    for batch_size in (2 * world_size(), 2):
        (x, _), *_ = shard(loader_of, 2 * world_size(), batch_size)
        facts.append("--data share" in refusal(lambda x=x: net(x, Holder(x))))  # type: ignore[misc]
        x.tolist()
        facts.append(net(x, Holder(x)).shape == (batch_size, 2))
    return facts


LOADED_CHECKS: dict[str, Callable[[], Any]] = {
    check.__name__: check
    for check in (
        batches_are_the_whole_loaders,
        batches_of_anything,
        steps_are_those_of_whole_batches,
        labels_travel_with_the_forward,
        large_ones_do_not_travel,
        masks_are_counted_where_they_are,
        changes_in_place,
        where_not_all_ranks_come_by,
        samples_of_different_shapes,
        batches_that_no_model_sees,
        mistaken_collate,
        what_replicas_can_reach_stays_each_ranks_own,
        rows_that_a_forward_finds_in_an_object,
    )
}
