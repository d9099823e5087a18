"""Ranks without an agent, and with torch imported once: saves 3 s a rank.

`python tests/templates/forked_ranks.py RANKS SCRIPT [ARGUMENTS]`, or FORKED of ranks.py, runs a script as torchrun
does. A rank that fails ends none of the others: what a test says of endings is said under a real torchrun.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # every optimizer imports it: once here, and not once a rank

from dp2ddp.runtime.process.meeting import free_port


def fork_ranks(world: int, work: Callable[[int], None]) -> bool:
    """Do `work(rank)` on so many ranks at once, which find each other; returns whether all ended well."""
    port = free_port()
    children = []
    gc.freeze()  # a child neither scans nor copies what was here before it
    for rank in range(world):
        child = os.fork()
        if child == 0:
            os.environ.update(
                RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
            )
            torch.set_num_threads(1)
            work(rank)
            sys.exit()
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    return not any(codes)


def find_on_ranks(find: Callable[[int, int], Any], folder: Path, worlds: str) -> None:
    """Ranks that have joined write what `find(rank, world)` finds into the folder, for each number of ranks."""
    from dp2ddp.templates.ranks import init_distributed  # a script that `main` runs has helpers of its own

    def work(rank: int) -> None:
        warnings.simplefilter("ignore")
        init_distributed()
        (folder / f"{world}_{rank}.json").write_text(json.dumps(find(rank, world)))

    for world in map(int, worlds.split(",")):
        if not fork_ranks(world, work):
            sys.exit(1)


def main(world: int, words: list[str]) -> int:
    """Run a script with its arguments; what it raises is told as always, by sys.excepthook."""

    def run(rank: int) -> None:
        os.environ.update(LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world))
        sys.argv = words
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")

    return int(not fork_ranks(world, run))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
