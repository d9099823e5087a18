"""Ranks that a script starts itself, with torch.multiprocessing: each is a rank from its init_process_group on.

The script is started once. Its processes are forked, whatever method it asks for: a spawned one would begin without
virtual devices. One that calls init_process_group says which rank it is; from then on it has that rank's output, note,
heartbeat and record. What a process does before belongs to nobody, and is printed as rank 0.
"""

from __future__ import annotations

import multiprocessing.context
import os
import sys
from collections.abc import Callable
from multiprocessing.util import Finalize
from typing import Any

from dp2ddp.runtime.hang.stacks import Ending
from dp2ddp.taps import Taps

Become = Callable[[int], Callable[[Ending], None]]
"""Called with the rank in its process; returns what is told its end."""


def observe_ranks(become: Become, seed: int | None) -> None:
    """In the process that starts the ranks, before the script."""
    import torch.distributed as dist

    _fork_always()
    _seed_children(os.getpid(), seed)
    ranks: set[int] = set()  # of this process: a script may leave its group and join another

    def joined(*args: Any, **kwargs: Any) -> None:
        if not ranks:
            ranks.add(dist.get_rank())
            _at_end(become(dist.get_rank()))

    Taps().after("init_process_group", joined, dist.distributed_c10d, dist)


def _fork_always() -> None:
    """`spawn` and `forkserver` mean `fork`."""
    contexts: Any = multiprocessing.context
    fork = contexts._concrete_contexts["fork"]
    contexts._concrete_contexts.update(spawn=fork, forkserver=fork)
    contexts._default_context._default_context = fork  # forkserver since Python 3.14


def _seed_children(launcher: int, seed: int | None) -> None:
    """Processes begin apart, as in real life; a worker of a rank's loader is none of them."""
    from dp2ddp.runtime.perturb.unseeded import seed_all

    count = 0

    def counted() -> None:
        nonlocal count
        count += 1

    def begin_apart() -> None:
        if seed is not None and os.getppid() == launcher:
            seed_all(seed + count)

    os.register_at_fork(after_in_parent=counted, after_in_child=begin_apart)


def _at_end(end: Callable[[Ending], None]) -> None:
    """multiprocessing ends its processes without atexit; the exception that ends one is on its way then."""
    if multiprocessing.parent_process() is not None:
        Finalize(None, lambda: end(_how_it_ends(sys.exc_info()[1])), exitpriority=100)


def _how_it_ends(error: BaseException | None) -> Ending:
    if error is None:
        return Ending()
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        # torch's spawn writes the traceback to a file and exits with 1 (torch/multiprocessing/spawn.py)
        return Ending.by(error.__context__, code) if code and error.__context__ else Ending(code)
    return Ending.by(error, 1)
