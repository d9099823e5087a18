"""What wrapped forwards may do beside their outputs, and who may notice: both answers of each question."""

from __future__ import annotations

import pytest

from dp2ddp.codemod.facts.forward_effects import ForwardEffects
from tests.codemod.scripts import facts_of

SCRIPT = """
import copy, logging, random
import torch, timm
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)
        self.drop = torch.nn.Dropout(0.5)
    def forward(self, x):
        FORWARD
        return self.drop(self.fc(x))
class Other(torch.nn.Module):
    def forward(self, x):
        print("other")
        return x
def train(model, loader):
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
net = Net()
net = torch.nn.DataParallel(net)
LOOP
BEHIND
"""


def effects(forward: str = "", loop: str = "train(net, loader)", behind: str = "") -> ForwardEffects:
    return facts_of(
        SCRIPT.replace("FORWARD", forward).replace("LOOP", loop).replace("BEHIND", behind)
    ).forward_effects


def test_a_plain_script_has_none() -> None:
    assert effects() == ForwardEffects(None, None, None, None)


TRY = "try:\n    train(net, loader)\nexcept {}:\n    pass\n"


@pytest.mark.parametrize(
    ("loop", "caught"),
    [
        pytest.param(TRY.format("KeyboardInterrupt"), False, id="Ctrl-C ends it"),
        pytest.param(TRY.format("(StopIteration, ImportError)"), False, id="the end of an iterator"),
        pytest.param(
            "try:\n    pass\nfinally:\n    train(net, loader)\n", False, id="a finally catches nothing"
        ),
        pytest.param(
            "try:\n    f()\nexcept Exception:\n    train(net, loader)\n", False, id="the try is another's"
        ),
        pytest.param(TRY.format("RuntimeError"), True, id="out of memory, through a call"),
        pytest.param(TRY.format("(KeyboardInterrupt, ValueError)"), True, id="one of two"),
        pytest.param(
            "import contextlib\nwith contextlib.suppress(ValueError):\n    net(x)", True, id="suppressed"
        ),
        pytest.param(
            "def run():\n    train(net, loader)\nretry(run)\ntry:\n    retry(run)\nexcept OSError:\n    pass",
            True,
            id="handed on inside a try",
        ),
        pytest.param(
            "@retried\ndef run():\n    train(net, loader)\nrun()", True, id="a decorator that is not known"
        ),
        pytest.param(
            "class T:\n    def __call__(self):\n        net(x)\nT()()", True, id="called without its name"
        ),
        pytest.param("run = lambda: net(x)\n", True, id="a lambda"),
        pytest.param("helper(net)\n", True, id="given away"),
    ],
)
def test_who_catches(loop: str, caught: bool) -> None:
    assert (effects(loop=loop).caught is not None) is caught


@pytest.mark.parametrize(
    ("forward", "behind", "told"),
    [
        pytest.param("", "print(net(x))", False, id="printed behind it"),
        pytest.param("", "logging.info(1)", False, id="logged behind it"),
        pytest.param("x = torch.relu(x)", "", False, id="torch alone"),
        pytest.param("", "Other()(x)", False, id="another model prints"),
        pytest.param("print(x.shape)", "", True, id="printed"),
        pytest.param("logger.info('x')", "", True, id="logged"),
        pytest.param("show(x)", "def show(x):\n    print(x)", True, id="printed by a function"),
        pytest.param("x = timm.layers.norm(x)", "", True, id="a library that cannot be read"),
        pytest.param(
            "", "net.module.fc.register_forward_hook(lambda m, i, o: print(o))", True, id="a hook prints"
        ),
        pytest.param(
            "",
            "def hook(m, i, o):\n    print(o)\nnet.module.fc.register_forward_hook(hook)",
            True,
            id="a hook with a name prints",
        ),
    ],
)
def test_what_prints(forward: str, behind: str, told: bool) -> None:
    assert (effects(forward=forward, behind=behind).told is not None) is told


def test_a_model_of_another_library_may_print() -> None:
    text = (
        SCRIPT.replace("net = Net()", "net = timm.create_model('x')")
        .replace("FORWARD", "")
        .replace("LOOP", "")
    )
    assert "timm" in (facts_of(text.replace("BEHIND", "train(net, loader)")).forward_effects.told or "")


@pytest.mark.parametrize(
    ("forward", "behind", "drawn"),
    [
        pytest.param("x = x + torch.rand_like(x)", "", False, id="in the forward"),
        pytest.param("", "random.random()", False, id="python's"),
        pytest.param("", "torch.randperm(9)", False, id="a permutation on the host"),
        pytest.param("", "z = torch.randn(9, device='cpu')", False, id="on the CPU"),
        pytest.param("", "z = torch.randn(9, device=device)", True, id="noise"),
        pytest.param("", "z.normal_()", True, id="in place"),
        pytest.param(
            "", "teacher = torch.nn.Sequential(torch.nn.Dropout(0.1))", True, id="dropout of another model"
        ),
    ],
)
def test_what_draws_outside(forward: str, behind: str, drawn: bool) -> None:
    assert (effects(forward=forward, behind=behind).drawn_outside is not None) is drawn


@pytest.mark.parametrize(
    ("behind", "read"),
    [
        pytest.param("torch.save(net.state_dict(), 'a')", False, id="through the wrapper"),
        pytest.param("net.module.state_dict()", False, id="through the wrapper's module"),
        pytest.param("m = bn.running_mean", True, id="running_mean"),
        pytest.param("list(net.buffers())", True, id="buffers"),
        pytest.param("best = copy.deepcopy(net)", True, id="a copy"),
        pytest.param("inner = net.module\ninner.state_dict()", True, id="the inner module by a name"),
        pytest.param(
            "raw = Net()\nnet = torch.nn.DataParallel(raw)\nraw.eval()", True, id="the model by its old name"
        ),
    ],
)
def test_who_reads_buffers(behind: str, read: bool) -> None:
    assert (effects(behind=behind).buffers_read is not None) is read


def test_wraps_that_are_not_seen_may_do_all() -> None:
    found = facts_of("import torch\nnet = wrap(torch.nn.DataParallel, Net())\n").forward_effects
    assert None not in (found.caught, found.told, found.drawn_outside, found.buffers_read)
