"""What ranks get of threads, queues and pools that rank 0 has: python held_program.py FOLDER."""

from __future__ import annotations

import multiprocessing
import queue
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "templates"))

import torch  # noqa: E402
from dp2ddp.templates.held import HeldByRank0, hold_on_rank0  # noqa: E402
from dp2ddp.templates.ranks import own_rank  # noqa: E402
from forked_ranks import find_on_ranks  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402


class Numbers:
    """What draws where it is asked, and counts."""

    def __init__(self, first: int) -> None:
        self.asked = first

    def draw(self) -> float:
        self.asked += 1
        return random.random()


def fill(batches: Any, started: list[int]) -> None:
    for number in range(3):
        batches.put({"x": torch.full((2, 2), 10.0 * number), "rank": own_rank(), "started": started})


def double(end: Any, number: int) -> None:
    end.send([2 * end.recv(), number, own_rank()])


def why_not(in_thread: bool, workers: int, shuffle: bool) -> str:
    """Why a thread, or a process, may not go through a loader: shuffling draws from the main thread's streams."""
    starter = threading.Thread if in_thread else multiprocessing.Process
    try:
        hold_on_rank0(starter, target=list, args=(DataLoader([1, 2], num_workers=workers, shuffle=shuffle),))
    except RuntimeError as error:
        return str(error)
    return ""


class Settled(threading.Thread):
    """Has an argument of its own that is called as Thread's is."""

    def __init__(self, args: Any) -> None:
        super().__init__()
        self.size = args.size


def find(rank: int, world: int) -> dict[str, Any]:
    """What one rank finds."""
    found: dict[str, Any] = {}
    batches = hold_on_rank0(queue.Queue, 2)
    thread = hold_on_rank0(threading.Thread, target=fill, args=(batches, [own_rank()]))
    thread.start()
    got = [batches.get() for _ in range(3)]
    thread.join()
    found["batches"] = [[int(each["x"].sum()), each["rank"], each["started"]] for each in got]
    found["stands"] = [type(each) is HeldByRank0 for each in (batches, thread)]
    try:
        batches.get_nowait()
    except queue.Empty:
        found["empty"] = True
    found["loading"] = [
        why_not(*each) for each in ((True, 0, True), (True, 0, False), (True, 1, True), (False, 0, True))
    ]
    found["settled"] = hold_on_rank0(Settled, args=SimpleNamespace(size=5)).size
    random.seed(own_rank())  # ranks stand apart: what rank 0's object draws brings them together again
    numbers = hold_on_rank0(Numbers, own_rank() + 5)
    found["drawn"] = [numbers.draw(), random.random(), numbers.asked]
    with hold_on_rank0(ThreadPoolExecutor, 2) as pool:
        results = [pool.submit(pow, 2, power) for power in range(3)]
        found["futures"] = [each.result() for each in results]
        found["mapped"] = list(pool.map(abs, (-1, -2)))
    ends, others = zip(*[hold_on_rank0(multiprocessing.Pipe) for _ in range(2)], strict=True)
    pairs = zip(others, range(2), strict=True)
    doubles = [hold_on_rank0(multiprocessing.Process, target=double, args=pair) for pair in pairs]
    for process, end in zip(doubles, ends, strict=True):
        process.start()
        end.send(own_rank() + 5)
    found["piped"] = [each.recv() for each in ends]
    table = hold_on_rank0(multiprocessing.Manager).dict()
    table["x"], table["y"] = own_rank() + 5, [own_rank()]
    del table["y"]
    found["managed"] = [table["x"], "y" in table, len(table), table.keys()]
    return found


if __name__ == "__main__":
    find_on_ranks(find, Path(sys.argv[1]), sys.argv[2])
