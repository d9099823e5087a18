"""Random numbers that begin without a seed: `np.random.default_rng()`, `random.Random()`, `torch.seed()`.

The system gives each process other ones, so no two runs of such a script are the same, the original's neither. In runs
that are compared they begin at known numbers: rank 0's are those of the process with DataParallel; any other rank, and
each worker of a loader, has its own, as in real life. The user's lines are left in the run folder, "unseeded".
"""

from __future__ import annotations

import hashlib
import linecache
import os
import random
import re
import sys
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.utils.data import get_worker_info

from dp2ddp.runtime.hang.stacks import is_users, users_place
from dp2ddp.runtime.run_folder import UNSEEDED
from dp2ddp.taps import Taps


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
