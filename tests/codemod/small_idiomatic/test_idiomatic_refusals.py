"""What a tutorial has no words for: a hazard, and then nothing at all is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dp2ddp.cli import main
from dp2ddp.codemod.acceptance import AcceptOption
from tests.codemod.small_idiomatic.scripts import idiomatic, names_of, script
from tests.codemod.scripts import converted

GAN = """
import torch
from torch.utils.data import DataLoader
g, d = torch.nn.DataParallel(torch.nn.Linear(2, 2)), torch.nn.DataParallel(torch.nn.Linear(2, 2))
for x in DataLoader(data, batch_size=8):
    loss = d(x).mean()
    loss.backward()
    loss = d(g(x)).mean()
    loss.backward()
"""
BY_HAND = """
import torch
net = torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())
for step in range(10):
    loss = net(torch.ones(4, 2)).mean()
    loss.backward()
"""
ITERABLE = """
import torch
from torch.utils.data import DataLoader, IterableDataset
class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(8))
net = torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())
loader = DataLoader(Stream(), batch_size=8)
for x in loader:
    loss = net(x).mean()
    loss.backward()
"""


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (GAN, "DDP719", "backward"),
        (BY_HAND, "DDP704", "no loop over a DataLoader"),
        (ITERABLE, "DDP704", "iterable"),
        (script(more=", sampler=mine"), "DDP704", "sampler"),
        (script(batch=1), "DDP704", "one sample"),
        (script(before="first = next(iter(loader))"), "DDP704", "not followed"),
        (script(criterion="nn.CrossEntropyLoss(reduction='sum')"), "DDP710", "a sum over rows"),
        (script(loss="z = net(x); loss = (z @ z.t()).mean()"), "DDP710", "compared with each other"),
        (script(loss="z = net(x); loss = nn.functional.cross_entropy(z @ z.t(), y)"), "DDP710", "compared with each"),
        (script(loss="z = net(x); s = z.mm(z.t()) / 0.1; loss = criterion(s, y)"), "DDP710", "compared with each"),
        (script(loss="z = criterion(net(x), y); loss = ((1 - torch.exp(-z)) ** 2 * z).mean()"), "DDP710", "cannot be"),
        (script(loss="z = net(x); loss = criterion(z - z.mean(0), y)"), "DDP710", "cannot be seen"),
        (script(before="other = nn.Linear(2, 2); o = torch.optim.SGD(other.parameters())"), "DDP714", "`other`"),
        (script(before="net.apply(weights_init)").replace("torch.manual_seed(0)", ""), "DDP713", "net.apply()"),
        (script(before="if args.seed: torch.manual_seed(1)\nrows = torch.utils.data.random_split(d, [1, 2])").replace(
            "torch.manual_seed(0)", ""), "DDP713", "random_split"),
        (script(criterion="pytorch_metric_learning.losses.NTXent()"), "DDP710", "cannot be seen"),
        (script(within="if loss.item() > 9: break"), "DDP711", "loss.item() > 9"),
        (script(before="seen = []", within="seen.append(loss.item())", log="plateau.step(sum(seen))"),
         "DDP711", "plateau.step"),
        (script(before="wait = 0", within="wait = wait + 1 if loss > 1 else 0", log="if wait > 3: break"),
         "DDP711", "wait > 3"),
        (script(before="B = 16", batch="B", within="mask = torch.ones(B, 3).cuda()"), "DDP712", "`B`"),
        (script(before="import random; random.shuffle(rows)"), "DDP713", "random.shuffle()"),
        (script(log="print(net(x))"), "DDP705", "net(x)"),
        (script(log="x = open('log', 'w').write('a')"), "DDP705", "gives back"),
        (script(before="import time; out = time.strftime('%H')", log="rows = np.load(out)"), "DDP719", "one clock"),
        (script(before="code = os.system('make')", log="print(code)"), "DDP705", "gives back"),
        (script(before="f = h5py.File('a.h5', 'r+'); rows = f['rows']"), "DDP705", "rank 0 alone has `f`"),
        (script(before="if not os.path.exists('a'):\n    a = cook()\n    np.save('a', a)\n    b = a + 1\nprint(b)"),
         "DDP705", "half a file"),
        (script(before="net.module.init_weights()", log="net.module.head(x)"), "DDP719", "not followed"),
        (script(before="class P(nn.DataParallel): pass\nnet = P(net)"), "DDP719", "exact style"),
    ],
)  # fmt: skip
def test_what_it_cannot_say_is_a_hazard_and_nothing_changes(text: str, code: str, message: str) -> None:
    conversion = idiomatic(f"import os\nimport h5py\nimport numpy as np\n{text}")

    assert not conversion.changed
    assert [one for one in conversion.hazards if one.code == code and message in one.because]


def test_a_hazard_that_is_answered_lets_it_go_on() -> None:
    text = script(criterion="Mine()", before="class Mine(lib.Base): pass")
    line = next(number for number, one in enumerate(text.split("\n"), 1) if "loss = criterion" in one)
    refused = converted(text, style="idiomatic")
    answered = converted(text, style="idiomatic", accept=(AcceptOption("", "DDP710", None, line, "a mean"),))

    assert not refused.changed
    assert answered.changed
    assert [one.code for one in answered.accepted] == ["DDP710"]


@pytest.mark.parametrize(
    "changes",
    [
        {"log": "if epoch > 5: break"},
        {"log": "if test() > best: break", "before": "def test(): return net(inputs).sum()"},
        {"within": "losses.append(loss.item())", "before": "losses = []", "log": "print(sum(losses))"},
        {"criterion": "nn.MSELoss()", "loss": "out = net(x); loss = criterion(out, y) + 0.1 * nn.L1Loss()(out, y)"},
        {"loss": "loss = nn.functional.cross_entropy(net(x), y, reduction='sum') / x.size(0)"},
        {"loss": "loss = net(x, y).mean()"},
        {"loss": "loss = (net(x) - y).pow(2).mean()"},
        {"before": "def total(out, y):\n    return criterion(out, y)", "loss": "loss = total(net(x), y)"},
        {"within": "lam = np.random.beta(1, 1)", "before": "import numpy as np"},
        {"before": "out = time.strftime('%H')\nos.makedirs(out)", "log": "torch.save(net.state_dict(), out + '/a.pt')"},
        {"within": "torch.nn.utils.clip_grad_norm_(net.parameters(), 1)"},
    ],
)  # fmt: skip
def test_what_a_tutorial_can_say_is_converted(changes: dict[str, object]) -> None:
    conversion = idiomatic(f"import os\nimport time\n{script(**changes)}")

    assert conversion.changed, [(one.code, one.because) for one in conversion.hazards]


LOGGER = "import logging\nlogger = logging.getLogger('a')\n"
HANDLERS = {
    "logger.addHandler(logging.FileHandler('a.log'))": (
        "if rank == 0:\n    logger.addHandler(logging.FileHandler('a.log'))"
    ),
    "fh = logging.FileHandler('a.log')\nlogger.addHandler(fh)": (
        "if rank == 0:\n    fh = logging.FileHandler('a.log')\n    logger.addHandler(fh)"
    ),
    "logging.basicConfig(handlers=[logging.FileHandler('a.log')])": (
        "if rank == 0:\n    logging.basicConfig(handlers=[logging.FileHandler('a.log')])"
    ),
    "fh = logging.FileHandler('a.log')\nseen = []\nlogger.addHandler(fh)": (
        "fh = logging.FileHandler('a.log') if rank == 0 else None\nseen = []\nif rank == 0:\n    logger.addHandler(fh)"
    ),
}


@pytest.mark.parametrize("lines", HANDLERS)
def test_rank_0_alone_makes_a_handler_that_writes_a_file(lines: str) -> None:
    conversion = idiomatic(script(before=f"{LOGGER}{lines}", log="logger.info('epoch')"))

    assert HANDLERS[lines] in conversion.after, [hazard.because for hazard in conversion.hazards]


BAR = "    for x, y in loader:\n"


@pytest.mark.parametrize(
    ("lines", "moves"),
    [
        ("    bar = tqdm(loader)\n    for x, y in bar:\n        bar.set_postfix(epoch=epoch)\n", True),
        ("    bar = tqdm(loader)\n    for x, y in bar:\n        bar.write('a step')\n", True),
        ("    bar = tqdm(loader, desc='train')\n    for i, (x, y) in enumerate(bar):\n", True),
        (
            "    bar = tqdm([1])\n    for x in bar:\n        pass\n    bar = tqdm(loader)\n    for x, y in bar:\n",
            True,
        ),
        ("    bar = tqdm(loader)\n    show(bar)\n    for x, y in bar:\n", False),
        ("    bar = tqdm(loader)\n    for x, y in bar:\n        seen = bar.n\n", False),
        ("    bar = tqdm(loader)\n    if epoch:\n        bar = tqdm(others)\n    for x, y in bar:\n", False),
        ("    bar = loader\n    for x, y in bar:\n        bar = tqdm(loader)\n", False),
    ],
)
def test_a_bar_with_a_name_is_followed(lines: str, moves: bool) -> None:
    text = script(shuffle=True)
    assert BAR in text

    conversion = idiomatic(f"from tqdm import tqdm\n{text.replace(BAR, lines)}")

    assert conversion.changed == moves, [hazard.because for hazard in conversion.hazards]
    assert ("tqdm(loader, disable=rank != 0)" in conversion.after) == (moves and "desc" not in lines)
    assert ("if rank == 0:\n            bar.write" in conversion.after) == ("write" in lines)


TRAINER = """
import torch
from torch.utils.data import DataLoader
from tqdm import tqdm
class Trainer:
    def __init__(self, net):
        self.net = torch.nn.DataParallel(net.cuda())
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.loader = DataLoader(data, batch_size=8, shuffle=True)
    def train(self, epoch):
        bar = tqdm(enumerate(self.loader))
        for i, (x, y) in bar:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.net(x), y)
            loss.backward()
            self.optimizer.step()
trainer = Trainer(torch.nn.Linear(2, 2))
for n in range(2):
    trainer.train(n)
"""


def test_the_sampler_hears_of_its_epoch_before_a_bar_begins_to_load() -> None:
    after = idiomatic(TRAINER).after

    told = after.index("self.loader.sampler.set_epoch(epoch)\n")
    assert after[told:].split("\n")[1].strip() == "bar = tqdm(enumerate(self.loader), disable=rank != 0)"


def test_what_a_bar_shows_is_rank_0s() -> None:
    lines = "    bar = tqdm(loader)\n    for x, y in bar:\n"
    text = script(within="bar.set_postfix(loss=loss.item())", log="pass").replace(BAR, lines)

    assert "training figures" in names_of(idiomatic(f"from tqdm import tqdm\n{text}"))


WRAPPED_LOSS = """
import torch
import torch.nn as nn
from torch.utils.data import DataLoader
{own}
net = nn.DataParallel(nn.Linear(2, 2).cuda())
criterion = nn.DataParallel({loss}.cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    loss = criterion(net(x), y).mean()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("loss", "own", "after"),
    [
        ("nn.CrossEntropyLoss()", "", "criterion = nn.CrossEntropyLoss().cuda()\n"),
        ("Mine()", "class Mine(nn.Module):\n    def forward(self, a, b): return (a - b).abs().mean()",
         "criterion = Mine().cuda()\n"),
        ("Mine()", "class Mine(nn.Module):\n    def __init__(self): self.f = nn.Linear(1, 1)\n"
         "    def forward(self, a, b): return (self.f(a) - b).mean()",
         "criterion = DDP(Mine().cuda(), device_ids=[local_rank])\n"),
    ],
)  # fmt: skip
def test_a_wrapped_loss_without_parameters_is_not_wrapped(loss: str, own: str, after: str) -> None:
    assert after in idiomatic(WRAPPED_LOSS.format(loss=loss, own=own)).after


READS = """
def resume():
    {load}
for epoch in range(2):
    torch.save(net.state_dict(), f'net{{epoch}}.pt')
{again}resume()
"""


@pytest.mark.parametrize(
    ("load", "waits"),
    [
        ("torch.load('pretrained.pt')", True),  # the saved one has a name that nobody can read off
        ("if os.path.isfile(path): torch.load(path)", True),
        ("np.load('other.npy')", False),
    ],
)
def test_a_file_that_rank_zero_may_have_written_is_waited_for(load: str, waits: bool) -> None:
    text = script() + READS.format(load=load, again="")

    after = idiomatic(f"import os\nimport numpy as np\n{text}").after

    assert ("dist.barrier()" in after) is waits
    if waits:
        assert after.index("dist.barrier()") < after.index("torch.load(")


def test_a_checkpoint_of_an_earlier_run_is_not_waited_for() -> None:
    text = (
        script(before="net.load_state_dict(torch.load('net.pt'))")
        + "torch.save(net.state_dict(), 'net.pt')\n"
    )

    assert "dist.barrier()" not in idiomatic(text).after


def test_a_wrapper_that_is_saved_whole_is_a_hazard() -> None:
    conversion = idiomatic(script() + "state = {'net': net}\ntorch.save(state, 'net.pt')\n")

    assert [one.code for one in conversion.hazards] == ["DDP707"]


def test_options_of_the_exact_style_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(script())

    result = CliRunner().invoke(
        main, ["convert", str(tmp_path / "train.py"), "--style", "idiomatic", "--data", "share"]
    )

    assert result.exit_code == 2
    assert "--data is of the exact style" in result.output


def test_what_fetches_data_is_waited_for() -> None:
    text = script(
        before="if not os.path.exists('data'):\n    os.system('wget ' + url)\n    os.system('unzip x.zip')"
    )

    after = idiomatic(f"import os\n{text}").after

    assert "if rank == 0 and not os.path.exists('data'):\n" in after
    assert "unzip x.zip')\ndist.barrier()\n" in after
