"""When the workers of loaders may be shared out among the ranks."""

from __future__ import annotations

import pytest

from dp2ddp.codemod.facts.loaders import LOADER
from dp2ddp.codemod.facts.workers import DataSetKind, data_set_kind
from tests.codemod.scripts import facts_of

TEXT = """
import logging, sys
import torch
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    def __getitem__(self, i):
        pass
        return torch.randn(3)
net = torch.nn.DataParallel(Net())
loader = DataLoader(Rows(), batch_size=8, num_workers=2)
for x in loader:
    net(x)
"""


def test_workers_that_only_load_are_shared_out() -> None:
    assert facts_of(TEXT).spread_stopper is None


@pytest.mark.parametrize(
    "line", ["print(i)", "sys.stdout.write('a')", "logging.info('a')", "self.logger.warning('a')"]
)
def test_what_a_worker_says_would_not_be_heard(line: str) -> None:
    assert "a worker prints" in (facts_of(TEXT.replace("pass", line)).spread_stopper or "")


def test_workers_that_share_memory_stay_together() -> None:
    text = TEXT.replace("net =", "count = torch.zeros(9).share_memory_()\nnet =")
    assert "share" in (facts_of(text).spread_stopper or "")


def test_a_data_set_that_gives_one_sample_after_the_other_keeps_its_workers() -> None:
    text = TEXT.replace("import DataLoader, Dataset", "import DataLoader, IterableDataset as Dataset")
    assert facts_of(text).spread_stopper == "samples come from iterable data sets"


@pytest.mark.parametrize(
    ("base", "kind"),
    [
        ("Dataset", DataSetKind.MAP),
        ("IterableDataset", DataSetKind.ITERABLE),
        ("Stream", DataSetKind.ITERABLE),
    ],
)
def test_the_kind_of_a_data_set_is_that_of_its_bases(base: str, kind: DataSetKind) -> None:
    text = TEXT.replace("DataLoader, Dataset", "DataLoader, Dataset, IterableDataset")
    text = text.replace("class Rows(Dataset)", f"class Stream(IterableDataset): pass\nclass Rows({base})")
    script = facts_of(text).script
    (loader,) = script.calls_of(LOADER)
    assert data_set_kind(script, loader) is kind


@pytest.mark.parametrize(
    ("loader", "kind"),
    [
        ("DataLoader(rows, 8, shuffle=True, num_workers=2)", DataSetKind.MAP),
        ("DataLoader(rows, 8, True, num_workers=2)", DataSetKind.MAP),
        ("DataLoader(rows, 8, shuffle=False, num_workers=2)", DataSetKind.UNKNOWN),
        ("DataLoader(rows, 8, shuffle=args.shuffle, num_workers=2)", DataSetKind.UNKNOWN),
        ("DataLoader(torchvision.datasets.CIFAR10('data'), 8, num_workers=2)", DataSetKind.MAP),
        ("DataLoader(TensorDataset(x, y), 8, num_workers=2)", DataSetKind.MAP),
        ("DataLoader(ChainDataset(parts), 8, num_workers=2)", DataSetKind.ITERABLE),
    ],
)
def test_the_kind_is_known_where_torch_takes_no_other(loader: str, kind: DataSetKind) -> None:
    script = facts_of(
        "import torchvision\nfrom torch.utils.data import ChainDataset, DataLoader, TensorDataset\n" + loader
    ).script
    (call,) = script.calls_of(LOADER)
    assert data_set_kind(script, call) is kind
