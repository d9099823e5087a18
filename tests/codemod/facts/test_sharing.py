"""Which loaders rank 0 may iterate for all ranks, and what stands against it."""

from __future__ import annotations

import pytest

from tests.codemod.scripts import converted, facts_of

TEXT = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
import numpy as np
seen = []
def moved(row):
    found = np.add(row, 1).astype("float32")
    return found
def jittered(row):
    row += 1
    return row
class Rows(Dataset):
    def __init__(self, rows):
        self.rows, self.taken, self.order, self.table = rows, 0, [], {}
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        pass
        return torch.randn(3)
net = torch.nn.DataParallel(Net())
rows = Rows([1, 2])
loader = DataLoader(rows, batch_size=8, num_workers=2)
for x in loader:
    net(x)
"""


def stopper(line: str, behind: str = "") -> str | None:
    return facts_of(TEXT.replace("pass", line) + behind).share_stopper


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("pass", id="draws"),
        pytest.param("print(i)", id="prints: one process does, as it always did"),
        pytest.param("self.table[i] = 1", id="a cache"),
        pytest.param("row = self.rows[i].copy()\n        row[0] = 1", id="a copy"),
        pytest.param(
            "row = self.rows[i]\n        row = row.astype(int)\n        row[0] = 1", id="another by its name"
        ),
        pytest.param(
            "row = self.rows[i]\n        row = moved(row)\n        np.random.shuffle(row)", id="moved"
        ),
        pytest.param(
            "order = list(range(9))\n        np.random.shuffle(order)\n        row = self.rows[order[0]]",
            id="a list",
        ),
        pytest.param("pairs = [(one, i) for one in self.rows]\n        pairs.reverse()", id="a list of rows"),
        pytest.param(
            "found = []\n        for k in range(3):\n            found.append(self.rows[k].copy())\n"
            "            found[-1][0] = k",
            id="a list of copies, filled in a loop",
        ),
        pytest.param(
            "picked = np.random.choice(9, 4)\n        row = self.rows[i][picked, :]\n        row[:, 0] = 1",
            id="picked rows are no view",
        ),
        pytest.param(
            "if i:\n            picked = np.random.choice(9, size=4)\n        else:\n"
            "            picked = np.random.permutation(4)\n        row = self.rows[picked]\n        row -= 1",
            id="picked in either way",
        ),
    ],
)
def test_whatever_samples_do_rank_0_does_it(line: str) -> None:
    assert stopper(line) is None


@pytest.mark.parametrize(
    ("line", "behind", "name"),
    [
        ("self.order.append(i)", "print(rows.order)", "self.order"),
        ("self.table[i] = 1", "print(sum(rows.table.values()))", "self.table"),
        ("self.rows[i] += 1", "print(max(rows.rows))", "self.rows"),
        (
            "row = self.rows[i].copy()\n        row = self.rows[i]\n        row[0] = 1",
            "print(rows.rows)",
            "self.rows",
        ),
        (
            "row = self.rows[i]\n        if i:\n            row = row.astype(int)\n        row[0] = 1",
            "print(rows.rows)",
            "self.rows",
        ),
        (
            "row = self.rows[i]\n        row = jittered(row)\n        np.random.shuffle(row)",
            "print(rows.rows)",
            "self.rows",
        ),
        (
            "row = self.rows[i]\n        row = row.astype(int)\n        for row in self.rows:\n            row[0] = 1",
            "print(rows.rows)",
            "self.rows",
        ),
        (
            "row = self.rows[i]\n        for _ in range(2):\n            row[0] = 1\n            row = row.copy()",
            "print(rows.rows)",
            "self.rows",
        ),
        (
            "found = []\n        found.append(self.rows[i])\n        found[-1][0] = 1",
            "print(rows.rows)",
            "self.rows",
        ),
        (
            "found = {}\n        found[0] = self.rows[i]\n        found[0][0] = 1",
            "print(rows.rows)",
            "self.rows",
        ),
        ("found = [self.rows[i]]\n        found[0] += 1", "print(rows.rows)", "self.rows"),
        (
            "found = []\n        found += [self.rows[i]]\n        for row in found:\n            row.sort()",
            "print(rows.rows)",
            "self.rows",
        ),
        (
            "row = self.rows[i]\n        for _ in range(2):\n            row[0] = 1\n            row = moved(row)",
            "print(rows.rows)",
            "self.rows",
        ),
        (
            "picked = np.random.choice(9)\n        row = self.rows[picked]\n        row[0] = 1",
            "print(rows.rows)",
            "self.rows",
        ),
        (
            "picked = np.random.choice(9, None)\n        row = self.rows[picked]\n        row[0] = 1",
            "print(rows.rows)",
            "self.rows",
        ),
        (
            "picked = i\n        if i:\n            picked = np.arange(3)\n        row = self.rows[picked]\n"
            "        row[0] = 1",
            "print(rows.rows)",
            "self.rows",
        ),
        ("seen.append(i)", "print(seen)", "seen"),
        ("global seen\n        seen = i", "print(seen)", "seen"),
    ],
)
def test_what_loading_changes_and_the_script_reads_keeps_all_ranks_loading(
    line: str, behind: str, name: str
) -> None:
    assert f"loading changes `{name}`" in (stopper(line, behind) or "")


HANDED = TEXT.replace("Rows([1, 2])", "Rows(numbers)").replace(
    "net = torch", "numbers = [[1], [2]]\nnet = torch"
)


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        pytest.param(HANDED, False, id="by nobody else"),
        pytest.param(HANDED + "print(len(numbers))", False, id="its length stays"),
        pytest.param(
            HANDED.replace("rows = Rows", "other = Rows(numbers)\nrows = Rows"), True, id="handed in twice"
        ),
        pytest.param(HANDED + "weights = numbers[0]", True, id="by the name that was handed in"),
        pytest.param(
            HANDED.replace("numbers = [[1]", "numbers = kept = [[1]"), True, id="by one of two names"
        ),
        pytest.param(
            HANDED.replace("numbers = [[1], [2]]", "numbers = table[0]"), True, id="part of another"
        ),
        pytest.param(
            HANDED.replace("Rows(numbers)", "Rows(table[0])"), True, id="part of another, handed in"
        ),
        pytest.param(HANDED.replace("Rows(numbers)", "Rows(*numbers)"), True, id="handed in, somehow"),
        pytest.param(
            HANDED.replace("Rows(numbers)", "Rows(rows=numbers)"), False, id="handed in by its name"
        ),
        pytest.param(
            HANDED.replace("rows, 0, [], {}", "rows, 0, rows, {}") + "print(rows.order)",
            True,
            id="kept twice",
        ),
        pytest.param(HANDED.replace("= rows, 0", "= sorted(rows), 0") + "print(numbers)", False, id="a copy"),
    ],
)
def test_what_was_handed_to_a_data_set_has_other_names(text: str, is_read: bool) -> None:
    line = "x = self.rows[i]\n        self.rows[i] = [0]"  # seen by the next sample, too
    found = facts_of(text.replace("pass", line)).share_stopper
    assert ("loading changes `self.rows`" in (found or "")) is is_read


TRAINER = """
class Trainer:
    def __init__(self, rows):
        self.order = ["a", "b"]
    def run(self):
        print(self.order)
Trainer(rows).run()
"""


@pytest.mark.parametrize(
    ("behind", "is_read"),
    [
        pytest.param(TRAINER, False, id="an attribute of another class"),
        pytest.param(
            TRAINER.replace("print(self.order)", "print(self.rows.order)"), True, id="of its object"
        ),
        pytest.param(TRAINER + "class Both(Rows, Trainer):\n    pass\n", True, id="an object may be of both"),
        pytest.param(TRAINER + "class Some(TABLE['x']):\n    pass\n", True, id="a base that is not told"),
        pytest.param(TRAINER + "Some = type('Some', (Rows, Trainer), {})\n", True, id="a class made by hand"),
        pytest.param(
            "class Longer(Rows):\n    def told(self):\n        print(self.order)\n", True, id="an heir"
        ),
        pytest.param("import torch.order\nprint(torch.order.x)", False, id="a module of torch"),
        pytest.param("def f(x):\n    x = torch.cat([x])\n    return x.order\n", False, id="a tensor"),
        pytest.param("def f(x):\n    return x.order\n", True, id="whatever it is"),
        pytest.param(
            "def f(x):\n    if x:\n        x = torch.cat([x])\n    return x.order\n",
            True,
            id="a tensor perhaps",
        ),
        pytest.param(
            "def f():\n    x = torch.load('rows')\n    return x.order\n", True, id="what a file holds"
        ),
    ],
)
def test_who_else_has_an_attribute_of_this_name(behind: str, is_read: bool) -> None:
    found = stopper("self.order.append(i)", behind)
    assert ("loading changes `self.order`" in (found or "")) is is_read


@pytest.mark.parametrize(
    ("line", "is_changed"),
    [
        ("turn = rows.rotate\n        x = -turn * 2", False),
        ("x = rows.rotate * 2", False),
        ("x = 1 if rows.rotate else 2", False),
        ("turn = rows.rotate\n        turn(1)", True),
        ("turn = rows.rotate\n        list(map(turn, [1]))", True),
        ("list(map(rows.rotate, [1]))", True),
    ],
)
def test_a_number_may_have_the_name_of_a_method(line: str, is_changed: bool) -> None:
    found = stopper(line.replace("rows.", "self.rows."), "print(rows.rows)")
    assert ("loading changes `self.rows`" in (found or "")) is is_changed


SETS = """
from torch.utils.data import Dataset
import multiprocessing
class Unused(Dataset):
    def __getitem__(self, i):
        self.order.append(i)
def fill():
    return multiprocessing.Queue()
class Used(Dataset):
    def __getitem__(self, i):
        return torch.randn(3)
"""


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("Used", None),
        ("Used, Unused", "loading changes `self.order`"),
        ("Used, fill", "workers may share what multiprocessing.Queue() makes"),
    ],
)
def test_what_is_never_reached_changes_nothing(names: str, why: str | None) -> None:
    text = f"from sets import {names}\n" + TEXT.replace("Rows([1, 2])", "Used()")
    mentions = "".join(f"print({name})\n" for name in names.split(", "))
    found = facts_of(f"{text}{mentions}print(rows.order)\n", sets=SETS).share_stopper
    assert (found or "").startswith(why) if why else found is None


def test_a_number_that_loading_puts_into_an_attribute_is_told_to_all_ranks() -> None:
    assert stopper("self.taken += 1", "print(rows.taken)") is None  # templates/loader_state.py


def test_workers_that_share_memory_with_the_script_are_every_ranks_own() -> None:
    text = TEXT.replace("net =", "count = torch.zeros(9).share_memory_()\nnet =")
    assert "share" in (facts_of(text).share_stopper or "")


def test_the_wrapped_model_runs_on_all_ranks() -> None:
    assert "runs the wrapped model" in (stopper("return net(self.rows[i])") or "")


def test_a_script_without_a_loader_makes_its_batches_on_every_rank() -> None:
    strategy = converted("import torch\nnet = torch.nn.DataParallel(Net())\nnet(torch.ones(4, 2))").strategy
    assert strategy
    assert strategy.data.value == "replicate"
    assert "no DataLoader is made" in strategy.data.because


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("DataLoader(rows, batch_size=8)", "share(DataLoader, rows, batch_size=8)"),
        ("DataLoader(Stream(), 8, num_workers=2)", "share(DataLoader, Stream(), 8, num_workers=2)"),
        ("Own(rows, batch_size=8)", "share(Own, rows, batch_size=8)"),
    ],
)
def test_loaders_of_every_kind_are_shared(line: str, wanted: str) -> None:
    head = "class Stream(IterableDataset):\n    pass\nclass Own(DataLoader):\n    pass\n"
    text = TEXT.replace("net =", f"{head}net =").replace(
        "DataLoader(rows, batch_size=8, num_workers=2)", line
    )
    assert wanted in converted(text).after


def test_a_loader_that_a_worker_makes_is_the_workers_own() -> None:
    text = TEXT.replace("pass", "inner = DataLoader(self.rows, 2)")
    assert "inner = DataLoader(self.rows, 2)" in converted(text).after
    assert "loader = share(DataLoader, rows" in converted(text).after


def test_loaders_beside_a_thread_are_shared_too() -> None:
    text = "import queue, threading\n" + TEXT.replace(
        "net =",
        "def fill(q):\n    q.put(1)\nq = queue.Queue()\nthreading.Thread(target=fill, args=(q,)).start()\nnet =",
    )
    conversion = converted(text + "q.get()\n")
    assert conversion.strategy
    assert conversion.strategy.data.value == "feed"
    assert "loader = share(DataLoader, rows" in conversion.after
    assert "feed(queue.Queue)()" in conversion.after


@pytest.mark.parametrize("data", ["replicate", "share"])
def test_how_batches_are_made_can_be_asked_for(data: str) -> None:
    text = TEXT.replace("torch.randn(3)", "self.rows[i]")
    assert ("share(DataLoader" in converted(text, data=data).after) is (data == "share")
