"""Every helper inside every other: program.py FOLDER, on forked ranks. test_nested.py looks at what it finds.

A data set that makes its folder when it downloads is the commonest of them: rank0_first around run_on_rank0.
"""

from __future__ import annotations

import gzip
import json
import logging
import os
import queue
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from dp2ddp.templates.broadcast import exchange_numbers
from dp2ddp.templates.checkpoints import save_on_rank0
from dp2ddp.templates.files import open_by_on_rank0, open_on_rank0, open_path_on_rank0, write_on_rank0
from dp2ddp.templates.held import hold_on_rank0
from dp2ddp.templates.loader import Rank0Loader
from dp2ddp.templates.overlapping import WholeBatchParallel
from dp2ddp.templates.rank0 import TemporaryFolderOnRank0, ask_rank0, rank0_first, run_on_rank0, share_streams
from dp2ddp.templates.ranks import init_distributed, own_rank
from dp2ddp.templates.trackers import make_handler_on_rank0, make_on_rank0

FOLDER = Path(sys.argv[1])
Work = Callable[[], Any]


class Made:
    """What a tracker may be; it does something when it is made."""

    def __init__(self, work: Work) -> None:
        work()


class Handler(logging.Handler):
    def __init__(self, work: Work) -> None:
        super().__init__()
        work()


class Data(torch.utils.data.Dataset):
    def __init__(self, work: Work) -> None:
        self.work = work

    def __len__(self) -> int:
        return 2

    def __getitem__(self, place: int) -> int:
        if place == 0:
            self.work()
        return place


def in_file(work: Work) -> None:
    with open_on_rank0(FOLDER / "outer.txt", "w") as file:
        work()
        file.write("x")


def in_folder(work: Work) -> None:
    with TemporaryFolderOnRank0():
        work()


# What calls something of the script's own.
OUTER: dict[str, Callable[[Work], Any]] = {
    "nothing": lambda work: work(),
    "run_on_rank0": run_on_rank0,
    "ask_rank0": lambda work: ask_rank0(lambda: work() and None),
    "rank0_first": lambda work: rank0_first(lambda: work() and None),
    "write_on_rank0": lambda work: write_on_rank0(lambda path: work() and None, "a"),
    "make_on_rank0": lambda work: make_on_rank0(Made, work),
    "make_handler_on_rank0": lambda work: make_handler_on_rank0(Handler, work),
    "hold_on_rank0": lambda work: hold_on_rank0(Made, work),
    "share_streams": lambda work: share_streams(lambda: work() and None),
    "open_on_rank0": in_file,
    "TemporaryFolderOnRank0": in_folder,
    "Rank0Loader": lambda work: [*Rank0Loader(Data(work))],
    "Rank0Loader with workers": lambda work: [*Rank0Loader(Data(work), num_workers=1)],
}


def append(path: Any) -> None:
    with open(path, "a") as file:
        file.write("x")


def written(opened: Any, text: Any) -> None:
    with opened as file:
        file.write(text)


def filled_folder(path: Path) -> None:
    with TemporaryFolderOnRank0() as folder:
        run_on_rank0(append, Path(folder) / "a")
        run_on_rank0(append, path)


def handed_over(path: Path) -> None:
    held = hold_on_rank0(queue.Queue)
    held.put(1)
    assert held.get() == 1
    run_on_rank0(append, path)


def trained(path: Path) -> None:
    model = WholeBatchParallel(torch.nn.Linear(2, 1))
    model(torch.ones(4, 2)).sum().backward()
    run_on_rank0(append, path)


def seeded(path: Path) -> None:
    share_streams(random.seed)
    run_on_rank0(append, path)


def first(path: Path) -> None:
    rank0_first(lambda: own_rank() or append(path))


def loaded(path: Path) -> None:
    assert [*map(int, Rank0Loader(range(2), num_workers=0))] == [0, 1]
    run_on_rank0(append, path)


# What leaves one "x" at a path, once.
INNER: dict[str, Callable[[Path], Any]] = {
    "run_on_rank0": lambda path: run_on_rank0(append, path),
    "ask_rank0": lambda path: ask_rank0(lambda: own_rank() or append(path)),
    "rank0_first": first,
    "write_on_rank0": lambda path: write_on_rank0(append, str(path)),
    "make_on_rank0": lambda path: make_on_rank0(Made, lambda: append(path)),
    "make_handler_on_rank0": lambda path: make_handler_on_rank0(Handler, lambda: append(path)),
    "hold_on_rank0": handed_over,
    "open_on_rank0": lambda path: written(open_on_rank0(path, "a"), "x"),
    "open_by_on_rank0": lambda path: written(open_by_on_rank0(gzip.open, path, "wt"), "x"),
    "open_path_on_rank0": lambda path: written(open_path_on_rank0(path.open, "a"), "x"),
    "save_on_rank0": lambda path: save_on_rank0("x", path),
    "TemporaryFolderOnRank0": filled_folder,
    "share_streams": seeded,
    "Rank0Loader": loaded,
    "WholeBatchParallel": trained,
}


def content(path: Path) -> str:
    if not path.exists():
        return ""
    data = path.read_bytes()
    if data[:2] == b"PK":
        return str(torch.load(path))
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()


def main() -> None:
    init_distributed()
    tempfile.tempdir = str(FOLDER)
    found = {}
    for number, (outer, around) in enumerate(OUTER.items()):
        for place, (inner, work) in enumerate(INNER.items()):
            path = FOLDER / f"{number}_{place}"
            try:
                around(lambda work=work, path=path: work(path))  # type: ignore[misc]
                told = ""
            except Exception as error:
                told = f"{type(error).__name__}: {error}"
            ranks = exchange_numbers([100 * number + place])
            together = ranks == [[100 * number + place]] * len(ranks)
            found[f"{outer} {inner}"] = [told, together, content(path)]
    file = os.open(FOLDER / f".{own_rank()}.json", os.O_CREAT | os.O_WRONLY)
    os.write(file, json.dumps(found).encode())


if __name__ == "__main__":
    main()
