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
TRAINER = """
class T:
    def __init__(self, loaders=None):
        self.loaders = loaders
    def run(self, part):
        if self.loaders is not None:
            print(len(self.loaders[part]))
        for x, y in self.loaders[part]:
            criterion(net(x), y)
"""
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
        pytest.param(
            "loaders = {}\nloaders['a'] = DataLoader(TensorDataset(a, b), 8)\n"
            + LOOP.replace("LOADER", "loaders['a']"),
            id="a dict that is filled",
        ),
        pytest.param(
            "def make():\n    return {'a': DataLoader(TensorDataset(a, b), 8)}\n"
            "def run(loader):\n    "
            + LOOP.replace("LOADER", "loader").replace("\n", "\n    ")
            + "\nrun(make()['a'])\n",
            id="an item of a result as an argument",
        ),
        pytest.param(
            "def make():\n    return DataLoader(TensorDataset(a, b), 8)\n" + LOOP.replace("LOADER", "make()"),
            id="a result that is read at once",
        ),
        pytest.param(TRAINER + "T({'a': DataLoader(TensorDataset(a, b), 8)}).run('a')\n", id="an object"),
        pytest.param(
            TRAINER + "class U(T):\n    def __init__(self, loaders):\n        super().__init__(loaders)\n"
            "U({'a': DataLoader(TensorDataset(a, b), 8)}).run('a')\n",
            id="a base class",
        ),
        pytest.param(
            "class T:\n    def train(self, part):\n        net.train()\n        net.train(False)\n"
            "        for x, y in part:\n            criterion(net(x), y)\n"
            "T().train(DataLoader(TensorDataset(a, b), 8))\n",
            id="a method that has the name of another",
        ),
        pytest.param(
            "from tqdm import tqdm\none = DataLoader(TensorDataset(a, b), 8)\nbar = tqdm(one, desc='x')\n"
            + LOOP.replace("LOADER", "bar")
            + "    bar.set_postfix(loss=1)\n",
            id="a progress bar",
        ),
        pytest.param(
            "sets = {k: TensorDataset(a, b) for k in 'ab'}\none = DataLoader(sets['a'], 8)\n"
            + LOOP.replace("LOADER", "one"),
            id="a data set in a dict",
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
        (
            "class T:\n    def __init__(self):\n        self.loader = DataLoader(TensorDataset(a, b), 8)\n"
            "t = T()\nfor x, y in t.loader:\n    print(x.mean())\n",
            "0 forwards of the wrapped model for one batch",
        ),
        (  # a loop in another function, which would get rows: silently another mean
            DICT
            + "def mean(part):\n    return sum(x.mean() for x, y in part)\nm = mean(loaders['b'])\n"
            + LOOP.replace("LOADER", "loaders['a']"),
            "`part` is used outside of a plain loop",
        ),
        (
            DICT
            + "def mean(part):\n    for x, y in part:\n        print(x.mean())\nmean(loaders['b'])\n"
            + LOOP.replace("LOADER", "loaders['a']"),
            "0 forwards of the wrapped model",
        ),
        (
            TRAINER + "T({'a': DataLoader(TensorDataset(a, b), 8), 'b': [(x, y)]}).run('b')\n",
            "something else stands",
        ),
        (
            "batches = [(x, y)]\ndef run(part=batches):\n    for x, y in part:\n        criterion(net(x), y)\n"
            "run()\nrun(DataLoader(TensorDataset(a, b), 8))\n",
            "`part` is not always a DataLoader",
        ),
        (
            "class T:\n    def run(self, part):\n        for x, y in part:\n            criterion(net(x), y)\n"
            "T().run(DataLoader(TensorDataset(a, b), 8))\nfor t in others:\n    t.run([(x, y)])\n",
            "`t.run` may be given something else",
        ),
        (
            "def run(part):\n    for x, y in part:\n        criterion(net(x), y)\n"
            "run(DataLoader(TensorDataset(a, b), 8))\nsteps = {'b': run}\nsteps['b']([(x, y)])\n",
            "`run` may be given something else",
        ),
        (
            "loaders = dict(a=DataLoader(TensorDataset(a, b), 8), b=[(x, y)])\n"
            + LOOP.replace("LOADER", "loaders['b']"),
            "something else stands",
        ),
        (
            TRAINER + "    def mean(self, name):\n        return getattr(self, name)['b']\n"
            "T({'a': DataLoader(TensorDataset(a, b), 8)}).run('a')\n",
            "`getattr(self, name)` may be a loader",
        ),
        (
            TRAINER
            + "class U(T):\n    def run(self, part):\n        pass\n    def go(self, one):\n        self.use(one)\n"
            "class V(U):\n    def use(self, mine):\n        print(next(iter(mine)))\n"
            "class W(U):\n    def use(self, own):\n        return own\n"
            "V().go(DataLoader(TensorDataset(a, b), 8))\n",
            "`one` is used outside of a plain loop",  # `use` may be either
        ),
        (
            "class T:\n    loader = DataLoader(TensorDataset(a, b), 8)\n    def run(self):\n"
            "        for x, y in self.loader:\n            net(x)\n",
            "not given a name",
        ),
        (
            "@cached\ndef make():\n    return DataLoader(TensorDataset(a, b), 8)\none = make()\n"
            + LOOP.replace("LOADER", "one"),
            "decorated",
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
