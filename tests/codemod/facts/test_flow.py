"""When the ranks' rows may stay apart until the forward, and what is gathered behind it."""

from __future__ import annotations

import pytest

from tests.codemod.scripts import facts_of

HEAD = """
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split
net = torch.nn.DataParallel(Net())
data = TensorDataset(a, b)
loader = DataLoader(data, batch_size=8, shuffle=True)
"""
LOOP = """
for x, y in loader:
    x, y = x.cuda(), y.cuda(non_blocking=True)
    out = net(x)
    loss = criterion(out, y)
"""


def gathered(text: str) -> list[tuple[str, ...]]:
    flow = facts_of(text).flow
    assert flow.stopper is None
    return [loop.gathered for loop in flow.loops]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param(HEAD + LOOP, ("y",), id="targets"),
        pytest.param(HEAD + LOOP + "    total += x.size(0)\n", ("x", "y"), id="the number of rows"),
        pytest.param(
            HEAD + LOOP.replace("for x, y in loader", "for i, (x, y) in enumerate(loader)"),
            ("y",),
            id="enumerate",
        ),
        pytest.param(
            HEAD + LOOP.replace("    x, y = x.c", "    if use_cuda:\n        x, y = x.c"),
            ("y",),
            id="moves under a condition",
        ),
        pytest.param(
            HEAD + "for batch in loader:\n    x, y = batch\n    net(x)\n    print(y)\n",
            ("y",),
            id="taken apart later",
        ),
        pytest.param(HEAD + "for x, y in loader:\n    loss = net(x, y)\n", (), id="loss in the forward"),
        pytest.param(
            HEAD + "for x, y in loader:\n    with torch.no_grad():\n        o = net(x)\n        o == y\n",
            ("y",),
            id="with",
        ),
        pytest.param(
            HEAD + "def f(l):\n    for x, y in l:\n        net(x)\n        print(y)\nf(loader)\n",
            ("y",),
            id="in a function",
        ),
    ],
)
def test_what_is_used_behind_the_forward_is_gathered(text: str, names: tuple[str, ...]) -> None:
    assert gathered(text) == [names]


DATA_SET = """
class Rows(Dataset):
    def __getitem__(self, i):
        return {item}
data = Rows()
"""


def with_data_set(item: str) -> str:
    return HEAD.replace("data = TensorDataset(a, b)\n", DATA_SET.replace("{item}", item)) + LOOP


@pytest.mark.parametrize(
    "item", ["self.x[i], self.y[i]", "torch.from_numpy(self.x[i]).float(), int(self.y[i])"]
)
def test_a_data_set_that_only_looks_up_is_shared_out(item: str) -> None:
    assert gathered(with_data_set(item)) == [("y",)]


def test_a_split_of_one_is_one() -> None:
    text = HEAD.replace(
        "data = TensorDataset(a, b)", "data, rest = random_split(TensorDataset(a, b), [8, 2])"
    )

    assert gathered(text + LOOP) == [("y",)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(
            HEAD + LOOP.replace("    out", "    print(x.size())\n    out"),
            "used before the forward",
            id="looked at before",
        ),
        pytest.param(
            HEAD
            + "for x, y in loader:\n    with amp:\n        n += len(x)\n        with amp:\n            net(x)\n",
            "used before the forward",
            id="looked at between two withs",
        ),
        pytest.param(
            HEAD + "for x, y in loader:\n    with timer(len(x)):\n        net(x)\n",
            "used before the forward",
            id="looked at in the head of a with",
        ),
        pytest.param(
            HEAD
            + "def f(*loaders):\n    for one in loaders:\n        print(next(iter(one)))\n"
            + LOOP
            + "f(loader)\n",
            "outside of a plain loop",
            id="one of any number of arguments",
        ),
        pytest.param(
            HEAD + "def f(**all):\n    print(next(iter(all['loader'])))\n" + LOOP + "f(loader=loader)\n",
            "outside of a plain loop",
            id="one of any keywords",
        ),
        pytest.param(
            "import copy\n" + HEAD + "ema = copy.deepcopy(net)\n" + LOOP + "    loss += mse(out, ema(x))\n",
            "a copy of the wrapped model",
            id="a copy that is run",
        ),
        pytest.param(HEAD + LOOP.replace("x.cuda()", "mixup(x)"), "used before the forward", id="mixed"),
        pytest.param(HEAD + LOOP + "    net(x)\n", "2 forwards", id="two forwards"),
        pytest.param(HEAD + LOOP + "net(noise)\n", "something else than a batch", id="another input"),
        pytest.param(HEAD + LOOP + "x, y = next(iter(loader))\n", "outside of a plain loop", id="next(iter)"),
        pytest.param(
            HEAD + LOOP.replace("    out = net(x)", "    if x is not None:\n        out = net(x)"),
            "condition",
            id="under if",
        ),
        pytest.param(
            HEAD + LOOP.replace("net(x)", "net(x, noise)"), "beside the batch", id="noise beside the batch"
        ),
        pytest.param(HEAD + LOOP + "loader = other()\n", "not always a DataLoader", id="another loader"),
        pytest.param(HEAD.replace("shuffle=True", "collate_fn=pad") + LOOP, "collate_fn", id="collate"),
        pytest.param(
            HEAD.replace("TensorDataset(a, b)", "CIFAR10()") + LOOP, "may draw random", id="unknown data set"
        ),
        pytest.param(with_data_set("self.transform(self.x[i])"), "may draw random", id="transform"),
        pytest.param(
            with_data_set("self.x[i] + torch.randn(3)"), "may draw random", id="noise in the data set"
        ),
        pytest.param(HEAD.replace("(Net())", "(Net(), dim=1)") + LOOP, "another dimension", id="dim"),
        pytest.param(HEAD + "def f():\n    return y\n" + LOOP, "read in another function", id="global"),
        pytest.param(
            HEAD + "for epoch in range(2):\n    if epoch: print(x)\n" + LOOP.replace("\n", "\n    "),
            "used in the next epoch",
            id="epoch after",
        ),
        pytest.param(
            HEAD + LOOP.replace("net(x)", "net(x.requires_grad_())"),
            "beside the batch",
            id="inputs with a gradient",
        ),
        pytest.param(
            HEAD + LOOP.replace("x.cuda()", "torch.autograd.Variable(x, requires_grad=True)"),
            "used before the forward",
            id="a Variable with a gradient",
        ),
        pytest.param(HEAD + LOOP + "net.module(x)\n", "net.module(x)", id="around the wrapper"),
    ],
)
def test_what_cannot_be_followed_stays_whole(text: str, why: str) -> None:
    assert why in (facts_of(text).flow.stopper or "")


def test_a_part_under_a_condition_gets_no_other_name() -> None:
    text = (
        HEAD
        + "for x, y in loader:\n    z = noise\n    if flag:\n        z = y.cuda()\n    criterion(net(x), z)\n"
    )
    assert "another name under a condition" in (facts_of(text).flow.stopper or "")


def test_a_copy_that_is_only_saved_is_harmless() -> None:
    text = "import copy\n" + HEAD + LOOP + "best = copy.deepcopy(net)\ntorch.save(best.state_dict(), 'a')\n"
    assert facts_of(text).flow.stopper is None


NET = "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
LOADER = "loader = DataLoader(TensorDataset(a, b), batch_size=8)\n"
WRAP = "net = torch.nn.DataParallel(net)\n"
TEST = "def test(net):\n    for x, y in loader:\n        out = net(x)\n        print(out, y)\n"


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("net = Net()\nif flag: " + WRAP + LOOP, id="under a condition"),
        pytest.param(
            "net = Net()\n" + TEST + "test(net)\n" + WRAP + "test(net)\n", id="run before it is wrapped"
        ),
        pytest.param(
            "if flag:\n    net = torch.nn.DataParallel(Net())\nelse:\n    net = Net()\n" + LOOP, id="or not"
        ),
        pytest.param(
            "def train():\n    net = Net()\n    print(str(net))\n    if flag: "
            + WRAP
            + indented("net.train()\n" + LOOP)
            + "train()\n",
            id="in a function that runs once",
        ),
        pytest.param(
            "def run():\n    net = Net()\n" + indented(WRAP + LOOP) + "run()\nrun()\n", id="more than once"
        ),
    ],
)
def test_rows_are_apart_from_the_wrap_on(text: str) -> None:
    assert facts_of(NET + LOADER + text).flow.stopper is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("raw = Net()\nnet = torch.nn.DataParallel(raw)\n" + TEST + "test(net)\ntest(raw)\n",
                     "not always the wrapped", id="the raw model on the same batches"),
        pytest.param("net = torch.nn.DataParallel(Net())\n" + LOOP + "net = Net()\n" + LOOP,
                     "not always the wrapped", id="another model later"),
        pytest.param("def run(flag):\n    net = Net()\n    if flag: " + WRAP + indented(LOOP) + "run(1)\nrun(0)\n",
                     "may run unwrapped", id="a second time without"),
        pytest.param(TEST + "def run():\n    net = Net()\n    test(net)\n    " + WRAP + indented(LOOP)
                     + "run()\nrun()\n", "may run unwrapped", id="run before it is wrapped, twice"),
        pytest.param("for fold in range(2):\n    net = Net()\n    " + WRAP + indented(LOOP), "in a loop", id="folds"),
    ],
)  # fmt: skip
def test_rows_meet_no_other_model(text: str, why: str) -> None:
    assert why in (facts_of(NET + LOADER + text).flow.stopper or "")


BESIDE = HEAD + "for x, y in loader:\n    loss = criterion(net(x.cuda()), y)\n    print(len(y))\n"


@pytest.mark.parametrize(
    ("behind", "always", "within"),
    [
        pytest.param("if i % 9 == 0:\n    print(len(x))", ("y",), [("x",)], id="now and then"),
        pytest.param("if a:\n    b()\n    if c:\n        print(x)", ("y",), [("x",)], id="the innermost if"),
        pytest.param("if a:\n    print(x)\nelse:\n    print(x)", ("x", "y"), [], id="in both branches"),
        pytest.param("if a:\n    print(x)\nprint(x)", ("x", "y"), [], id="behind it, too"),
        pytest.param("if len(x) > 3:\n    print(1)", ("x", "y"), [], id="in the question"),
        pytest.param("for _ in a:\n    if b:\n        print(x)", ("x", "y"), [], id="in a loop"),
        pytest.param("try:\n    if b:\n        print(x)\nexcept E: pass", ("x", "y"), [], id="in a try"),
        pytest.param("if a:\n    print(x)\nif b:\n    print(x)", ("x", "y"), [], id="in two"),
    ],
)
def test_what_one_branch_alone_uses_is_gathered_there(
    behind: str, always: tuple[str, ...], within: list[tuple[str, ...]]
) -> None:
    (loop,) = facts_of(HEAD + LOOP + indented(behind)).flow.loops
    assert loop.gathered == always
    assert [names for _, names in loop.gathered_within] == within


def test_what_the_forwards_statement_uses_is_gathered_before_it() -> None:
    (loop,) = facts_of(BESIDE).flow.loops
    assert (loop.before, loop.gathered) == (("y",), ())
    (loop,) = facts_of(BESIDE.replace("len(y)", "len(x)")).flow.loops
    assert (loop.before, loop.gathered) == (("y",), ("x",))


@pytest.mark.parametrize(
    "statement", ["loss = criterion(net(x), x)", "x = net(x)", "y = criterion(net(x), y)"]
)
def test_what_the_forward_takes_or_replaces_is_not_gathered_before_it(statement: str) -> None:
    text = BESIDE.replace("loss = criterion(net(x.cuda()), y)", statement)
    assert "in the statement of the forward" in (facts_of(text).flow.stopper or "")


def test_the_module_of_a_wrap_is_the_model_itself() -> None:
    text = HEAD.replace("DataParallel(Net())", "DataParallel(Net()).module") + LOOP
    assert "`net` is not always the wrapped model" in str(facts_of(text).flow.stopper)


AGAIN = "def train(n):\n    net = Net()\n    if flag:\n        net = torch.nn.DataParallel(net)\n" + indented(
    LOOP
)


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        pytest.param(AGAIN + "    train(n - 1)\n", False, id="mentions itself"),
        pytest.param(AGAIN + "    train(n - 1)\ntrain(2)\n", False, id="calls itself"),
        pytest.param(AGAIN + "    fit(n)\ndef fit(n):\n    train(n - 1)\n", False, id="a circle of two"),
        pytest.param(
            AGAIN + "def main(n):\n    train(n)\nmain(2)\n", True, id="called by what is called once"
        ),
        pytest.param(
            "class Trainer:\n" + indented(AGAIN.replace("(n)", "(self)") + "    print(self.net.train)\n"),
            False,
            id="a method that uses an attribute of its name",
        ),
    ],
)
def test_functions_that_mention_themselves_may_run_again(text: str, stays: bool) -> None:
    stopper = facts_of(NET + LOADER + text).flow.stopper or ""
    assert ("may run unwrapped" not in stopper) == stays
