"""Loops over loaders, in one process and on ranks: python loader_program.py FOLDER WAY ...

Each rank writes what each loop found; so does one process without ranks, with torch's own DataLoader.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import itertools
import json
import multiprocessing
import os
import pickle
import random
import sys
import threading
import time
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from dp2ddp.templates import batches, loader  # noqa: E402
from dp2ddp.templates.loader import Rank0Loader, Rank0SamplerLoader  # noqa: E402
from dp2ddp.templates.ranks import init_distributed, own_rank  # noqa: E402
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler  # noqa: E402

from tests.templates.forked_ranks import fork_ranks  # noqa: E402

LARGE = 3 * 100 * 100  # numbers of an image: four of them are mapped
Pair = collections.namedtuple("Pair", "left right")


class Images(Dataset[Any]):
    """Noisy images, whose noise comes from all three random streams; it counts what it was asked for."""

    def __init__(self, count: int = 24) -> None:
        self.count, self.asked = count, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        image = torch.full((3, 100, 100), index + random.random()) + torch.rand(3, 100, 100)
        return image, index, np.random.rand()


class NotThisOne(Exception):
    """An error of the script's own."""


class Broken(Images):
    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise KeyError("five")
        if index == 9:
            raise NotThisOne("nine")
        return torch.full((3, 100, 100), float(index))


class Stream(IterableDataset[Any]):
    def __init__(self, end: int | None) -> None:
        self.end = end

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        numbers = itertools.count(first, step) if self.end is None else range(first, self.end, step)
        return (torch.full((3, 100, 100), float(number)) for number in numbers)


class Memory(Sampler[int]):
    """Draws from a stream of its own, and remembers what it gave away."""

    def __init__(self, count: int) -> None:
        self.count, self.stream = count, random.Random(3)
        self.given: list[int] = []

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        for _ in range(self.count):
            self.given.append(self.stream.randrange(self.count) + np.random.randint(2))
            yield self.given[-1] % self.count


class Boxed:
    """An object of the script's, with tensors in it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class Odd(Dataset[Any]):
    """Tensors of all sorts, small and large."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        size = (4, 10) if index == 0 else (40, 1000)
        numbers = torch.arange(float(size[0] * size[1])).view(size)
        return {
            "bfloat16": numbers.bfloat16(),
            "bool": numbers > 7,
            "complex": torch.complex(numbers, -numbers),
            "sparse": (numbers % 7 == 0).double().to_sparse(),
            "turned": numbers.t(),
            "part": numbers[1:3],
            "pair": Pair(numbers, [numbers[0], None, "text"]),
            "scalar": numbers.sum(),
            "empty": numbers[:0],
            "array": numbers.numpy() * 2,
            "boxed": Boxed(numbers),
            "parameter": torch.nn.Parameter(numbers.double()),
        }


def itself(thing: Any) -> Any:
    return thing


def facts_of(thing: Any) -> Any:
    """What is seen of a batch."""
    if isinstance(thing, torch.Tensor):
        dense = thing.detach().to_dense() if thing.layout != torch.strided else thing.detach()
        total = dense.to(torch.complex128).sum()
        stride = [] if thing.layout != torch.strided else thing.stride()
        kind = type(thing).__name__, str(thing.dtype), thing.requires_grad
        return [*kind, *thing.shape, "stride", *stride, total.real.item(), total.imag.item()]
    if isinstance(thing, dict):
        return {key: facts_of(each) for key, each in thing.items()}
    if isinstance(thing, (tuple, list)):
        return [type(thing).__name__, *map(facts_of, thing)]
    if isinstance(thing, np.ndarray):
        return [str(thing.dtype), *thing.shape, float(thing.sum())]
    return facts_of(thing.tensor) if isinstance(thing, Boxed) else thing


def draws() -> list[float]:
    return [random.random(), float(np.random.rand()), torch.rand(1).item()]


def shuffled(loader_of: Any) -> Iterator[Any]:
    loader = loader_of(Images(), batch_size=4, shuffle=True, num_workers=2)
    yield len(loader), len(loader.dataset), isinstance(loader, DataLoader)
    for epoch in range(3):
        for step, batch in enumerate(loader):
            yield facts_of(batch)
            if step == 1:
                yield draws()
            if epoch == 1 and step == 2:
                break
        yield draws()
    yield loader.dataset.asked


def without_workers(loader_of: Any) -> Iterator[Any]:
    loader = loader_of(Images(), batch_size=5, shuffle=True)
    for batch in loader:
        yield facts_of(batch), draws(), loader.dataset.asked
    for _ in loader:
        break
    yield loader.dataset.asked, draws()


def own_generator(loader_of: Any, **settings: Any) -> Iterator[Any]:
    generator = torch.Generator().manual_seed(5)
    loader = loader_of(Images(), batch_size=4, shuffle=True, num_workers=2, generator=generator, **settings)
    for epoch in range(3):
        for batch in itertools.islice(loader, 2 + epoch):
            yield facts_of(batch)
        yield torch.rand(1, generator=generator).item(), draws()


def persistent_workers(loader_of: Any) -> Iterator[Any]:
    yield from own_generator(loader_of, persistent_workers=True, prefetch_factor=3)


def kept_workers(loader_of: Any) -> Iterator[Any]:
    loader = loader_of(Images(8), batch_size=4, shuffle=True, num_workers=2, persistent_workers=True)
    for _ in range(3):
        yield [facts_of(batch) for batch in loader], draws()


def views(loader_of: Any) -> Iterator[Any]:
    """Tensors of one memory, small and large: what is written into one, the others have."""
    for size in (8, 2**16):
        sample = torch.arange(float(size))
        loader = loader_of([sample], batch_size=None, num_workers=1, collate_fn=as_views)
        for whole, part, same in loader:
            part.add_(1)
            yield facts_of(whole), facts_of(same["whole"]), whole._is_view(), whole._version
            whole.detach_()


def as_views(sample: torch.Tensor) -> Any:
    return sample, sample.view(2, -1).t()[1:3], {"whole": sample.view(torch.int32)}


def sampler_with_memory(loader_of: Any) -> Iterator[Any]:
    sampler = Memory(24)
    loader = loader_of(Images(), batch_size=2, sampler=sampler, num_workers=2)
    for end in (3, 50):
        for batch in itertools.islice(loader, end):
            yield facts_of(batch), sampler.given[:]
        yield sampler.given[:], sampler.stream.random(), draws()
    ordered = torch.utils.data.BatchSampler(sampler, 3, True)
    for batch in itertools.islice(loader_of(Images(), batch_sampler=ordered, num_workers=1), 2):
        yield facts_of(batch)
    yield len(sampler.given), sampler.stream.random(), draws()


def errors(loader_of: Any) -> Iterator[Any]:
    batches = iter(loader_of(Broken(16), batch_size=2, num_workers=2))
    for _ in range(10):
        try:
            yield facts_of(next(batches))
        except StopIteration:
            yield "end"
        except Exception as error:
            yield type(error).__name__, str(error).splitlines()[-1]
    del batches
    yield len(multiprocessing.active_children())


class Stubborn(Memory):
    def __iter__(self) -> Iterator[int]:
        raise NotThisOne("no samples")


def error_at_the_start(loader_of: Any) -> Iterator[Any]:
    try:
        iter(loader_of(Images(), sampler=Stubborn(3), num_workers=1))
    except NotThisOne as error:
        yield str(error)
    yield [facts_of(batch) for batch in loader_of(Images(3), num_workers=1)]


def two_at_once(loader_of: Any) -> Iterator[Any]:
    loader = loader_of(Images(8), batch_size=4, shuffle=True, num_workers=1)
    for one, other in zip(loader, loader, strict=True):
        yield facts_of(one), facts_of(other)
    for one in loader:
        yield facts_of(one)
        for other in loader:
            yield facts_of(other)
    yield draws()


def streams_of_samples(loader_of: Any) -> Iterator[Any]:
    for batch in loader_of(Stream(10), batch_size=3, num_workers=2):
        yield facts_of(batch)
    endless = iter(loader_of(Stream(None), batch_size=None, num_workers=2))
    for _ in range(5):
        yield facts_of(next(endless))
    yield draws()


def endless_loader(loader_of: Any) -> Iterator[Any]:
    class Again:
        def __init__(self, sampler: Any) -> None:
            self.sampler = sampler

        def __iter__(self) -> Iterator[Any]:
            while True:
                yield from self.sampler

    class Endless(loader_of):  # type: ignore[misc]
        """Its workers live as long as it does."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            object.__setattr__(self, "batch_sampler", Again(self.batch_sampler))
            self.batches = super().__iter__()

        def __len__(self) -> int:
            return len(self.batch_sampler.sampler)

        def __iter__(self) -> Iterator[Any]:
            for _ in range(len(self)):
                yield next(self.batches)

    loader = Endless(Images(12), batch_size=4, shuffle=True, num_workers=2)
    for _ in range(2):
        for batch in loader:
            yield facts_of(batch)
        yield draws()


def seed_numpy(worker: int) -> None:
    np.random.seed(100 + worker)


def settings_of_workers(loader_of: Any) -> Iterator[Any]:
    loader = loader_of(Images(), batch_size=4, num_workers=2, worker_init_fn=seed_numpy, collate_fn=list)
    for batch in loader:
        yield facts_of(batch)
    yield loader.dataset.asked


def all_sorts(loader_of: Any) -> Iterator[Any]:
    for batch in loader_of(Odd(), batch_size=None, num_workers=1, collate_fn=itself):
        yield facts_of(batch)
        batch["pair"].left.add_(1)
        yield facts_of(batch), float(batch["array"].sum())
        batch["bool"].logical_not_()
        yield facts_of(batch["bool"])


def writes(loader_of: Any) -> Iterator[Any]:
    """What each rank writes, no other sees; also where one is far ahead of the other."""
    ahead: list[Any] = []
    for step, (images, *_) in enumerate(loader_of(Images(), batch_size=4, num_workers=2)):
        if step == 2 and own_rank() == 1:
            time.sleep(0.5)
        total = images.double().sum().item()
        images.add_(own_rank() + 1)
        change = images.double().sum().item() - total
        yield total, round(change) == 4 * LARGE * (own_rank() + 1)
        ahead.append(images)
    yield [len(ahead), draws()]


def late_rank(loader_of: Any) -> Iterator[Any]:
    """A rank that maps a batch long after the others still finds that one."""
    for step, (images, *_) in enumerate(loader_of(Images(), batch_size=4, num_workers=2)):
        total = images.double().sum().item()
        del images
        if step % 3 == own_rank():
            time.sleep(0.3)
        yield total


def nothing_is_left(loader_of: Any) -> Iterator[Any]:
    loader = loader_of(Stream(None), batch_size=4, num_workers=1)
    batches = iter(loader)
    next(batches)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(60):
        batch = next(batches)
    yield len(os.listdir("/proc/self/fd")) < before + 10
    yield not [name for name in os.listdir("/dev/shm") if name.startswith(f"torch_{os.getpid()}_")]
    yield facts_of(batch)


LOOPS: dict[str, Callable[[Any], Iterator[Any]]] = {
    loop.__name__: loop
    for loop in (
        *(shuffled, without_workers, own_generator, persistent_workers, sampler_with_memory, errors),
        *(error_at_the_start, two_at_once, streams_of_samples, endless_loader, settings_of_workers),
        *(all_sorts, writes, nothing_is_left, kept_workers, views, late_rank),
    )
}

WITH_SAMPLERS = (  # loops whose loaders the text gives a sampler or a generator
    *("own_generator", "persistent_workers", "sampler_with_memory", "error_at_the_start", "endless_loader"),
)


def asked_by_a_thread() -> Iterator[Any]:
    """Its draws and the main thread's would mix, otherwise on each rank."""
    batches = iter(Rank0Loader(Images(2), num_workers=1))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield str(pool.submit(next, batches).exception())
    yield facts_of(next(batches))[0]


def of_your_own() -> Iterator[Any]:
    """A plain loader that its owner has given a sampler: other ranks would not ask it."""
    loader = Rank0Loader(Images(3), sampler=CountingSampler(), num_workers=1)
    try:
        yield len([*loader])
    except RuntimeError as error:
        yield str(error)


class CountingSampler(torch.utils.data.Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Once:
    """An object that goes from a worker to its loader, and no further."""

    def __reduce__(self) -> Any:
        if own_rank() == 0 and multiprocessing.current_process().name == "MainProcess":
            raise TypeError("only once")
        return Once, ()


def with_unsendable(samples: list[Any]) -> Any:
    return Once() if samples[0][1] == 1 else samples


def unsendable() -> Iterator[Any]:
    batches = iter(Rank0Loader(Images(3), collate_fn=with_unsendable, num_workers=1))
    for _ in range(3):
        try:
            yield facts_of(next(batches)[0][1])
        except Exception as error:
            yield type(error).__name__


class PinningLoader(Rank0Loader):
    """As on GPUs, where the script asks for pinned memory: a thread copies each batch, one ahead."""

    def rank0_batches(self, start: Callable[[], Any], pins: bool) -> Any:
        return super().rank0_batches(start, pins=True)


def pinned(loops: dict[str, Any]) -> Iterator[Any]:
    """What the loops find, and the threads that have copied."""
    threads = set()

    def pin_memory(batch: Any) -> Any:
        threads.add(threading.current_thread() is threading.main_thread())
        return batch

    cuda = types.SimpleNamespace(
        is_available=lambda: True, current_device=lambda: 0, set_device=lambda number: None
    )
    vars(loader).update(pin_memory=pin_memory, torch=types.SimpleNamespace(cuda=cuda))
    yield run(loops, PinningLoader)
    yield [*threads]


def run(loops: dict[str, Any], given: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, loop in loops.items():
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        try:
            found[name] = list(loop(given))
        except Exception:
            found[name] = ["failed", traceback.format_exc()]
    return found


def do_late(function: Any, *args: Any, **kwargs: Any) -> Any:
    time.sleep(0.01)
    return function(*args, **kwargs)


def cannot_map(message: bytes) -> Any:
    raise FileNotFoundError("/proc/7/fd/7")


def be_a_rank(way: str, file: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if way == "one process":
        found = run(LOOPS, DataLoader)
    else:
        init_distributed()
        if way.startswith("messages") or way.startswith("nodes") and own_rank() == 2:
            vars(batches)["pickle"] = types.SimpleNamespace(loads=cannot_map)  # as on a machine of its own
        elif own_rank() == 1:  # the others may be far ahead when it maps what it has heard of
            vars(loader)["pickle"] = types.SimpleNamespace(loads=functools.partial(do_late, pickle.loads))
        found = run(LOOPS, Rank0SamplerLoader)
        plain = {name: loop for name, loop in LOOPS.items() if name not in WITH_SAMPLERS}
        found["plain"] = run(plain, Rank0Loader)
        found["pinned"], found["copied by the main thread"] = pinned(plain)
        found["asked by a thread"] = [*asked_by_a_thread()]
        found["unsendable"] = [*unsendable()]
        found["of your own"] = [*of_your_own()]
        found["lends"] = batches.Packer.lends
    file.write_text(json.dumps(found))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for way in sys.argv[2:]:
        world = 1 if way == "one process" else int(way[-1])

        def work(rank: int, way: str = way) -> None:
            be_a_rank(way, folder / f"{way}_{rank}.json")

        if not fork_ranks(world, work):
            sys.exit(1)
