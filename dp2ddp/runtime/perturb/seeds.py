"""Random numbers that do not hang on chance: which process loads a sample, and what the system gives as a seed.

A random stream of its own for every sample: under DataParallel one process draws for sample after sample; a rank that
loads only its chunk would draw other numbers for the same sample (docs/semantics.md#augmentations). With these streams
sample i of epoch e gets the same numbers wherever it is loaded, and loading leaves the script's own streams alone.

Numbers that begin without a seed (`np.random.default_rng()`, `random.Random()`, `torch.seed()`): the system gives each
process other ones, so no two runs of such a script are the same, the original's neither. In runs that are compared they
begin at known numbers: rank 0's are those of the process with DataParallel; any other rank, and each worker of a
loader, has its own, as in real life. The user's lines are left in the run folder, "unseeded".
"""

from __future__ import annotations

import hashlib
import linecache
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch
import xxhash
from torch.utils.data import DataLoader, get_worker_info
from torch.utils.data._utils import fetch

from dp2ddp.runtime.hang.stacks import is_users, users_place
from dp2ddp.runtime.run_folder import UNSEEDED
from dp2ddp.runtime.virtual_cuda.random_streams import host_states, seed_host, set_host_states
from dp2ddp.taps import Taps

# Any: samples, indices and data sets are the user's.
Fetcher = fetch._MapDatasetFetcher
_SEED_OF = "_dp2ddp_seed_of"  # on a fetcher: the seed of a sample, by its index
DREW = "_dp2ddp_drew"  # left on a fetcher: whether its last sample drew random numbers, of each stream


class Epochs:
    """How often each data set has been iterated.

    By data set and not by loader: a conversion may build a loader anew for every epoch, but iterates as often.
    """

    def __init__(self) -> None:
        self._counts: dict[int, tuple[Any, int]] = {}  # id -> (the data set, which keeps the id taken; count)

    def begin(self, dataset: Any) -> None:
        self._counts[id(dataset)] = (dataset, self.of(dataset) + 1)

    def of(self, dataset: Any) -> int:
        return self._counts.get(id(dataset), (None, 0))[1]


def install_sample_streams(base_seed: int) -> Taps:
    """Let each map-style DataLoader of this process, and of workers it forks, load samples with their own streams."""
    taps, epochs = Taps(), Epochs()
    # A fetcher lives for one epoch. In a persistent worker it is made anew, after the fork, for each further epoch.
    made_here: Counter[tuple[int, int]] = Counter()

    def remember(made: None, fetcher: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        worker = get_worker_info()
        key = (worker.id, id(dataset)) if worker else (-1, 0)
        setattr(fetcher, _SEED_OF, partial(sample_seed, base_seed, epochs.of(dataset) + made_here[key]))
        made_here[key] += worker is not None

    taps.before("__iter__", lambda loader: epochs.begin(loader.dataset), DataLoader)
    taps.after("__init__", remember, Fetcher)
    taps.set(Fetcher, "fetch", _fetch)
    for place, owner in enumerate((random, numpy.random)):
        taps.before("seed", partial(_count_seeding, place), owner)
    return taps


_seedings = [0, 0]  # calls of random.seed and of numpy.random.seed in this process


def _count_seeding(place: int, *args: Any, **kwargs: Any) -> None:
    _seedings[place] += 1


def _fetch(self: Any, possibly_batched_index: Any) -> Any:
    """torch/utils/data/_utils/fetch.py, _MapDatasetFetcher.fetch, one sample at a time."""
    seed_of = getattr(self, _SEED_OF)
    indices = list(possibly_batched_index) if self.auto_collation else [possibly_batched_index]
    data, seedings = [], tuple(_seedings)
    with kept_streams():
        for index in indices:
            seed_host(seed_of(index))
            seedings = tuple(_seedings)
            data.append(_sample(self, index))
        for index in indices[-1:]:
            setattr(self, DREW, _drew(seed_of(index), seedings))
    return self.collate_fn(data if self.auto_collation else data[0])


def _sample(fetcher: Any, index: Any) -> Any:
    if fetcher.auto_collation and getattr(fetcher.dataset, "__getitems__", None):
        return fetcher.dataset.__getitems__([index])[0]
    return fetcher.dataset[index]


def _drew(seed: int, seedings: tuple[int, ...]) -> tuple[bool, ...]:
    """Whether the last sample drew from each stream, which began at `seed`.

    One that it has seeded by itself, mostly with its index, does not count: its numbers do not hang on ours.
    """
    of_torch = torch.default_generator.initial_seed() != seed
    reseeded = (of_torch, *(a != b for a, b in zip(seedings, _seedings, strict=True)))
    after = stream_digests()
    seed_host(seed)
    return tuple(a != b and not own for a, b, own in zip(after, stream_digests(), reseeded, strict=True))


def sample_seed(base_seed: int, epoch: int, index: Any) -> int:
    """63 bits that depend on all three; repr, because an index may be a tensor, a tuple or a string."""
    key = repr((base_seed, epoch, plain_index(index))).encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> 1


def plain_index(index: Any) -> Any:
    """Equal indices have equal texts: 3, numpy's 3 and a tensor's 3."""
    return index.tolist() if hasattr(index, "tolist") else index


def stream_digests() -> tuple[int, int, int]:
    """64 bits each of where torch's, Python's and numpy's random streams stand; nothing is drawn."""
    with torch._C.DisableTorchFunction():
        of_torch = xxhash.xxh3_64_intdigest(torch.default_generator.get_state().numpy().data, seed=1)
    of_python = xxhash.xxh3_64_intdigest(repr(random.getstate()[1]).encode(), seed=2)
    state: Any = numpy.random.get_state()
    _, numbers, *place = state
    of_numpy = xxhash.xxh3_64(numbers.data, seed=3)
    of_numpy.update(repr(place).encode())
    return of_torch, of_python, of_numpy.intdigest()


@contextmanager
def kept_streams() -> Iterator[None]:
    """What is drawn inside does not advance the streams of torch, random and numpy outside."""
    states = host_states()
    try:
        yield
    finally:
        set_host_states(states)


# ---- what begins without a seed


class _Known:
    """The seeds of this process."""

    seed = 0
    given = 0
    file = -1

    @classmethod
    def next_one(cls, bits: int, is_named: bool = True) -> int:
        place = users_place() if is_named else ""
        if place and not _is_importing():
            os.write(cls.file, f"{place}\n".encode())
        cls.given += 1
        worker = get_worker_info()
        key = repr((cls.seed, worker and (worker.id, worker.seed), cls.given)).encode()
        return int.from_bytes(hashlib.shake_128(key).digest(bits // 8), "little")


def _is_importing() -> bool:
    """Whether it is a library that begins them, where the user only imports it: for names, not for the training."""
    frame = sys._getframe(1)
    while not is_users(frame.f_code.co_filename, frame.f_code.co_firstlineno):
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>" or frame.f_back is None:
            return True
        frame = frame.f_back
    return False


# numpy begins the generator of such a state without a seed, and seeds it at once
_GIVEN_A_SEED = re.compile(r"RandomState\((?!\s*(None)?\s*\))")


def seed_all(seed: int) -> None:
    """random, numpy and torch; what begins without a seed, too: at known numbers, other ones for each seed."""
    _Known.seed, _Known.given = seed, 0
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def seed_the_unseeded(run_folder: Path, taps: Taps) -> None:
    """From now on, in this process and those that it forks. Any: arguments of random and torch."""
    _Known.file = os.open(run_folder / UNSEEDED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    seed_of_random: Any = random.Random.seed
    seed_of_numpy = numpy.random.seed

    def seed_random(self: random.Random, a: Any = None, version: int = 2) -> None:
        of_a_name = sys._getframe(2).f_globals.get("__name__") == "tempfile"  # which is to be a new one
        seed_of_random(self, _Known.next_one(128) if a is None and not of_a_name else a, version)

    def seed_generator(self: Any) -> int:
        seed = _Known.next_one(56)
        self.manual_seed(seed)
        return seed

    def seed_numpy(seed: Any = None) -> None:
        seed_of_numpy(_Known.next_one(32) if seed is None else seed)

    def random_bits(bits: int) -> int:
        caller = sys._getframe(1)
        line = linecache.getline(caller.f_code.co_filename, caller.f_lineno)
        return _Known.next_one(bits, is_named=not _GIVEN_A_SEED.search(line))

    # of default_rng, RandomState, SeedSequence
    taps.set(numpy.random.bit_generator, "randbits", random_bits)
    taps.set(numpy.random, "seed", seed_numpy)
    taps.set(random.Random, "seed", seed_random)
    taps.set(random, "seed", lambda a=None, version=2: seed_random(random._inst, a, version))
    taps.set(torch.Generator, "seed", seed_generator)
    taps.around("seed", lambda original: seed_generator(torch), torch.random, torch)
