"""What rank 0 alone meets, a full disk, comes to all ranks: program.py SIZE FOLDER, with full or plain helpers."""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from dp2ddp.templates import plain, process
from dp2ddp.templates.rank_zero_output import open_on_rank_zero, save_on_rank_zero

FULL_DISK = "/dev/full"


def main(size: str, folder: str) -> None:
    if size == "full":
        process.join_process_group()
        attempts: dict[str, Callable[[], Any]] = {
            "a block": lambda: in_block(open_on_rank_zero),
            "a large block": lambda: in_block(open_on_rank_zero, 100_000),
            "a file that stays open": lambda: closed(open_on_rank_zero),
            "torch.save to an open file": lambda: saved(open_on_rank_zero, save_on_rank_zero),
            "a file that is not there": lambda: open_on_rank_zero(f"{folder}/nothing", "r+"),
        }
    else:
        plain.init_distributed()
        attempts = {
            "a block": lambda: in_block(plain.open_on_rank0),
            "a file that stays open": lambda: closed(plain.LogFile),
            "a file that cannot be opened": lambda: in_block(plain.open_on_rank0, path=f"{folder}/no/thing"),
            "a writer that cannot be made": lambda: plain.make_on_rank0(fails, folder),
        }
    found = {name: [error_of(attempt), sums()] for name, attempt in attempts.items()}
    if size == "full":
        found["written and read"] = written_and_read(f"{folder}/log.txt")
    found["left behind"] = [name for name in os.listdir(tempfile.gettempdir()) if "inductor" not in name]
    (Path(folder) / f"{size}_{dist.get_rank()}.json").write_text(json.dumps(found))


def in_block(open_file: Any, count: int = 10, path: str = FULL_DISK) -> None:
    with open_file(path, "w") as file:
        file.write("x" * count)
        sums()  # training goes on in it
        file.write("x" * count)


def closed(open_file: Any) -> None:
    file = open_file(FULL_DISK, "w")
    file.write("x")
    file.close()


def saved(open_file: Any, save: Any) -> None:
    with open_file(FULL_DISK, "wb") as file:
        save(torch.zeros(100_000), file)


def fails(folder: str) -> None:
    os.listdir(f"{folder}/nothing")


def written_and_read(path: str) -> list[str]:
    """What each rank reads in files that are open to read and to write."""
    found = []
    for mode in ("w+", "a+", "r+"):
        with open_on_rank_zero(path, mode) as file:
            file.write(mode)
            file.seek(0)
            found.append(file.read())
            file.write("!")
    return found


def error_of(attempt: Callable[[], Any]) -> str:
    try:
        attempt()
    except (OSError, RuntimeError) as error:
        return type(error).__name__
    return "none"


def sums() -> float:
    """The ranks still come together."""
    number = torch.ones(1)
    dist.all_reduce(number)
    return float(number)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
