"""Loaders are followed through results of functions, dicts and parameters; what escapes keeps batches whole."""

from __future__ import annotations

import pytest

from tests.codemod.scripts import converted, facts_of

HEAD = """
import torch
from torch.utils.data import DataLoader, TensorDataset
net = torch.nn.DataParallel(Net())
"""
MAKE = """
def make():
    train = DataLoader(TensorDataset(a, b), 8)
    return train, DataLoader(TensorDataset(c, d), 9)
"""
LOOP = "for x, y in LOADER:\n    out = net(x)\n    criterion(out, y)\n"
DICT = "loaders = {'a': DataLoader(TensorDataset(a, b), 8), 'b': DataLoader(TensorDataset(a, b), 8)}\n"


def stopper(text: str) -> str | None:
    return facts_of(HEAD + text).flow.stopper


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(MAKE + "one, two = make()\n" + LOOP.replace("LOADER", "one"), id="results"),
        pytest.param(
            "def make():\n    return DataLoader(TensorDataset(a, b), 8)\none = make()\n"
            + LOOP.replace("LOADER", "one"),
            id="a result without a name",
        ),
        pytest.param(
            DICT + "for k in 'ab':\n    " + LOOP.replace("LOADER", "loaders[k]").replace("\n", "\n    "),
            id="dict",
        ),
        pytest.param(
            "one = DataLoader(TensorDataset(a, b), 8)\nloaders = {'a': one}\n"
            + LOOP.replace("LOADER", "loaders['a']"),
            id="a dict of names",
        ),
        pytest.param(
            "loaders = [DataLoader(TensorDataset(a, b), n) for n in (4, 8)]\nprint(len(loaders[0].dataset))\n"
            + LOOP.replace("LOADER", "loaders[1]"),
            id="a list",
        ),
    ],
)
def test_loaders_that_are_followed(text: str) -> None:
    assert stopper(text) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (MAKE + "both = make()\n" + LOOP.replace("LOADER", "both[0]"), "not given a name"),
        (MAKE + LOOP.replace("LOADER", "make()[0]"), "not given a name"),
        (MAKE + "one, two = make()\nother = make\n" + LOOP.replace("LOADER", "one"), "not only called"),
        (
            "def make(f):\n    if f:\n        return DataLoader(TensorDataset(a, b), 8)\n    return None\n"
            "one = make(1)\n" + LOOP.replace("LOADER", "one"),
            "more than one way",
        ),
        (DICT + "for loader in loaders.values():\n    print(next(iter(loader)))\n", "used as a whole"),
        (
            DICT + "x = next(iter(loaders['a']))\n" + LOOP.replace("LOADER", "loaders['b']"),
            "outside of a plain loop",
        ),
        ("loaders = {}\nloaders['a'] = DataLoader(TensorDataset(a, b), 8)\n", "not given a name"),
        (
            "class T:\n    def __init__(self):\n        self.loader = DataLoader(TensorDataset(a, b), 8)\n"
            "t = T()\nfor x, y in t.loader:\n    print(x.mean())\n",
            "`t.loader` may be a loader",
        ),
        ("for one in (DataLoader(TensorDataset(a, b), 8), 3):\n    pass\n", "not given a name"),
    ],
)
def test_loaders_that_escape(text: str, why: str) -> None:
    assert why in (stopper(text) or "")


def test_a_loader_in_a_dict_is_shared_out_where_it_is_made() -> None:
    text = "loaders = {k: DataLoader(TensorDataset(a, b), 8) for k in 'ab'}\n" + LOOP.replace(
        "LOADER", "loaders['a']"
    )
    after = converted(HEAD + text).after
    assert "loaders = {k: shard(DataLoader, TensorDataset(a, b), 8) for k in 'ab'}" in after
    assert "    y = gather_rows(y)" in after
