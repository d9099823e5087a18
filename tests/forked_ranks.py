"""A script on ranks as torchrun starts them, without an agent and with torch imported once: saves 3 s a rank.

`python tests/forked_ranks.py RANKS SCRIPT [ARGUMENTS]`, or FORKED of ranks.py. A rank that fails ends none of the
others: what a test says of endings is said under a real torchrun.
"""

from __future__ import annotations

import os
import runpy
import sys

import torch
import torch._dynamo  # every optimizer imports it: once here, and not once a rank

from dp2ddp.runtime.ports import free_port


def be_a_rank(rank: int, world: int, port: int, words: list[str]) -> None:
    """Run the script; what it raises is told as always, by sys.excepthook."""
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    sys.argv = words
    sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
    runpy.run_path(words[0], run_name="__main__")


def main(world: int, words: list[str]) -> int:
    port = free_port()
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            be_a_rank(rank, world, port, words)
            sys.exit()
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    return int(any(codes))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
