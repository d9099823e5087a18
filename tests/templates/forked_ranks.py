"""Ranks without an agent, forked from a process that has torch (`run_program` of ranks.py)."""

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


def main(request: dict[str, Any]) -> None:
    """A program of the tests (`run_program` of ranks.py), alone or on ranks; what it raises ends it as always."""
    for descriptor, name in ((1, "out"), (2, "err")):
        file = os.open(os.path.join(request["output"], name), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(file, descriptor)
    os.chdir(request["folder"])
    sys.argv = words = request["words"]
    sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
    world = request["ranks"]

    def run(rank: int) -> None:
        os.environ.update(LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world))
        runpy.run_path(words[0], run_name="__main__")

    if not world:
        runpy.run_path(words[0], run_name="__main__")
    elif not fork_ranks(world, run):
        sys.exit(1)
