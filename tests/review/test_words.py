"""What makes a rule silent is asked of the code: no comment, no docstring and no sentence answers it."""

from __future__ import annotations

import pytest

from dp2ddp.codemod.rule import code_of
from tests.review.finding import found_in, script_of

PLAIN_HEAD = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
dist.init_process_group("nccl")
"""
HEAD = PLAIN_HEAD.replace("DataLoader\n", "DataLoader, DistributedSampler\n")
EVALUATION = """
model = DistributedDataParallel(net)
loader = DataLoader(data, sampler=DistributedSampler(data, shuffle=False))
correct = 0
with torch.no_grad():
    for x, y in loader:
        correct += (model(x).argmax(1) == y).sum().item()
"""
PRINTS = """
model = DistributedDataParallel(net)
for epoch in range(3):
    print(epoch)
"""
TRACKS = """
import wandb
model = DistributedDataParallel(net)
wandb.init(project="a")
"""
ON_DEVICE = "model = DistributedDataParallel(net.cuda())\n"
ATTRIBUTE = "model = DistributedDataParallel(net)\nout = model.features(x)\n"
LOADS = """
model = DistributedDataParallel(net)
if dist.get_rank() == 0:
    model.module.load_state_dict(torch.load("a.pt", map_location="cpu"))
"""
ARGUMENT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
torch.cuda.set_device(parser.parse_args().local_rank)
"""
ALL_DATA = """
model = DistributedDataParallel(net)
loader = DataLoader(data, batch_size=32, shuffle=True)
for x, y in loader:
    model(x).mean().backward()
"""
# rule (and which part of it): a script that it finds, words that stood for an answer, lines of code that are one
ASKED = {
    "DDP602": (
        HEAD + EVALUATION,
        "metric reduce gather",
        ["dist.all_reduce(torch.tensor(correct))", "from a import over_ranks\nover_ranks(correct)"],
    ),
    "DDP605": (
        PLAIN_HEAD + PRINTS,
        "builtins sys.stdout redirect_stdout",
        [
            "import builtins\nbuiltins.print = quiet",
            "import sys\nsys.stdout = nowhere",
            "from contextlib import redirect_stdout",
        ],
    ),
    "DDP606": (PLAIN_HEAD + TRACKS, "WANDB_MODE", ['os.environ["WANDB_MODE"] = "disabled"']),
    "DDP610": (
        PLAIN_HEAD + ON_DEVICE,
        "set_device local_rank slurm",
        [
            "torch.cuda.set_device(index)",
            "other = DistributedDataParallel(net, device_ids=[rank])",
            'os.environ["CUDA_VISIBLE_DEVICES"] = "1"',
            "with torch.cuda.device(index): pass",
            "place = args.local_rank",
        ],
    ),
    "DDP611, an attribute": (
        PLAIN_HEAD + ATTRIBUTE,
        "hasattr() getattr() setattr()",
        ["a = getattr(model, name)"],
    ),
    "DDP617": (
        PLAIN_HEAD + LOADS,
        "broadcast() broadcast_ sync_params()",
        ["dist.broadcast(weight, 0)", "sync_params(model)", "net.apply(broadcast_weights)"],
    ),
    "DDP622": (
        PLAIN_HEAD + ARGUMENT,
        "LOCAL_RANK",
        ['place = os.environ["LOCAL_RANK"]', 'place = os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]'],
    ),
    "DDP628": (
        PLAIN_HEAD + ALL_DATA,
        "sampler shard webdataset prepare()",
        ["import webdataset", "data = shard(data)", "loader = accelerator.prepare(loader)", 'kind = cfg["sampler"]'],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize(
    "way",
    [
        "# {}\n",
        '"""{} and more."""\n',
        "def unused():\n    '''{}, in a sentence'''\n",
        "text = 'no {} here'\n",
    ],
)
def test_a_word_in_a_comment_or_a_sentence_answers_nothing(what: str, way: str) -> None:
    text, words, _ = ASKED[what]
    code = what[:6]

    assert code in found_in(text)
    assert code in found_in(f"{text}{way.format(words)}")


@pytest.mark.parametrize(
    ("what", "line"), [(what, line) for what, (_, _, lines) in ASKED.items() for line in lines]
)
def test_code_answers(what: str, line: str) -> None:
    assert what[:6] not in found_in(f"{ASKED[what][0]}{line}\n")


def test_a_keyword_of_the_wrapper_sends_no_weights() -> None:
    text = ASKED["DDP617"][0].replace(
        "DistributedDataParallel(net)", "DistributedDataParallel(net, broadcast_buffers=False)"
    )

    assert "DDP617" in found_in(text)


BUFFERS = """
@torch.no_grad()
def test(net):
    return net(x)
model = DistributedDataParallel(net)
for epoch in range(3):
    if dist.get_rank() == 0:
        test(model)
"""


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("# no BatchNorm, no torchvision.models, no resnet here", False),
        ("'''As resnet has it.'''", False),
        ("from torchvision import transforms\nfrom models import Net", False),
        ("import torchvision.models as models", True),
        ("import torchvision\nnet = torchvision.models.vgg11()", True),
        ("from torchvision.models import vgg11", True),
        ("net = timm.create_model('resnet50')", True),
        ("layer = torch.nn.BatchNorm2d(3)", True),
    ],
)
def test_buffers_are_looked_for_in_the_code(line: str, is_found: bool) -> None:
    """Here words make the rule speak."""
    assert ("DDP609" in found_in(f"{PLAIN_HEAD}{line}\n{BUFFERS}")) == is_found


def test_the_words_of_a_file() -> None:
    text = '''
        """Docstring"""
        import a.b as c
        from d.e import f
        class G:
            def h(self, i: int = 1, *, j=2, **k):
                """Docstring"""
                self.m.n(o="term", p="two words")  # comment
    '''
    script = script_of(code_of(text))

    assert script.words - {""} == {*"abcdefGhijkmnop", "self", "int", "term"}
    assert {"a.b", "d.e.f"} <= script.imports
