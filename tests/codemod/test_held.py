"""Threads, queues and pools that rank 0 has, on two ranks (one run for all tests)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from dp2ddp.codemod.conversion import Conversion
from dp2ddp.runtime.process.server import Server
from tests.codemod.programs import WRAP, converted, said
from tests.ranks import found_on_ranks

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, server: Server) -> list[dict[str, Any]]:
    """What each rank found."""
    return found_on_ranks(server, HERE / "held_program.py", tmp_path_factory.mktemp("ranks"), "2")[2]


@pytest.mark.torchrun
def test_all_ranks_get_what_rank_0s_thread_hands_over(found: list[dict[str, Any]]) -> None:
    for each in found:
        assert each["batches"] == [[0, 0, [0]], [40, 0, [0]], [80, 0, [0]]]
        assert each["stands"] == [True, True]
        assert each["empty"]


@pytest.mark.torchrun
def test_the_scripts_random_numbers_go_on_as_rank_0s_do(found: list[dict[str, Any]]) -> None:
    alone = random.Random(0)
    expected = [alone.random(), alone.random(), 6]
    assert [each["drawn"] for each in found] == [expected, expected]
    assert [each["settled"] for each in found] == [5, 5]
    for each in found:
        assert [why.startswith("a thread would draw random numbers") for why in each["loading"]] == [
            True,
            False,
            False,
            False,
        ]


@pytest.mark.torchrun
def test_what_cannot_be_copied_stays_on_rank_0(found: list[dict[str, Any]]) -> None:
    assert [each["futures"] for each in found] == [[1, 2, 4]] * 2
    assert [each["mapped"] for each in found] == [[1, 2]] * 2


@pytest.mark.torchrun
def test_all_ranks_hear_what_rank_0s_processes_say_through_pipes(found: list[dict[str, Any]]) -> None:
    assert [each["piped"] for each in found] == [[[10, 0, 0], [10, 1, 0]]] * 2


@pytest.mark.torchrun
def test_what_a_manager_has_is_asked_on_rank_0(found: list[dict[str, Any]]) -> None:
    """Its proxies can be sent, and no other rank can open them."""
    assert [each["managed"] for each in found] == [[5, False, 1, ["x"]]] * 2


THREAD = """
import queue, threading
batches = queue.Queue(8)
def fill(batches):
    for number in range(3):
        batches.put(number)
threading.Thread(target=fill, args=(batches,)).start()
"""


def test_threads_and_what_they_meet_at_are_rank_0s() -> None:
    after = converted(WRAP + THREAD).after
    assert "batches = hold_on_rank0(queue.Queue, 8)\n" in after
    assert "\nhold_on_rank0(threading.Thread, target=fill, args=(batches,)).start()\n" in after
    assert "hold_on_rank0" not in converted(f"{WRAP}import queue\nwaiting = queue.Queue()\n").after


FED = """
import queue, random, threading
def take(rows, place):
    rows.sort()
    return rows[place]
def feed(rows, batches):
    for place in range(3):
        batches.put(take(rows, place))
def make():
    return [3, 1, 2]
batches = queue.Queue()
threading.Thread(target=feed, args=(make(), batches)).start()
"""


def test_a_thread_may_change_what_was_made_for_it_alone() -> None:
    assert said(converted(WRAP + FED)) == []
    shared = FED.replace("batches = queue", "own = make()\nbatches = queue").replace("(make(), ", "(own, ")
    assert "changes `rows`" in converted(WRAP + shared).hazards[0].because


def test_what_threads_meet_at_is_rank_0s_where_it_is_handed_on() -> None:
    after = converted(f"{WRAP}{THREAD}kinds = {{'plain': queue.Queue}}\n").after
    assert "{'plain': (lambda *args, **kwargs: hold_on_rank0(queue.Queue, *args, **kwargs))}" in after


def test_a_thread_without_an_object_is_rank_0s() -> None:
    start = "_thread.start_new_thread(fill, (batches,))"
    text = THREAD.replace("threading.Thread(target=fill, args=(batches,)).start()", start)
    after = converted(f"{WRAP}import _thread\n{text}").after
    assert "hold_on_rank0(_thread.start_new_thread, fill, (batches,))" in after
    fills = text.replace("batches.put(number)", "found.append(number)")
    (hazard,) = converted(f"{WRAP}import _thread\nfound = []\n{fills}").hazards
    assert "changes `found`" in hazard.because


@pytest.mark.parametrize(
    ("inside", "why"),
    [
        ("found.append(number)", "changes `found`"),
        ("table[number] = 1", "changes `table[number]`"),
        ("global count", "changes `count`"),
        ("net(number)", "runs the wrapped model"),
        ("random.random()", "draws from random"),
    ],
)
def test_what_a_thread_does_by_another_way_is_a_hazard(inside: str, why: str) -> None:
    text = f"import random\nfound, table = [], {{}}\nrandom.shuffle(found)\n{WRAP}{THREAD}"
    found = converted(text.replace("batches.put(number)", inside))
    assert [each.code for each in found.hazards] == ["DDP906"]
    assert why in found.hazards[0].because


@pytest.mark.parametrize("call", ["add(1, given)", "add(rows=given, number=1)", "Box(given)"])
def test_what_a_thread_hands_to_a_function_that_changes_it_is_a_hazard(call: str) -> None:
    text = f"""
import threading
def add(number, rows):
    rows.append(number)
class Box:
    def __init__(self, rows):
        rows.append(1)
def work(given):
    {call}
found = []
threading.Thread(target=work, args=(found,)).start()
"""
    assert [each.code for each in converted(WRAP + text).hazards] == ["DDP906"]


@pytest.mark.parametrize(("parameters", "given"), [("number", "number,"), ("found, number", "found, number")])
def test_threads_that_fill_an_array_are_a_hazard(parameters: str, given: str) -> None:
    text = f"""
import threading
def evaluate(rows):
    found = [None] * 4
    def work({parameters}):
        found[number] = max(rows) + number
    threads = [threading.Thread(target=work, args=({given})) for number in range(4)]
    return found
evaluate([1])
"""
    assert [each.code for each in converted(WRAP + text).hazards] == ["DDP906"]


@pytest.mark.parametrize("name", ["push", "put"])
def test_a_thread_that_changes_an_object_by_its_own_method_is_a_hazard(name: str) -> None:
    text = f"""
import queue, threading
class Memory:
    def __init__(self):
        self.rows = []
    def {name}(self, row):
        self.rows.append(row)
memory, hands = MADE, queue.Queue()
def work():
    memory.{name}(1)
threading.Thread(target=work).start()
"""
    assert [each.code for each in converted(WRAP + text.replace("MADE", "Memory()")).hazards] == ["DDP906"]
    assert not converted(WRAP + text.replace("MADE", "queue.Queue()").replace("push(1)", "put(1)")).hazards


def test_pipes_of_processes_are_rank_0s() -> None:
    """Each rank made its own, and rank 1 waited for an answer that only rank 0's process gives."""
    text = "import multiprocessing as mp\nend, other = mp.Pipe()\nmp.Process(target=print, args=(other,)).start()\n"
    assert "end, other = hold_on_rank0(mp.Pipe)\n" in converted(WRAP + text).after


def test_processes_have_a_memory_and_random_numbers_of_their_own() -> None:
    text = THREAD.replace(
        "import queue, threading", "import queue, random\nfrom multiprocessing import Process"
    )
    text = text.replace("threading.Thread", "Process").replace(
        "batches.put(number)", "found.append(random.random())"
    )
    found = converted(f"found = []\n{WRAP}{text}")
    assert said(found) == []
    assert "hold_on_rank0(Process, target=fill" in found.after


def test_a_class_that_is_a_thread_is_found_in_another_file() -> None:
    readers = (
        "import threading\nclass Base(threading.Thread):\n    pass\n"
        "class Reader(Base):\n    def run(self):\n        self.batch = 1\n"
    )
    text = f"import readers\n{WRAP}reader = readers.Reader()\nreader.start()\nprint(reader.batch)\n"
    assert "reader = hold_on_rank0(readers.Reader)\n" in converted(text, {"readers": readers}).after


def test_what_a_pool_of_threads_runs_may_change_nothing_of_the_main_flow() -> None:
    text = """
    from concurrent.futures import ThreadPoolExecutor
    import torch
    net = torch.nn.DataParallel(net)
    seen = []
    def load(path):
        seen.append(path)
    pool = ThreadPoolExecutor(2)
    pool.submit(load, "a")
    """
    found = converted(text)
    assert said(found) == ["hazard DDP906:9"]
    assert said(converted(text.replace("seen.append(path)", "return path"))) == []


CHANGES_ITS_ARGUMENT = {
    "an item": ("load", "row['x'] *= 2"),
    "a part of it": ("load", "x, y = row\n    x[0] = y"),
    "each of it": ("load", "for x in row:\n        x.append(1)"),
    "by a function": ("load", "other(row)"),
    "a lambda": ("lambda row: row.fill_(1)", "pass"),
    "a partial": ("partial(load, 1)", "row.y = 1"),
    "a method of a library": ("rows.sort", "pass"),
    "a method of the program": ("rows[0].double", "pass"),
}


@pytest.mark.parametrize(("given", "does"), CHANGES_ITS_ARGUMENT.values(), ids=CHANGES_ITS_ARGUMENT)
def test_what_a_pool_changes_of_what_it_is_given_is_a_hazard_for_threads_alone(given: str, does: str) -> None:
    text = f"""
from concurrent.futures import ThreadPoolExecutor as Pool
from functools import partial
import torch
net = torch.nn.DataParallel(net)
class Item:
    def double(self):
        self.x *= 2
def other(row):
    row.append(1)
def load(row, *more):
    {does}
with Pool(2) as pool:
    found = list(pool.map({given}, rows))
"""
    line = len(text.splitlines())
    assert said(converted(text)) == [f"hazard DDP906:{line}"]
    assert "row" not in does or said(converted(text.replace("ThreadPool", "ProcessPool"))) == []


def test_a_pool_may_change_copies() -> None:
    lines = ("row = row.copy()", "row[0] = 1", "out = {}", "out['x'] = row", "return out")
    body = "".join(f"    {line}\n" for line in lines)
    start = "from multiprocessing.pool import ThreadPool\n"
    assert (
        said(converted(f"{start}{WRAP}def load(row):\n{body}found = ThreadPool(2).map(load, rows)\n")) == []
    )


@pytest.mark.parametrize("line", ["os._exit(0)", "os.fork()", "torch.multiprocessing.spawn(work, nprocs=2)"])
def test_what_makes_the_ranks_differ_is_a_hazard(line: str) -> None:
    assert said(converted(f"import os\n{WRAP}def work(rank):\n    pass\n{line}\n")) == ["hazard DDP906:6"]


COUNTED = """
import mmap
import multiprocessing as mp
from multiprocessing.shared_memory import SharedMemory
from torch.utils.data import DataLoader, Dataset
class Counted(Dataset):
    def __getitem__(self, index):
        seen.put(index)
        return index
seen = MAKE
for batch in DataLoader(Counted(), num_workers=2):
    net(batch)
"""


def counted(make: str, workers: str = "2") -> Conversion:
    return converted(WRAP + COUNTED.replace("MAKE", make).replace("num_workers=2", f"num_workers={workers}"))


@pytest.mark.parametrize(
    "make", ['mp.Value("i", 8)', "torch.multiprocessing.Queue()", "mp.SimpleQueue()", "mp.Event()"]
)
def test_what_workers_of_loaders_meet_at_is_asked_on_rank_0(make: str) -> None:
    found = counted(make)
    assert not found.hazards
    assert "seen = hold_on_rank0(" in found.after
    assert "Value" in make or "seen = hold_on_rank0(" not in counted(make, workers="0").after


@pytest.mark.parametrize(
    "make",
    [
        'mp.Array("i", 8)',
        'mp.get_context("fork").Array("i", 8)',
        'mp.RawValue("i", 8)',
        "torch.zeros(8).share_memory_()",
        "SharedMemory(create=True, size=64)",
        "torch.from_file('seen', shared=True, size=8)",
        "mmap.mmap(-1, 32)",
    ],
)
def test_other_memory_that_workers_may_fill_is_a_hazard(make: str) -> None:
    assert [each.code for each in counted(make).hazards] == ["DDP906"]
    assert not counted(make, workers="0").hazards


def test_a_file_that_is_only_read_by_its_memory_stays() -> None:
    assert not counted("mmap.mmap(4, 0, access=mmap.ACCESS_READ)").hazards


PREFETCHED = """
import torch
from torch.utils.data import DataLoader, Dataset
from prefetch_generator import BackgroundGenerator
class DataLoaderX(DataLoader):
    def __iter__(self):
        return BackgroundGenerator(super().__iter__())
class Noisy(Dataset):
    def __getitem__(self, i):
        return DRAWN
loader = DataLoaderX(Noisy(), batch_size=2WORKERS)
"""


@pytest.mark.parametrize(
    ("drawn", "workers", "hazards"),
    [
        ("torch.randn(2)", ", num_workers=2", []),
        ("torch.randn(2)", "", ["DDP906"]),
        ("i", "", ["DDP906"]),
        ("random.random()", ", num_workers=0", ["DDP906"]),
        ("i", ", shuffle=True, num_workers=workers", []),
    ],
)
def test_a_thread_that_loads_may_not_draw_from_the_streams_of_the_main_flow(
    drawn: str, workers: str, hazards: list[str]
) -> None:
    text = PREFETCHED.replace("DRAWN", drawn).replace("WORKERS", workers)
    found = converted(f"{WRAP}import random\n{text}")
    assert [each.code for each in found.hazards] == hazards
    assert hazards or "hold_on_rank0(BackgroundGenerator, super().__iter__())" in found.after
