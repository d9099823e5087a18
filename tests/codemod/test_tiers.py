"""Which tier of helpers a script gets, and what keeps it from a smaller one."""

from __future__ import annotations

import textwrap

import pytest

from tests.codemod.scripts import converted

SCRIPT = """
import copy
import contextlib
import os
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
#imports

class Samples(Dataset):
    #fields
    def __len__(self):
        return 8
    def __getitem__(self, i):
        #sample
        return torch.full((6,), float(i)), i % 3

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        #layer
        self.last = nn.Linear(8, 3)
    def forward(self, x, y=None):
        out = self.last(torch.relu(self.first(x)))
        #forward
        return out

#classes
loader = DataLoader(Samples(), batch_size=4, shuffle=True)
net = Net().cuda()
#before
net = nn.DataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
#after
for epoch in range(2):
    #epoch
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        #batch
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        #loss
        loss.backward()
        #gradients
        optimizer.step()
    print(epoch, loss.item())
    #end
"""
WEIGHTS = "def weights_init(m):\n    if isinstance(m, nn.Linear):\n        nn.init.xavier_normal_(m.weight)"
OUT = "class Out({base}):\n    pass\n"
FREEZE = "for p in net.parameters():\n    p.requires_grad = False"
FREEZE_SOME = (
    "for name, p in net.named_parameters():\n    if 'first' in name:\n        p.requires_grad = False"
)
STEM = "stem = nn.Linear(6, 6).cuda()"
COUNTED = {"fields": "seen = 0", "sample": "self.seen += 1"}
PLAIN: dict[str, dict[str, str]] = {
    "nothing unusual": {},
    "gradients are clipped": {"gradients": "nn.utils.clip_grad_norm_(net.parameters(), 1.0)"},
    "the best state is copied": {"end": "best = copy.deepcopy(net.state_dict())"},
    "a checkpoint on the way": {"end": "torch.save(net.module.state_dict(), 'net.pth')"},
    "a function saves a state": {
        "classes": "def keep(state):\n    torch.save(state, 'a.pth')",
        "end": "keep({'net': net.state_dict(), 'epoch': epoch})",
    },
    "dropout": {"layer": "self.drop = nn.Dropout(0.3)"},
    "dropout in a model that a function makes": {
        "classes": "def build():\n    return nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.3))",
        "before": "net = build().cuda()",
    },
    "a file stays open": {"after": "log = open('log.txt', 'w', 1)", "end": "print(epoch, file=log)"},
    "a log file of logging": {
        "imports": "import logging",
        "after": "logging.basicConfig(filename='log.txt')",
    },
    "a handler of logging": {
        "imports": "import logging",
        "after": "handler = logging.FileHandler('log.txt')\nlogging.getLogger().addHandler(handler)",
    },
    "a folder that is there already": {"before": "try:\n    os.makedirs('out')\nexcept OSError:\n    pass"},
    "a folder, suppressed": {"before": "with contextlib.suppress(OSError):\n    os.makedirs('out')"},
    "a program that may be missing": {
        "imports": "import subprocess",
        "before": "try:\n    print(subprocess.check_output(['git', 'log']))\nexcept OSError:\n    pass",
    },
    "dropout in a function of forward": {
        "classes": "def drop(x):\n    return x * torch.bernoulli(torch.full_like(x, 0.5))",
        "forward": "out = drop(out)",
    },
    "dropout in a model that is looked up": {
        "classes": "def wide():\n    return nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.3))",
        "before": "net = globals()['wide']().cuda()",
    },
    "dropout in a function that nobody calls": {
        "classes": (
            "def wide():\n    return nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.3))\n"
            "def check():\n    print(wide()(torch.ones(2, 6)))"
        ),
    },
    "a writer is handed on": {
        "imports": "from torch.utils.tensorboard import SummaryWriter",
        "classes": "def note(writer, value):\n    writer.add_scalar('loss', value)",
        "after": "writer = SummaryWriter()",
        "end": "note(writer, loss.item())",
    },
    "the class of the wrapper is asked for, and a checkpoint's numbers": {
        "after": "state = torch.load('a.pt', weights_only=False)\nnet.module.load_state_dict(state['net'])\n"
        "first = state['epoch'] + 1\nprint(f'from {first}', state.get('best'))",
        "end": "state = net.module.state_dict() if isinstance(net, nn.DataParallel) else net.state_dict()\n"
        "torch.save({'net': state, 'epoch': epoch, 'best': 0.0}, 'a.pt')",
    },
    "the end of a loader is caught": {
        "end": "try:\n    x, y = next(iter(loader))\nexcept StopIteration:\n    pass"
    },
    "Ctrl-C": {
        "classes": "def fit():\n    pass",
        "end": "try:\n    fit()\nexcept KeyboardInterrupt:\n    torch.save(net.state_dict(), 'a')",
    },
    "errors are told and raised": {
        "classes": "def fit():\n    pass",
        "end": "try:\n    fit()\nexcept Exception as error:\n    print(error)\n    raise",
    },
    "the first device is set": {"before": "torch.cuda.set_device(0)"},
    "a loader of a class of its own": {
        "classes": "class Loader(DataLoader):\n    def __iter__(self):\n        return super().__iter__()",
        "epoch": "for x, y in Loader(Samples(), 4):\n    print(x)",
    },
    "a tracker that may be missing": {
        "after": "try:\n    from visdom import Visdom\n    viz = Visdom()\nexcept ImportError:\n    viz = None",
        "end": "if viz is not None:\n    viz.line([epoch])",
    },
    "the same seed again": {"epoch": "torch.manual_seed(0)", "layer": "self.drop = nn.Dropout(0.3)"},
    "batch norm in evaluation": {"epoch": "net.train()", "end": "net.eval()"},
    "weights are drawn before the wrap": {"classes": WEIGHTS, "before": "net.apply(weights_init)"},
    "some layers are frozen": {"before": f"{FREEZE}\nnet.last = nn.Linear(8, 3).cuda()"},
    "a folder is made": {"before": "if not os.path.exists('out'):\n    os.makedirs('out')"},
    "a log is added to": {"end": "with open('log.csv', 'a') as log:\n    log.write('1')"},
    "a dictionary is given back": {"forward": "return {'out': out}", "batch": "pass"},
    "settings are a class of their own": {"classes": f"{OUT.format(base='dict')}\nsettings = Out()"},
    "another model after the wrapped one": {"after": STEM, "end": "print(stem(x).sum())"},
    "exceptions of something else": {"end": "try:\n    print(int('a'))\nexcept ValueError:\n    pass"},
    "a data set downloads": {
        "imports": "from torchvision import datasets",
        "before": "digits = datasets.MNIST('data', download=True)",
    },
    "the loader forks": {"end": "DataLoader(Samples(), num_workers=2, multiprocessing_context='fork')"},
}
BEYOND: dict[str, tuple[str, str, dict[str, str]]] = {
    "gradients are accumulated": (
        "lean",
        "zero_grad() runs under a condition",
        {"gradients": "if epoch:\n    optimizer.zero_grad()"},
    ),
    "a penalty": ("lean", "penalty", {"loss": "loss = loss + sum(p.norm() for p in net.parameters())"}),
    "two models": ("lean", "several models are wrapped", {"after": "other = nn.DataParallel(Net().cuda())"}),
    "noise": ("lean", "draw random numbers on a device", {"batch": "x = x + torch.randn_like(x)"}),
    "noise and dropout": (
        "lean",
        "both the script and its model",
        {"batch": "x = x + torch.randn_like(x)", "layer": "self.drop = nn.Dropout(0.3)"},
    ),
    "dropout runs past the wrapper": (
        "lean",
        "in a way that is not followed",
        {"layer": "self.drop = nn.Dropout(0.3)", "end": "print(net.module(x))"},
    ),
    "dropout beside the wrapped model": (
        "lean",
        "a model that is not wrapped may draw",
        {
            "after": "teacher = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.3)).cuda()",
            "end": "print(teacher(x))",
        },
    ),
    "a part of a model is wrapped": (
        "lean",
        "",
        {
            "layer": "self.drop = nn.Dropout(0.3)",
            "after": "other = Net().cuda()\nother.first = nn.DataParallel(other.first)",
        },
    ),
    "two models that are looked up": (
        "lean",
        "a model that is not wrapped may draw",
        {
            "classes": "def wide():\n    return nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.3))",
            "before": "net = globals()['wide']().cuda()",
            "after": "teacher = globals()['wide']().cuda()",
            "end": "print(teacher(x))",
        },
    ),
    "a writer is asked where it writes": (
        "full",
        "what writes is used in another way",
        {
            "imports": "from torch.utils.tensorboard import SummaryWriter",
            "after": "writer = SummaryWriter()\nprint(writer.log_dir)",
        },
    ),
    "a model out of a file": (
        "lean",
        "a model that is not wrapped may draw",
        {"after": "teacher = torch.load('teacher.pt').cuda()", "end": "print(teacher(x))"},
    ),
    "another model of the class": (
        "lean",
        "a model that is not wrapped may draw",
        {
            "layer": "self.drop = nn.Dropout(0.3)",
            "after": "teacher = Net().cuda()",
            "end": "print(teacher(x))",
        },
    ),
    "another model that a function makes": (
        "lean",
        "a model that is not wrapped may draw",
        {
            "classes": "def build():\n    return nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.3))",
            "before": "net = build()",
            "after": "teacher = build().cuda()",
            "end": "print(teacher(x))",
        },
    ),
    "weights are drawn behind the wrap": (
        "lean",
        "draw random numbers on a device",
        {"classes": WEIGHTS, "after": "net.apply(weights_init)"},
    ),
    "a part runs alone": (
        "lean",
        "in a way that is not followed",
        {"batch": "x = net.module.first(x)[:, :6]"},
    ),
    "a model feeds the wrapped one": (
        "lean",
        "what the wrapped model is given may want gradients",
        {"after": STEM, "batch": "x = stem(x)"},
    ),
    "a parameter of its own": (
        "lean",
        "gradients are asked for beside",
        {"after": "prompt = nn.Parameter(torch.zeros(6))", "batch": "x = x + prompt"},
    ),
    "gradients beside": (
        "lean",
        "gradients are asked for beside",
        {"after": "noise = torch.zeros(3).requires_grad_()"},
    ),
    "all is frozen": ("lean", "the whole model may be frozen", {"before": FREEZE}),
    "frozen behind the wrap": ("lean", "frozen or unfrozen", {"after": FREEZE_SOME}),
    "a copy of the model": ("lean", "a copy may be made", {"after": "ema = copy.deepcopy(net)"}),
    "a copy that is run": (
        "lean",
        "a copy may be made",
        {
            "after": "best = Net().cuda()",
            "end": "best.load_state_dict(net.module.state_dict())\nprint(best(x))",
        },
    ),
    "averages are looked at": ("lean", "buffers are looked at", {"end": "print(dict(net.named_buffers()))"}),
    "another precision": ("lean", "another precision", {"before": "net = net.double()"}),
    "autocast": (
        "lean",
        "mixed precision",
        {"end": "with torch.autocast('cuda'):\n    print(1)"},
    ),
    "compiled": ("full", "compiled or functional", {"before": "net = torch.compile(net)"}),
    "hooks": ("full", "hooks", {"after": "net.register_forward_hook(print)"}),
    "half precision": ("full", "half precision", {"before": "net = net.half()"}),
    "along another dim": ("full", "another dim", {"after": "other = nn.DataParallel(Net().cuda(), dim=1)"}),
    "large outputs": ("full", "outputs may be large", {"layer": "self.up = nn.Upsample(scale_factor=2)"}),
    "sparse gradients": (
        "full",
        "sparse",
        {"layer": "self.words = nn.Embedding(4, 4, sparse=True)"},
    ),
    "a dictionary of a class of its own comes out": (
        "full",
        "a class of its own",
        {"classes": OUT.format(base="dict"), "forward": "return Out(out=out)"},
    ),
    "a list of a class of its own goes in": (
        "full",
        "a class of its own",
        {"classes": OUT.format(base="list"), "batch": "net(Out([x]))"},
    ),
    "samples count for all": (
        "full",
        "loading changes `self.seen`",
        {**COUNTED, "end": "print(loader.dataset.seen)"},
    ),
    "a step is caught": (
        "full",
        "exceptions of a step are caught",
        {"end": "try:\n    net(x)\nexcept RuntimeError:\n    pass"},
    ),
    "loading is caught": (
        "full",
        "exceptions of loading are caught",
        {"end": "try:\n    x, y = next(iter(loader))\nexcept RuntimeError:\n    pass"},
    ),
    "a step is suppressed": (
        "full",
        "exceptions of a step are caught",
        {"end": "with contextlib.suppress(RuntimeError):\n    net(x)"},
    ),
    "a method is caught": (
        "full",
        "exceptions of a step are caught",
        {
            "classes": "class Trainer:\n    def fit(self):\n        pass\n",
            "end": "trainer = Trainer()\ntry:\n    trainer.fit()\nexcept Exception:\n    pass",
        },
    ),
    "a function saves the wrapped model": (
        "full",
        "the wrapped model is saved as a whole",
        {
            "classes": "def keep(state):\n    torch.save(state, 'a.pth')\ndef save(net):\n    keep({'net': net})",
            "end": "save(net)",
        },
    ),
    "a model may come out of a file with numbers": (
        "full",
        "it needs load_for_ranks",
        {
            "after": "state = torch.load('a.pt', weights_only=False)\nteacher = state['net']\nprint(teacher(x))"
        },
    ),
    "a file that cannot be written": (
        "full",
        "what rank 0 does alone may fail, and that is caught",
        {"end": "try:\n    with open('a', 'w') as log:\n        log.write('1')\nexcept OSError:\n    pass"},
    ),
    "a download that may fail": (
        "full",
        "what rank 0 does alone may fail, and that is caught",
        {
            "imports": "from torchvision import datasets",
            "before": "try:\n    datasets.MNIST('data', download=True)\nexcept OSError:\n    pass",
        },
    ),
    "a file is read and written": (
        "full",
        "a file is read and written",
        {"end": "with open('a', mode='w+') as log:\n    log.write('1')"},
    ),
    "a loader that does more than iterate": (
        "full",
        "a loader is of a class of its own",
        {
            "classes": "class Loader(DataLoader):\n    def again(self):\n        return iter(self)",
            "epoch": "for x, y in Loader(Samples(), 4).again():\n    print(x)",
        },
    ),
    "a tracker that may fail": (
        "full",
        "what rank 0 does alone may fail, and that is caught",
        {
            "imports": "from torch.utils.tensorboard import SummaryWriter",
            "after": "try:\n    log = SummaryWriter()\nexcept OSError:\n    log = None",
            "end": "if log is not None:\n    log.add_scalar('loss', 1.0, epoch)",
        },
    ),
    "a handler that may fail": (
        "full",
        "what rank 0 does alone may fail, and that is caught",
        {
            "imports": "import logging",
            "after": "try:\n    handler = logging.FileHandler('a/log')\nexcept OSError:\n    handler = None",
        },
    ),
    "workers are spawned": (
        "full",
        "workers import the script",
        {"end": "DataLoader(Samples(), num_workers=2, multiprocessing_context='spawn')"},
    ),
    "samples count for themselves": ("full", "loading changes `self.seen`", COUNTED),
    "a sampler counts": (
        "full",
        "a sampler changes `self.passes`",
        {
            "classes": "class Counting(torch.utils.data.RandomSampler):\n    def __iter__(self):\n"
            "        self.passes = 1\n        return super().__iter__()",
        },
    ),
    "threads": ("full", "threads or processes", {"imports": "import threading", "end": "threading.Lock()"}),
}


def script(parts: dict[str, str]) -> str:
    """The script, with lines at the places that are named in it."""
    lines: list[str] = []
    for line in SCRIPT.splitlines():
        place = line.strip()
        filled = parts.get(place[1:], "") if place.startswith("#") else place
        lines.append(textwrap.indent(filled, line[: len(line) - len(line.lstrip())]))
    return "\n".join(lines)


@pytest.mark.parametrize("name", PLAIN)
def test_an_ordinary_script_is_plain(name: str) -> None:
    made = converted(script(PLAIN[name])).strategy.helpers

    assert made.value == "plain", made.because


@pytest.mark.parametrize("name", BEYOND)
def test_what_is_beyond_a_tier_gets_the_next_and_the_reason(name: str) -> None:
    tier, reason, parts = BEYOND[name]

    made = converted(script(parts)).strategy.helpers

    assert (made.value, reason in made.because) == (tier, True), made


WORDS = {  # how many scores a token has: how that is written, and the tier
    "a number": ("40", "", "plain"),
    "a name": ("WORDS", "WORDS = 39 + 1", "plain"),
    "the length of a text": ("len(LETTERS)", "LETTERS = 'abcdefghijklmnopqrstuvwxyz'", "plain"),
    "an option": (
        "args.words",
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--words', type=int, default=40)\nargs = parser.parse_args()",
        "plain",
    ),
    "many": ("50000", "", "full"),
    "what is read": ("len(words)", "words = sorted(set(open('a.txt').read().split()))", "full"),
    "one of two": ("n", "n = 40\nif len('ab') == 2:\n    n = 50000", "full"),
}


@pytest.mark.parametrize("name", WORDS)
def test_scores_of_tokens_are_large_where_they_may_be_many(name: str) -> None:
    words, imports, tier = WORDS[name]
    text = script({"imports": imports}).replace("(net(x), y)", f"(net(x).view(-1, {words}), y.view(-1))")

    assert converted(text).strategy.helpers.value == tier


def test_a_small_tier_that_is_right_and_slower_may_be_asked_for() -> None:
    text = script({"layer": "self.up = nn.Upsample(scale_factor=2)"})

    proven, asked = converted(text).strategy.helpers, converted(text, tier="plain").strategy.helpers

    assert proven.because.endswith("right and slower: --tier plain")
    assert (asked.value, asked.forced) == ("plain", False)


STREAMS: dict[str, tuple[str, dict[str, str]]] = {
    "weights are drawn behind the wrap": ("shared", {"classes": WEIGHTS, "after": "net.apply(weights_init)"}),
    "noise": ("shared", {"batch": "x = x + torch.randn_like(x)"}),
    "nothing is drawn": ("own", {"after": "noise = torch.zeros(3).requires_grad_()"}),
    "only the model draws": ("own", {"layer": "self.drop = nn.Dropout(0.3)", "after": "net.double()"}),
    "a part of a model is wrapped": (
        "followed",
        {
            "layer": "self.drop = nn.Dropout(0.3)",
            "before": "net.first = nn.DataParallel(net.first)",
        },
    ),
    "noise and dropout": (
        "followed",
        {"batch": "x = x + torch.randn_like(x)", "layer": "self.drop = nn.Dropout(0.3)"},
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_what_a_script_draws_on_a_device_is_the_same_on_all_ranks(name: str) -> None:
    """Without a seed each device has a stream of its own; and models with dropout draw from the script's."""
    stream, parts = STREAMS[name]

    made = converted(script(parts))

    assert made.strategy.device_stream == stream
    assert ("OneStreamParallel(net)" in made.after) == (stream == "followed")


def test_a_seed_that_is_set_again_begins_the_models_own_stream_anew() -> None:
    parts = {"epoch": "torch.manual_seed(0)", "layer": "self.drop = nn.Dropout(0.3)"}

    apart, together = (
        converted(script(parts)),
        converted(script({**parts, "batch": "x = x + torch.randn_like(x)"})),
    )

    assert "    torch.manual_seed(0)\n" in apart.after
    assert "    seed_all_streams(torch.manual_seed, 0)\n" in together.after


DRAWING_MODELS = {
    "dropout": {"layer": "self.drop = nn.Dropout(0.3)"},
    "dropout of a function": {"forward": "out = F.dropout(out, 0.1, self.training)"},
    "by position": {"layer": "self.rnn = nn.LSTM(6, 6, 2, True, True, 0.2)"},
    "by keyword": {"layer": "self.rnn = nn.GRU(6, 6, 2, dropout=0.2)"},
    "noise": {"forward": "out = out + torch.randn_like(out)"},
    "by its name": {"layer": "self.drop = getattr(nn, 'Drop' + 'out')(0.3)"},
    "from a table": {"imports": "LAYERS = {'drop': nn.Dropout, 'relu': nn.ReLU}"},
}


@pytest.mark.parametrize("name", DRAWING_MODELS)
def test_a_model_that_may_draw_has_a_stream_of_its_own(name: str) -> None:
    made = converted(script(DRAWING_MODELS[name]))

    assert made.strategy.helpers.value != "plain" or "WholeBatchDropoutDDP(net)" in made.after


def test_a_model_that_draws_nothing_needs_no_stream_of_its_own() -> None:
    made = converted(script({"layer": "self.norm = nn.BatchNorm1d(8)"}))

    assert "    own_draws(" not in made.after
    assert "= WholeBatchDDP(net)" in made.after


def test_a_generator_that_loading_and_the_script_draw_from_has_every_rank_load() -> None:
    parts = {
        "imports": "import numpy as np\nrng = np.random.default_rng(0)",
        "sample": "shift = rng.normal()",
        "batch": "x = x * rng.beta(1.0, 1.0)",
    }

    both, loading = converted(script(parts)), converted(script({**parts, "batch": ""}))

    assert both.strategy.data.value == "replicate"
    assert "loading and the main flow draw from `rng`" in both.strategy.data.because
    assert loading.strategy.data.value != "replicate"


def test_a_generator_that_draws_once_is_shared_by_nobody() -> None:
    parts = {
        "imports": "x = torch.randn(9, generator=torch.Generator().manual_seed(1))",
        "sample": "y = x[0]",
    }

    assert converted(script(parts)).strategy.data.value == "once"


def test_what_is_asked_for_is_not_lost_in_a_small_tier() -> None:
    assert converted(script({}), data="share").strategy.data.value == "share"
