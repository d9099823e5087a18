"""A distributed mode of the script's own: behind a flag, or not."""

from __future__ import annotations

import ast

import pytest

from dp2ddp.codemod.facts.devices import find_device_indices
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.origins import Origins
from dp2ddp.codemod.facts.own_mode import asks_launcher, launcher_matters, without_condition
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import Project

HEAD = "import os\nimport torch\nimport torch.distributed as dist\n"


def modules_of(text: str) -> Modules:
    return Modules(Project(SourceFile(None, HEAD + text), ()))


@pytest.mark.parametrize(
    "text",
    [
        "if args.distributed:\n    dist.init_process_group('nccl')\n",
        "net = torch.nn.parallel.DistributedDataParallel(net) if args.ddp else net\n",
        "def reduce(x):\n    dist.all_reduce(x)\nif args.distributed:\n    reduce(x)\n",
        "def rank():\n    if not dist.is_initialized():\n        return 0\n    return dist.get_rank()\nrank()\n",
        "if not args.distributed or dist.get_rank() == 0:\n    print(1)\n",
        "class T:\n    def sync(self):\n        dist.barrier()\n"
        "    def run(self):\n        if self.ddp:\n            self.sync()\n",
        "class Meter:\n    def all_reduce(self):\n        dist.all_reduce(self.x)\n"
        "if args.distributed:\n    meter.all_reduce()\n",
        "ready = dist.is_available() and dist.is_initialized()\n",
        "def init(args):\n    if 'RANK' in os.environ:\n        args.rank = 1\n    elif args.slurm:\n"
        "        args.rank = 2\n    else:\n        return\n    dist.init_process_group('nccl')\ninit(args)\n",
        "def never_called():\n    dist.init_process_group('nccl')\n",
    ],
)
def test_a_condition_stands_before_it(text: str) -> None:
    modules = modules_of(text)
    assert without_condition(modules, modules.entry) is None


@pytest.mark.parametrize(
    "text",
    [
        "dist.init_process_group('nccl')\n",
        "if __name__ == '__main__':\n    dist.init_process_group('nccl')\n",
        "if True:\n    dist.init_process_group('nccl')\n",
        "def main():\n    dist.init_process_group('nccl')\nmain()\n",
        "def reduce(x):\n    dist.all_reduce(x)\nif args.distributed:\n    reduce(x)\nreduce(y)\n",
        "if args.distributed:\n    pass\ndist.barrier()\n",
    ],
)
def test_no_condition_stands_before_it(text: str) -> None:
    modules = modules_of(text)
    assert without_condition(modules, modules.entry) is not None


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("rank = int(os.environ['RANK'])\n", True),
        ("n = os.environ.get('WORLD_SIZE', 1)\n", True),
        ("ours = 'LOCAL_RANK' in os.environ\n", True),
        ("from os import getenv\nn = getenv('WORLD_SIZE')\n", True),
        ("os.environ['MASTER_ADDR'] = 'localhost'\n", True),  # what the ranks have to meet by
        ("names = ['PMI_RANK', 'RANK']\n", True),
        ("variables = os.environ.copy()\n", True),
        ("variables = dict(os.environ)\n", True),
        ("home = os.environ['HOME']\nRANK = os.environ.get('PATH')\n", False),
        ("os.environ['HOME'] = os.environ.setdefault('HOME', 'x')\n", False),
    ],
)
def test_what_torchrun_says_is_asked_for(text: str, asked: bool) -> None:
    modules = modules_of(text)
    assert launcher_matters(modules) is asked
    assert any(asks_launcher(modules.entry, one) for one in modules.entry.nodes(ast.Assign)) is asked


def test_devices_of_the_own_mode_are_left_alone() -> None:
    modules = modules_of(
        "if args.distributed:\n"
        "    torch.cuda.set_device(args.local_rank)\n"
        "    dist.init_process_group('nccl')\n"
        "    if args.more:\n"
        "        x.cuda(1)\n"
        "x.cuda(0)\n"
        "if args.gpu:\n"
        "    y.cuda(2)\n"
        "    if args.distributed:\n"
        "        dist.init_process_group('nccl')\n"
    )
    assert [use.node.lineno for use in find_device_indices(modules.entry, Origins(modules.entry, ()))] == [
        9,
        11,
    ]


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("net = torch.nn.SyncBatchNorm.convert_sync_batchnorm(net)\n", True),
        ("from torch.nn import SyncBatchNorm as Norm\n", True),
        ("def f():\n    from torch.nn import SyncBatchNorm as Norm\n", True),
        ("norm = getattr(torch.nn, 'SyncBatchNorm')\n", True),
        ("if dist.is_initialized():\n    print(1)\n", True),
        ("# no SyncBatchNorm here\n", False),
        ('def f():\n    """BatchNorm, and not SyncBatchNorm."""\n', False),
    ],
)
def test_what_asks_for_ranks_is_named_in_code(text: str, asked: bool) -> None:
    assert launcher_matters(modules_of(text)) is asked
