"""What a tutorial has no words for: the result says what a person must decide, in a comment or in the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.codemod.conversion import Options
from dp2ddp.codemod.idiomatic.convert import convert_idiomatic
from dp2ddp.codemod.plans.acceptance import AcceptOption
from dp2ddp.source.projects import read_project
from tests.codemod.idiomatic.scripts import idiomatic, names_of, script
from tests.codemod.scripts import project_of

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
SWALLOWS = (
    "try:\n            loss = criterion(net(x), y); loss.backward()\n        except RuntimeError: continue"
)


CASES = [  # a script, what a comment in it says, and what the report calls it, if it lists it
    (BY_HAND, "each rank gets whole batches", "whole batches"),
    (ITERABLE, "each rank gets whole batches", "whole batches"),
    (script(more=", sampler=mine"), "each rank gets whole batches", "whole batches"),
    (script(batch=1), "each rank gets whole batches", "whole batches"),
    (script(criterion="nn.CrossEntropyLoss(reduction='sum')"), "a sum, and DDP averages", "loss"),
    (script(loss="z = net(x); loss = (z @ z.t()).mean()"), "rows are compared with each other", "loss"),
    (script(loss="z = net(x); loss = nn.functional.cross_entropy(z @ z.t(), y)"), "rows are compared", "loss"),
    (script(loss="z = net(x); s = z.mm(z.t()) / 0.1; loss = criterion(s, y)"), "rows are compared", "loss"),
    (script(before="if args.seed: torch.manual_seed(1)\nrows = torch.utils.data.random_split(d, [1, 2])")
     .replace("torch.manual_seed(0)", "pass"), "set a seed of torch", "no seed"),
    (script(before="import random; x = random.random()"), "set a seed of random", "no seed"),
    (script(before="losses = []", within="losses.append(loss.item())", log="plateau.step(sum(losses))"),
     "each rank's own figure", "decisions"),
    (script(before="wait = 0", within="wait = wait + 1 if loss > 1 else 0", log="if wait > 3: break"),
     "each rank's own figure", "decisions"),
    (script(before="import time; out = time.strftime('%H')", log="rows = open(out)"), "each rank's own clock", ""),
    (script(before="code = os.system('make')", log="print(code)"), "every rank does this", ""),
    (script(before="f = h5py.File('a.h5', 'r+'); rows = f['rows']"), "every rank does this", ""),
    (script(loss=SWALLOWS), "a rank that swallows an error", "swallowed errors"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "comment", "name"), CASES)
def test_a_comment_says_what_a_person_must_decide_and_the_report_lists_it(
    text: str, comment: str, name: str
) -> None:
    conversion = idiomatic(f"import os\nimport h5py\nimport numpy as np\n{text}")

    assert not conversion.hazards
    assert any("# dp2ddp: " in line and comment in line for line in conversion.after.split("\n"))
    assert name == "" or name in names_of(conversion)


@pytest.mark.parametrize(
    "changes",
    [
        {"log": "if epoch > 5: break"},
        {"log": "if test() > best: break", "before": "def test(): return net(inputs).sum()"},
        {"criterion": "nn.MSELoss()", "loss": "out = net(x); loss = criterion(out, y) + 0.1 * nn.L1Loss()(out, y)"},
        {"loss": "loss = nn.functional.cross_entropy(net(x), y, reduction='sum') / x.size(0)"},
        {"loss": "loss = net(x, y).mean()"},
        {"loss": "loss = (net(x) - y).pow(2).mean()"},
        {"before": "def total(out, y):\n    return criterion(out, y)", "loss": "loss = total(net(x), y)"},
        {"before": "class Mine(nn.Module):\n    def forward(self, a, b): return (a - b).pow(2).mean()",
         "loss": "loss = Mine()(net(x), y)"},
        {"within": "torch.nn.utils.clip_grad_norm_(net.parameters(), 1)"},
        {"before": "start = time.time()", "log": "print(time.time() - start)"},
    ],
)  # fmt: skip
def test_where_nothing_is_to_be_decided_nothing_is_said(changes: dict[str, object]) -> None:
    conversion = idiomatic(f"import os\nimport time\n{script(**changes)}")

    assert conversion.changed
    assert "# dp2ddp" not in conversion.after
    assert set(names_of(conversion)) == {"batch size", "last batch"}


@pytest.mark.parametrize(
    "uses", ["f.write('x'); f.seek(0); rows = f.readlines()", "f.seek(0); rows = list(f)"]
)
def test_a_file_that_is_written_and_read_at_once_is_left_to_a_person(uses: str) -> None:
    after = idiomatic(script(log=f"with open('notes', 'a+') as f:\n        {uses}")).after

    assert "# dp2ddp: every rank does this: let rank 0 alone" in after
    assert "with open('notes', 'a+') as f:" in after


def test_a_hazard_that_is_answered_lets_it_go_on() -> None:
    text = script(before="torch.distributed.init_process_group('nccl')")
    line = next(number for number, each in enumerate(text.split("\n"), 1) if "init_process_group" in each)
    options = Options(style="idiomatic", accept=(AcceptOption("", "DDP701", None, line, "I know"),))
    project = project_of(text)

    assert not convert_idiomatic(project, Options(style="idiomatic")).changed
    assert convert_idiomatic(project, options).changed


def test_what_skips_a_batch_skips_it_on_all_ranks() -> None:
    after = idiomatic(script(within="if loss.item() > 9: break")).after

    assert "dist.all_reduce(skips)" in after
    assert "if skips > 0: break" in after


LOGGER = "import logging\nlogger = logging.getLogger('a')\n"


@pytest.mark.parametrize(
    "lines",
    [
        "logger.addHandler(logging.FileHandler('a.log'))",
        "fh = logging.FileHandler('a.log')\nlogger.addHandler(fh)",
        "logging.basicConfig(handlers=[logging.FileHandler('a.log')])",
    ],
)
def test_a_handler_writes_its_file_on_rank_0_alone(lines: str) -> None:
    after = idiomatic(script(before=f"{LOGGER}{lines}", log="logger.info('epoch')")).after

    assert "'a.log' if rank == 0 else os.devnull" in after
    assert "logging.disable()" in after


BAR = "    for x, y in loader:\n"


@pytest.mark.parametrize(
    ("lines", "bar"),
    [
        ("    bar = tqdm(loader)\n    for x, y in bar:\n        bar.update(1)\n", "(loader, disable=rank != 0)"),
        ("    bar = tqdm(loader)\n    for x, y in bar:\n        bar.write('a step')\n", "(loader, disable=rank != 0)"),
        ("    bar = tqdm(loader, leave=0)\n    for i, a in enumerate(bar):\n", "leave=0, disable=rank != 0)"),
    ],
)  # fmt: skip
def test_a_bar_is_rank_0s_and_the_sampler_hears_of_its_epoch_before_it_loads(lines: str, bar: str) -> None:
    text = script(shuffle=True)
    assert BAR in text

    after = idiomatic(f"from tqdm import tqdm\n{text.replace(BAR, lines)}").after

    assert bar in after
    told = after.index("loader.sampler.set_epoch(epoch)\n")
    assert told < after.index("    bar = ") < after.index("    for ", told)


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


def test_in_a_class_too() -> None:
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
         "criterion = Mine().cuda()\n"),
    ],
)  # fmt: skip
def test_a_wrapped_loss_without_parameters_is_not_wrapped(loss: str, own: str, after: str) -> None:
    assert after in idiomatic(WRAPPED_LOSS.format(loss=loss, own=own)).after


READS = """
def resume():
    {load}
for epoch in range(2):
    torch.save(net.state_dict(), f'net{{epoch}}.pt')
resume()
"""
SAVER = """
class Stopper:
    def __call__(self, net): torch.save(net.state_dict(), 'best.pt')
stopper = Stopper()
stopper(net)
net.load_state_dict(torch.load('best.pt'))
"""


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        (READS.format(load="torch.load('pretrained.pt')"), True),  # the saved one has a name that nobody can read off
        (READS.format(load="if os.path.isfile(path): torch.load(path)"), True),
        (READS.format(load="np.load('other.npy')"), True),
        (READS.format(load="print(torch.ones(2))"), False),
        (SAVER, True),
        ("net.load_state_dict(torch.load('net.pt'))\ntorch.save(net.state_dict(), 'net.pt')\n", False),
    ],
)  # fmt: skip
def test_a_file_that_rank_zero_may_have_written_is_waited_for(text: str, waits: bool) -> None:
    after = idiomatic(f"import os\nimport numpy as np\n{script()}{text}").after

    assert ("dist.barrier()  # rank 0 has written\n" in after) is waits


def test_what_fetches_data_is_waited_for() -> None:
    before = "if not os.path.exists('data'):\n    os.system('wget ' + url)\n    os.system('unzip x.zip')"

    lines = idiomatic(f"import os\n{script(before=before)}").after.split("\n")

    start = lines.index("if not os.path.exists('data'):")
    assert lines[start - 2 : start] == ["if rank != 0:", "    dist.barrier()  # rank 0 goes first"]
    assert lines[start + 3 : start + 5] == ["if rank == 0:", "    dist.barrier()"]


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("json.dump([1], open('a.json', 'w'))", "if rank == 0:\n    json.dump([1], open('a.json', 'w'))"),
        ("Image.open('a.png').save('b.png')", "if rank == 0:\n    Image.open('a.png').save('b.png')"),
        ("f = open('a', 'a' if more else 'w')", "f = open('a' if rank == 0 else os.devnull, 'a' if more else 'w')"),
        ("f = open('rows.txt', mode)", "or each in a place of its own\nf = open('rows.txt', mode)"),
        ("v = cv2.VideoWriter('a.avi', 1)", "or each in a place of its own\nv = cv2.VideoWriter('a.avi', 1)"),
        ("buffer = io.BytesIO()\ntorch.save([1], buffer)", "buffer = io.BytesIO()\ntorch.save([1], buffer)\n"),
        ("handles = []\nhandles.append(open('a', 'w'))", "handles.append(open('a' if rank == 0 else os.devnull, 'w'))"),
        ("with open('a', 'w') as f:\n    x.to_csv(f)", "if rank == 0:\n    with open('a', 'w') as f:\n        x.to"),
    ],
)  # fmt: skip
def test_what_the_exact_style_does_once_is_rank_0s(line: str, after: str) -> None:
    imports = "import io\nimport json\nimport os\nimport cv2\nimport h5py\nfrom PIL import Image\n"

    assert after in idiomatic(imports + script(before=line)).after


def test_a_method_that_a_class_has_otherwise_trains_too() -> None:
    text = """
import torch
from torch.utils.data import DataLoader
class Engine:
    def run(self, loader):
        for x in loader:
            self.step(x)
    def step(self, x): raise NotImplementedError
class Mine(Engine):
    def step(self, x):
        net(x).mean().backward()
net = torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())
Mine().run(DataLoader(data, batch_size=8))
"""
    assert "sampler=DistributedSampler(data, shuffle=False)" in idiomatic(text).after


def test_what_is_given_from_another_file_is_followed_there(tmp_path: Path) -> None:
    (tmp_path / "util.py").write_text("def keep(image, place):\n    image.save(place)\n")
    train = tmp_path / "train.py"
    train.write_text(
        script(before="import io\nfrom util import keep\nbuffer = io.BytesIO()\nkeep(x, buffer)")
    )

    conversion = convert_idiomatic(read_project(train), Options(style="idiomatic"))

    assert conversion.changed
    assert not conversion.modules  # it is written into memory
