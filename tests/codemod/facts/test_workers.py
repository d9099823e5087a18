"""When the workers of loaders may be shared out among the ranks."""

from __future__ import annotations

import pytest

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
