"""A script that the idiomatic style converts, with places to put what it may not."""

from __future__ import annotations

import textwrap

from dp2ddp.codemod.conversion import Conversion, Options
from dp2ddp.codemod.idiomatic.convert import convert_idiomatic
from tests.codemod.scripts import project_of

TEXT = """\
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
inputs, targets = torch.randn({samples}, 8), torch.zeros({samples}, dtype=torch.long)
loader = DataLoader(TensorDataset(inputs, targets), batch_size={batch}, shuffle={shuffle}{more})
net = nn.Sequential(nn.Linear(8, 16),{layer} nn.ReLU(), nn.Linear(16, 3)).cuda()
net = nn.DataParallel(net, device_ids=[0, 1])
criterion = {criterion}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{before}
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        optimizer.zero_grad()
        {loss}
        {within}
        loss.backward()
        optimizer.step()
    {log}
"""
USUAL = {
    "samples": 64, "batch": 16, "shuffle": False, "more": "", "layer": "", "criterion": "nn.CrossEntropyLoss()",
    "before": "", "loss": "loss = criterion(net(x), y)", "within": "pass", "log": "print('epoch', epoch)",
}  # fmt: skip


def script(**changes: object) -> str:
    return TEXT.format(**{**USUAL, **changes})


def idiomatic(text: str) -> Conversion:
    return convert_idiomatic(project_of(textwrap.dedent(text)), Options(style="idiomatic"))


def names_of(conversion: Conversion) -> dict[str, bool]:
    """The differences that a report lists, and whether it is certain of them."""
    return {one.name: one.certain for one in conversion.differences}
