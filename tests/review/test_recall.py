"""The faults as people spell them: at least three ways for each rule (wrong/CODE.py), and the rule finds each."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.review.check_rule import check_rules
from tests.diffs import scripts
from tests.review.finding import found_in

PORTS = Path(__file__).resolve().parents[1] / "pairs" / "ports.diff"

HEAD = """\
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
"""
# What `# wrapped` stands for in a spelling.
WRAPPED = """\
dist.init_process_group("nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = DDP(net.cuda(local_rank), device_ids=[local_rank])
"""
# And `# sharded`: with a loader of each rank's share.
SHARDED = "# wrapped\nloader = DataLoader(data, 32, sampler=DistributedSampler(data))\n"
SAMPLER = "from torch.utils.data.distributed import DistributedSampler\n"
WRONG = {
    path.stem: text.replace("# sharded\n", SHARDED).replace("# wrapped\n", WRAPPED).split("# ---\n")
    for path in sorted((Path(__file__).parent / "wrong").iterdir())
    for text in [path.read_text(encoding="utf-8")]
}


@pytest.mark.parametrize("code", WRONG)
def test_every_spelling_is_found(code: str) -> None:
    for text in WRONG[code]:
        imported = (
            SAMPLER if "DistributedSampler" in text else ""
        )  # a script that names a sampler may have one

        assert code in found_in(HEAD + imported + text), text


def test_every_rule_is_found_in_three_spellings() -> None:
    assert {rule.code for rule in check_rules()} == WRONG.keys()
    assert min(map(len, WRONG.values())) >= 3


PLANTED = {  # faults in ports of this repository, which verify finds by running them
    "tutorial/seeded_every_rank_prints": {"DDP605"},
    "tutorial/seeded_every_rank_saves": {"DDP604"},
    "tutorial/seeded_local_accuracy": {"DDP602"},
    "tutorial/seeded_several_faults": {"DDP602", "DDP605"},
    "tutorial/spawn_without_set_epoch": {"DDP601"},
    "tutorial/spawn": set(),
    "mlp/no_sampler": {"DDP628"},
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str) -> None:
    assert found_in(scripts(PORTS)[name].text) == PLANTED[name]
