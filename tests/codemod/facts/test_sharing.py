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
        ("seen.append(i)", "print(seen)", "seen"),
        ("global seen\n        seen = i", "print(seen)", "seen"),
    ],
)
def test_what_loading_changes_and_the_script_reads_keeps_all_ranks_loading(
    line: str, behind: str, name: str
) -> None:
    assert f"loading changes `{name}`" in (stopper(line, behind) or "")


def test_a_number_that_loading_puts_into_an_attribute_is_told_to_all_ranks() -> None:
    assert stopper("self.taken += 1", "print(rows.taken)") is None  # templates/left_behind.py


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
