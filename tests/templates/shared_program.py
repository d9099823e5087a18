"""What shared loaders must do, on forked ranks. Each check returns facts; the test says what they must be."""

from __future__ import annotations

import collections
import gc
import os
import pickle
import random
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import rank_program
import torch
from dp2ddp.templates import loaded, shared
from dp2ddp.templates.process import alone, exchange, own_rank, world_size
from dp2ddp.templates.shared import share
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Sampler, TensorDataset

Named = collections.namedtuple("Named", "one two")


class Noisy(Dataset[Any]):
    """Rows with noise from all three streams and from a generator of its own; counts what is taken."""

    def __init__(self, rows: int, width: int) -> None:
        self.rows, self.width = rows, width
        self.taken, self.order, self.own = 0, [], random.Random(4)
        self.histogram = numpy.zeros(4)

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> Any:
        self.taken += 1
        self.order.append(index)
        self.histogram[index % 4] += 1
        drawn = [random.random(), numpy.random.rand(), float(torch.rand(())), self.own.random()]
        if index % 3 == 0:  # these keep a number for the next time
            drawn += [random.gauss(0, 1), numpy.random.randn()]
        drawn = (drawn + drawn)[:6]
        return index, torch.tensor(drawn, dtype=torch.float64), torch.full((self.width,), float(index))

    def left(self) -> list[Any]:
        return [self.taken, self.order, self.own.random(), self.histogram.tolist()]


class Stream(IterableDataset[Any]):
    """Each worker gives rows of its own."""

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        for i in range(7):
            yield i + (100 * info.id if info else 0), torch.rand(3)


class Once(DataLoader[Any]):
    """Begins to iterate while it is made, and never again (MultiEpochsDataLoader of many scripts)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.endless = super().__iter__()
        self.given = 0

    def __iter__(self) -> Iterator[Any]:
        for _ in range(2):
            self.given += 1
            yield next(self.endless)


def seed() -> None:
    torch.manual_seed(3)
    random.seed(3)
    numpy.random.seed(3)


def told(batches: Any, stop: int = 99) -> list[Any]:
    """What a pass gives, up to a batch, and what the script draws behind it."""
    found = []
    for number, batch in enumerate(batches):
        found.append([part.tolist() if isinstance(part, torch.Tensor) else part for part in batch])
        if number == stop:
            break
    return [*found, float(torch.rand(())), random.gauss(0, 1), numpy.random.randn()]


def same_as_one_process(make_data: Callable[[], Any], kind: Any = DataLoader, **options: Any) -> list[Any]:
    """Three epochs, the second left early, against the same loader by itself."""
    found = []
    for make in (kind, lambda *args, **kwargs: share(kind, *args, **kwargs)):
        seed()
        data = make_data()
        loader = make(data, **options)
        found.append([told(loader), told(loader, 1), told(loader), getattr(data, "left", list)()])
        found[-1].append(getattr(loader, "given", None))
    return [found[0] == found[1], len({str(one) for one in exchange(found[1])})]


def rows() -> Noisy:
    return Noisy(10, 3)


def wide_rows() -> Noisy:
    return Noisy(10, 20000)


def without_workers() -> Any:
    return same_as_one_process(rows, batch_size=4, shuffle=True)


def without_workers_mapped() -> Any:
    return same_as_one_process(wide_rows, batch_size=4, shuffle=True)


def two_workers_mapped() -> Any:
    return same_as_one_process(wide_rows, batch_size=4, shuffle=True, num_workers=2)


def persistent_workers() -> Any:
    return same_as_one_process(rows, batch_size=4, shuffle=True, num_workers=3, persistent_workers=True)


def iterable_with_workers() -> Any:
    return same_as_one_process(Stream, batch_size=4, num_workers=2)


def iterable_without_workers() -> Any:
    return same_as_one_process(Stream, batch_size=4, drop_last=True)


def one_at_a_time() -> Any:
    return same_as_one_process(rows, batch_size=None)


def pinned() -> Any:
    """Without a GPU torch pins nothing, and says so once."""
    return same_as_one_process(wide_rows, batch_size=4, num_workers=1, pin_memory=True)


class Late(TensorDataset):
    """Its first rows take long: other workers' batches overtake them, if that is allowed."""

    def __getitem__(self, index: Any) -> Any:
        if index < 4:
            time.sleep(0.5)
        return super().__getitem__(index)


def out_of_order() -> Any:
    """Batches as they come: the same on all ranks, and each row once."""
    data = Late(torch.arange(16.0).view(16, 1).expand(16, 9000).contiguous())
    loader = share(DataLoader, data, batch_size=4, num_workers=2, in_order=False)
    found = [x[:, 0].tolist() for (x,) in loader]
    return [sorted(sum(found, [])) == list(range(16)), len({str(one) for one in exchange(found)})]


def started_by(way: str) -> Any:
    """Workers are started on rank 0 alone, in whatever way, and draw as forked ones do."""
    found = []
    for make, context in (
        (DataLoader, "fork"),
        (lambda *args, **kwargs: share(DataLoader, *args, **kwargs), way),
    ):
        seed()
        found.append(told(make(rows(), batch_size=4, num_workers=1, multiprocessing_context=context)))
    return [found[0] == found[1], len({str(one) for one in exchange(found[1])})]


def spawned() -> Any:
    return started_by("spawn")


def forkserver() -> Any:
    return started_by("forkserver")


def begins_while_it_is_made() -> Any:
    return same_as_one_process(lambda: Noisy(40, 3), Once, batch_size=4, shuffle=True, num_workers=1)


def by_names_in_the_file_system() -> Any:
    """Workers hand tensors over by files with names: they are copied."""
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        return same_as_one_process(wide_rows, batch_size=4, num_workers=1)
    finally:
        torch.multiprocessing.set_sharing_strategy(before)


def two_nodes() -> Any:
    """Ranks of two machines: the first rank of the other one gets the batch over the network, and hands it on."""
    found = []
    plain, shared.SocketLine.made = (shared.node_of_rank, shared.SocketLine.made), None
    shared.node_of_rank = lambda rank: rank >= world_size() // 2  # type: ignore[assignment]
    try:
        for make in (wide_rows, rows):
            for workers in (0, 1):
                found += same_as_one_process(make, batch_size=4, shuffle=True, num_workers=workers)
        found.append(list(shared.SocketLine.between_ranks().sockets))
        found[-1] = exchange(found[-1])
    finally:
        shared.node_of_rank, shared.SocketLine.made = plain
    return found


class Thing:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.name = tensor, "thing"


def strange(samples: Any) -> dict[str, Any]:
    tagged: Any = torch.ones(2, 20000)
    tagged.tag = "left"
    return {
        **everything(samples),
        "quantised": torch.quantize_per_tensor(torch.ones(2, 20000), 0.5, 3, torch.qint8),
        "tagged": tagged,
    }


def everything(samples: Any) -> dict[str, Any]:
    """A batch of everything; the large tensors go by the memory that is mapped."""
    x = torch.arange(40000.0).view(200, 200) + samples[0]
    table = torch.arange(2_000_000.0).view(1000, 2000)
    return {
        "text": ["a", {"b": ("c", None)}],
        "named": Named(x, [x[3:5], x.t()]),
        "thing": Thing(x[0]),
        "packed": nn.utils.rnn.pack_sequence([x[0, :5], x[1, :3]]),
        "sparse": torch.eye(4).to_sparse(),
        "rows": torch.eye(3).to_sparse_csr(),
        "quantised": None,  # torch itself cannot hand one over from a worker
        "tagged": None,  # nor what hangs on a tensor
        "many": [torch.full((2, 3), float(i)) for i in range(40)],  # small ones beside the large
        "half": x.bfloat16(),
        "complex": torch.complex(x, x).conj(),
        "empty": [torch.empty(0), torch.empty(0, 3)],
        "single": torch.tensor(3),
        "expanded": torch.arange(3).expand(5, 3),
        "numpy": [x.numpy().copy(), numpy.float32(2.5)],
        "leaf": torch.ones(3, requires_grad=True),
        "parameter": nn.Parameter(torch.ones(2)),
        "far apart": [table[i] for i in (3, 500, 999)],
        "one": samples[0],
    }


def digest(batch: dict[str, Any]) -> list[Any]:
    named, packed = batch["named"], batch["packed"]
    x = named.one
    x[3, 0] = -7.0  # its views see it
    return [
        batch["text"],
        [float(x.double().sum()), x.stride(), named.two[1].stride()],
        [
            float(named.two[0][0, 0]),
            float(named.two[1][0, 3]),
            float(batch["thing"].tensor.sum()),
            batch["thing"].name,
        ],
        [packed.data.tolist(), packed.batch_sizes.tolist()],
        [batch["sparse"].to_dense().tolist(), batch["sparse"].layout == torch.sparse_coo],
        batch["rows"].to_dense().tolist(),
        batch["quantised"] is not None
        and [batch["quantised"].q_scale(), int(batch["quantised"].int_repr().sum())],
        [str(batch["half"].dtype), float(batch["half"].double().sum())],
        [batch["complex"].is_conj(), complex(batch["complex"].sum()).imag],
        [list(one.shape) for one in batch["empty"]],
        [int(batch["single"]), batch["single"].dim()],
        [batch["expanded"].tolist(), batch["expanded"].stride()],
        [float(batch["numpy"][0].sum()), float(batch["numpy"][1]), batch["numpy"][0].flags.writeable],
        getattr(batch["tagged"], "tag", None),
        [float(one.sum()) for one in batch["many"]],
        [batch["leaf"].requires_grad, batch["leaf"].is_leaf],
        [type(batch["parameter"]).__name__, batch["parameter"].requires_grad],
        [float(one.sum()) for one in batch["far apart"]],
    ]


def strange_batches() -> Any:
    """What each part is on every rank, from rank 0's own process and from a worker."""
    found = []
    for workers, collate in ((0, strange), (1, everything)):
        options: Any = {"batch_size": 1, "collate_fn": collate, "num_workers": workers}
        wanted = [
            digest(one) for one in DataLoader(range(3), **options)
        ]  # which loses that a view is conjugate
        got = [digest(one) for one in share(DataLoader, range(3), **options)]
        pairs = zip(sum(got, []), sum(wanted, []), strict=True)
        found.append([f"{one} for {other}" for one, other in pairs if str(one) != str(other)])
    return found


def how_it_goes() -> Any:
    """Of each batch how many pieces of memory go by a descriptor, and whether they are the worker's own."""
    found: list[Any] = []
    send = shared.SocketLine.pass_on

    def pass_on(line: Any, packed: Any) -> None:
        found.append([len(packed.files), packed.lent is not None])
        send(line, packed)

    shared.SocketLine.pass_on = pass_on  # type: ignore[method-assign]
    try:
        for workers in (1, 0):
            for batch in share(DataLoader, wide_rows(), batch_size=5, num_workers=workers):
                assert len(batch) == 3
            for batch in share(DataLoader, rows(), batch_size=5, num_workers=workers):
                assert len(batch) == 3
    finally:
        shared.SocketLine.pass_on = send  # type: ignore[method-assign]
    return exchange(found)[0]


def rows_leave_their_table() -> Any:
    """Rows of a large table go without the table."""
    table = torch.arange(2_000_000.0).view(1000, 2000)
    loader = share(DataLoader, table, batch_size=3, collate_fn=list)
    sizes = [one.untyped_storage().nbytes() for one in next(iter(loader))]
    return [own_rank() == 0, sizes]


def writes_stay() -> Any:
    """Batches are kept over an epoch; each rank writes into each, at once and again at the end.

    Each something else, which no script does: so not as RowsOnRanks, which all ranks change alike.
    """
    loaded.SMALL_WHOLE = 1 << 40
    try:
        return written_and_kept()
    finally:
        loaded.SMALL_WHOLE = 64 * 1024


def written_and_kept() -> list[bool]:
    found = []
    for workers in (0, 2):
        data = TensorDataset(torch.arange(12.0).view(12, 1).expand(12, 9000).contiguous())
        kept = []
        for (x,) in share(DataLoader, data, batch_size=3, num_workers=workers):
            if own_rank() == 0:
                x.fill_(1000.0)
            exchange(None)
            kept.append((x, x[:, 0].tolist(), x[:, -1].tolist()))
            if own_rank() > 0:
                x[:, 1] = -float(own_rank())
            exchange(None)
        wanted = [[3.0 * i, 3.0 * i + 1, 3.0 * i + 2] if own_rank() else [1000.0] * 3 for i in range(4)]
        second = -float(own_rank()) if own_rank() else 1000.0
        found += [
            [first for _, first, _ in kept] == [last for _, _, last in kept] == wanted,
            all(
                x[:, 0].tolist() == one and bool((x[:, 1] == second).all())
                for (x, *_), one in zip(kept, wanted, strict=True)
            ),
        ]
    return found


def memory_goes() -> Any:
    """Descriptors and mappings are gone with the batch; a batch that is kept holds no descriptor on ranks > 0."""
    data = TensorDataset(torch.zeros(1000, 9000))
    counts, alive, kept = [], [], []
    for workers in (0, 1):
        loader = share(DataLoader, data, batch_size=2, num_workers=workers)
        for number, (x,) in enumerate(loader):
            if number < 20:
                kept.append(x)
            alive.append(weakref.ref(x))
            if number in (20, 480):
                gc.collect()
                counts.append((len(os.listdir("/proc/self/fd")), maps()))
    del x
    return [
        counts[0] == counts[1],
        counts[2] == counts[3],
        len(kept),
        sum(one() is not None for one in alive),
    ]


def maps() -> int:
    """How many pieces of memory are mapped that a batch may lie in."""
    return sum(
        "memfd:" in line or "torch_" in line for line in Path("/proc/self/maps").read_text().splitlines()
    )


class Broken(TensorDataset):
    def __getitem__(self, index: Any) -> Any:
        if index == 7:
            raise ParserError(index, "broken")
        return super().__getitem__(index)


class Killed(TensorDataset):
    def __getitem__(self, index: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class ParserError(Exception):
    """One that pickle cannot make again: it wants two arguments."""

    def __init__(self, line: int, text: str = "?") -> None:
        super().__init__(f"line {line}: {text}")


def first_line_of_error(make: Callable[[], Any]) -> list[Any]:
    seen = 0
    try:
        for _ in make():
            seen += 1
    except Exception as error:
        return [seen, type(error).__name__, *str(error).split(" (pid")[0].splitlines()[:1]]
    return [seen]


def errors() -> Any:
    """In a sample, in a worker, of a worker that is killed, in the collate function, while the iterator is made."""
    data = Broken(torch.arange(12.0))

    def fails(samples: Any) -> Any:
        raise ZeroDivisionError("nothing")

    def cannot_be_sent(samples: Any) -> Any:
        return lambda: samples

    found = [
        first_line_of_error(lambda: share(DataLoader, data, batch_size=3)),
        first_line_of_error(lambda: share(DataLoader, data, batch_size=3, num_workers=2)),
        first_line_of_error(lambda: share(DataLoader, Killed(torch.ones(3)), num_workers=1)),
        first_line_of_error(lambda: share(DataLoader, data, batch_size=3, collate_fn=fails)),
        first_line_of_error(lambda: share(DataLoader, data, batch_size=3, sampler=Missing())),
        first_line_of_error(lambda: share(DataLoader, data, batch_size=3, batch_sampler=[[1]])),
        first_line_of_error(lambda: share(DataLoader, data, batch_size=3, collate_fn=cannot_be_sent)),
    ]
    return [found, len(set(map(str, exchange(found))))]


class Missing(Sampler[int]):
    def __init__(self) -> None:
        pass

    def __iter__(self) -> Iterator[int]:
        raise KeyError("no order")


class Counted(BatchSampler):
    """Counts how often it is asked in this process."""

    asked = 0

    def __iter__(self) -> Iterator[list[int]]:
        Counted.asked += 1
        self.epoch = Counted.asked
        return super().__iter__()


def like_the_loader() -> Any:
    """It answers as the loader that it is; indices are looked at on rank 0 alone; copies and threads are others'."""
    sampler = Counted(torch.utils.data.SequentialSampler(range(10)), 3, False)
    generator = torch.Generator().manual_seed(5)
    loader = share(DataLoader, TensorDataset(torch.arange(10.0)), batch_sampler=sampler, generator=generator)
    one, other = iter(loader), iter(loader)
    mixed = [float(next(each)[0][0]) for each in (one, other, one, other, other)]
    asked = exchange(Counted.asked)
    first = next(iter(loader))[0].tolist()
    in_thread: list[Any] = []
    begun = iter(loader)
    thread = threading.Thread(
        target=lambda: in_thread.extend(sum(len(x) for (x,) in one) for one in (loader, begun))
    )
    if own_rank() == 0:
        thread.start()
        thread.join()
        with alone():
            in_thread.append(sum(len(x) for (x,) in loader))
    copied = pickle.loads(pickle.dumps(share(DataLoader, TensorDataset(torch.arange(4.0)), batch_size=2)))
    streams = exchange(generator.get_state().sum().item())
    return [
        [
            len(loader),
            len(one),
            type(loader).__name__,
            isinstance(loader, DataLoader),
            loader.batch_sampler is sampler,
        ],
        mixed,
        [count > 0 for count in asked],
        first,
        exchange(in_thread)[0],
        [len(x) for (x,) in copied],
        [len(set(streams)), len(set(exchange(sampler.epoch)[1:])) == 1],
    ]


CHECKS: dict[str, Callable[[], Any]] = {
    check.__name__: check
    for check in (
        without_workers,
        without_workers_mapped,
        two_workers_mapped,
        persistent_workers,
        iterable_with_workers,
        iterable_without_workers,
        one_at_a_time,
        pinned,
        out_of_order,
        spawned,
        forkserver,
        begins_while_it_is_made,
        by_names_in_the_file_system,
        two_nodes,
        strange_batches,
        how_it_goes,
        rows_leave_their_table,
        writes_stay,
        memory_goes,
        errors,
        like_the_loader,
    )
}


ONCE = {"spawned", "forkserver"}  # each start of such a worker imports torch
NEED_FOUR = {"two_nodes", "rows_leave_their_table", "errors", "like_the_loader"}


def work(world: int) -> dict[str, Any]:
    """All checks on this rank, in the same order on every rank."""
    if "--all" in sys.argv:
        names = set(CHECKS) if world == 2 else set(CHECKS) - ONCE
    else:
        names = set(CHECKS) - ONCE if world == 2 else NEED_FOUR
    return {name: rank_program.attempt(check) for name, check in CHECKS.items() if name in names}


if __name__ == "__main__":
    rank_program.run_ranks(Path(sys.argv[1]), (2, 4), work)
