"""What only one rank can read: threads that may run on rank 0 alone, samples that differ from process to process."""

from __future__ import annotations

import pytest

from tests.codemod.scripts import converted, facts_of

HEAD = """
import queue, threading, random
import numpy as np
import torch
from multiprocessing import Pool
from torch.utils.data import DataLoader, Dataset
net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
items = queue.Queue(2)
found = []
"""
THREAD = "threading.Thread(target=fill, args=(items, make())).start()\n"


def why_not(text: str) -> list[str]:
    return [why for _, why in facts_of(HEAD + text).feeds.stoppers]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("items.put(torch.ones(4, 2))", id="a queue"),
        pytest.param("x = []\n    x.append(1)\n    items.put(x)", id="its own list"),
        pytest.param(
            "random.Random(0).shuffle(data)\n    items.put(data[0])", id="what it was given for good"
        ),
        pytest.param(
            "items.put(helper(data))\ndef helper(data):\n    data[0] = 1\n    return data", id="helper"
        ),
    ],
)
def test_a_thread_that_hands_over_by_a_queue_is_left_to_rank_0(body: str) -> None:
    facts = facts_of(HEAD + f"def fill(items, data):\n    {body}\n" + THREAD)
    assert facts.feeds.stoppers == ()
    assert [call.name for call in facts.feeds.makers] == ["threading.Thread", "queue.Queue"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def fill(items, data):\n    found.append(1)\n" + THREAD, "changes `found`"),
        ("def fill(items, data):\n    global found\n    found = 1\n" + THREAD, "changes `found`"),
        (
            "def fill(items, data):\n    helper()\ndef helper():\n    found[0] = 1\n" + THREAD,
            "changes `found[0]`",
        ),
        ("def fill(items, data):\n    items.put(net(data))\n" + THREAD, "runs the wrapped model"),
        (
            "x = [1]\nprint(x)\ndef fill(x):\n    x.append(2)\nthreading.Thread(target=fill, args=(x,)).start()\n",
            "changes `x`",
        ),
        (
            "def fill(items, data):\n    items.put(np.random.rand())\n"
            + THREAD
            + "np.random.shuffle(found)\n",
            "draws from numpy.random",
        ),
        ("threading.Thread(target=found.sort).start()\n", "runs what cannot be followed"),
        (
            "class Reader:\n    def go(self):\n        threading.Thread(target=self.fill).start()\n"
            "    def fill(self):\n        self.batch = 1\nReader().go()\n",
            "changes `self.batch`",
        ),
        (
            "class Rows(Dataset):\n    def __getitem__(self, i):\n        threading.Thread(target=print).start()\n",
            "is started in a data set",
        ),
    ],
)
def test_a_thread_that_does_more_is_none_for_rank_0_alone(text: str, why: str) -> None:
    (said,) = why_not(text)
    assert why in said
    assert any(one.code == "DDP906" for one in converted(HEAD + text).hazards)


def test_a_queue_that_a_function_hands_on_to_its_process_is_still_one() -> None:
    start = (
        "from multiprocessing import Process, Queue\n"
        "def fill(name, queue):\n    while True:\n        queue.put(load(name))\n"
        "def start(names, queue):\n"
        "    for name in names:\n        Process(target=fill, args=(name, queue)).start()\n"
        "batches = Queue(2)\npinned = queue.Queue()\nstart(files, batches)\nnet(batches.get())\n"
    )
    assert why_not(start) == []
    assert "changes `queue`" in str(
        why_not(start.replace("queue.put(load(name))", "queue.put(places, values)"))
    )


def test_a_process_draws_from_streams_of_its_own() -> None:
    text = "def fill(items, data):\n    items.put(np.random.rand())\n" + THREAD + "np.random.shuffle(found)\n"
    assert why_not(text.replace("threading.Thread", "torch.multiprocessing.Process")) == []


def test_a_class_that_is_a_thread_is_asked_on_rank_0() -> None:
    text = "class Reader(threading.Thread):\n    def run(self):\n        self.batch = 1\nreader = Reader()\n"
    assert "reader = feed(Reader)()" in converted(HEAD + text).after


LIVE = """
class Rows(Dataset):
    def __getitem__(self, i):
        return np.random.default_rng().integers(8)
"""


def test_samples_that_differ_by_process_are_read_by_rank_0() -> None:
    conversion = converted(
        HEAD + LIVE + "rows = Rows()\nloader = DataLoader(rows, 4)\nnet(next(iter(loader)))"
    )
    assert conversion.hazards == ()
    assert "loader = Rank0Loader(rows, 4)" in conversion.after
    assert conversion.strategy
    assert conversion.strategy.data.value == "once"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x = Rows()[0]", id="no loader"),
        pytest.param("rows = Rows()\nloader = DataLoader(rows, 4)\nx = rows[0]", id="also read directly"),
    ],
)
def test_samples_that_are_read_otherwise_too_stay_a_hazard(text: str) -> None:
    assert [one.code for one in converted(HEAD + LIVE + text).hazards] == ["DDP302"]


def test_a_pool_that_cannot_run_is_no_source() -> None:
    loads = "from multiprocessing import Pool\nclass Tool:\n    def __init__(self):\n        self.pool = Pool(2)\n"
    unused = facts_of(HEAD + "import tools\n", tools=loads)
    used = facts_of(HEAD + "import tools\ntools.Tool()\n", tools=loads)
    assert [len(facts.others[0].feeds.makers) > 0 for facts in (unused, used)] == [False, True]


SAVER = "def save(path, image):\n    np.save(path, image)\n"


@pytest.mark.parametrize(
    "text",
    [
        SAVER + "p = multiprocessing.Process(target=save, args=('a', 1))\np.start()\n",
        SAVER + "def more(path):\n    save(path, 1)\nthreading.Thread(target=more, args=('a',)).start()\n",
        "def begin():\n    def save(q):\n        np.save('a', q.get())\n"
        "    return [multiprocessing.Process(target=save, args=(items,)) for _ in range(2)]\nbegin()\n",
    ],
)
def test_what_a_process_of_rank_0_writes_is_written_once(text: str) -> None:
    conversion = converted("import multiprocessing\n" + HEAD + text)

    assert conversion.hazards == ()
    assert "np.save(path" in conversion.after or "np.save('a'" in conversion.after


@pytest.mark.parametrize(
    "text",
    [
        SAVER + "threading.Thread(target=save, args=('a', 1)).start()\nsave('b', 2)\n",
        SAVER
        + "def more():\n    save('b', 1)\nthreading.Thread(target=save, args=('a', 1)).start()\nmore()\n",
        SAVER + "handler = save\nthreading.Thread(target=save, args=('a', 1)).start()\n",
        SAVER
        + "def s(path):\n    found.append(path)\n    save(path, 1)\nthreading.Thread(target=s, args=('a',)).start()\n",
    ],
)
def test_what_the_main_flow_or_every_rank_runs_as_well_is_a_hazard(text: str) -> None:
    assert {"DDP503", "DDP906"} & {one.code for one in converted(HEAD + text).hazards}


RANKER = """
from multiprocessing import Pool
class Ranker:
    def ranked(self, one):
        return one
    def ranked_together(self, many):
        with Pool(2) as pool:
            return pool.map(self.ranked, many)
DEFAULT = Ranker
"""
TRAINS = """
import torch
import rankers
from torch.utils.data import DataLoader
net = torch.nn.DataParallel(torch.nn.Linear(2, 2))
ranker = rankers.DEFAULT()
for x in DataLoader(rows, 4):
    net(x)
"""


@pytest.mark.parametrize(
    ("behind", "ranker", "is_called"),
    [
        pytest.param("", RANKER, False, id="by nobody"),
        pytest.param("ranker.ranked([1])", RANKER, False, id="another method"),
        pytest.param("print(vars(args))", RANKER, False, id="attributes of an object are no methods"),
        pytest.param("print(getattr(args, 'rank'))", RANKER, False, id="an attribute by a name that is told"),
        pytest.param("ranker.ranked_together([1])", RANKER, True, id="by the script"),
        pytest.param("getattr(ranker, 'ranked_together')([1])", RANKER, True, id="by a text"),
        pytest.param("getattr(ranker, args.method)([1])", RANKER, True, id="by some text"),
        pytest.param("vars(rankers.Ranker)", RANKER, True, id="a class may be asked for any"),
        pytest.param(
            "", RANKER.replace("return one", "return self.ranked_together([one])"), True, id="by another"
        ),
        pytest.param("", RANKER.replace("Ranker:", "Ranker(Base):"), True, id="by a library perhaps"),
        pytest.param(
            "", RANKER.replace("    def ranked_t", "    @hook\n    def ranked_t"), True, id="decorated"
        ),
        pytest.param("", RANKER.replace("ranked_together", "__len__"), True, id="by Python"),
    ],
)
def test_a_pool_in_a_method_that_nobody_calls_feeds_nobody(behind: str, ranker: str, is_called: bool) -> None:
    facts = facts_of(TRAINS + behind, rankers=ranker)
    assert (facts.feed_reason is not None) is is_called
