"""Conversions of small scripts, as their reports show them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dp2ddp.codemod.conversion import Options
from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.plans.acceptance import accept_option
from dp2ddp.report.conversion_report import ConversionReport, conversion_report
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import LocalModule, Project
from tests.report.made_up import EVIL

PLAIN = """\
import os

import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(11, 3), torch.randn(11, 2))
loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=2)
net = torch.nn.DataParallel(torch.nn.Linear(3, 2), device_ids=[0, 1, 2]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(net(x.cuda()), y.cuda())
    loss.backward()
    optimizer.step()
    print(loss.item())
os.makedirs("out")
torch.save(net.module.state_dict(), "out/last.pt")
"""
HAZARDS = f"""\
import torch
import gone_library
from zoo import wrapped

net = wrapped(torch.nn.Linear(3, 2)).cuda()
text = '''
{EVIL}'''; breakpoint()
answer = breakpoint()
breakpoint()  # dp2ddp: accept[DDP906] never reached
torch.save(net.state_dict(), "{EVIL[:8]}")
"""
ZOO = f"import torch\n\ndef wrapped(net):\n    '''{EVIL}'''\n    return torch.nn.DataParallel(net)\n"


def report(name: str, written: str | None = "train_ddp.py") -> ConversionReport:
    """Of "plain", "hazards", "idiomatic", or "nothing" to convert."""
    script = {"plain": PLAIN, "idiomatic": PLAIN, "hazards": HAZARDS, "nothing": "print(1)\n"}[name]
    modules = (LocalModule("zoo", SourceFile(Path("zoo.py"), ZOO)),) if name == "hazards" else ()
    missing = ("gone_library",) if name == "hazards" else ()
    project = Project(SourceFile(Path("train.py"), script), modules, missing=missing)
    options = Options(
        style="idiomatic" if name == "idiomatic" else "exact",
        accept=(accept_option("DDP906:8 a person | looks"),) if name == "hazards" else (),
    )
    conversion = convert(project, options)
    made = conversion_report(conversion, written if conversion.changed else None)
    # the command is pytest's
    return replace(made, surroundings={**made.surroundings, "command": "dp2ddp convert train.py"})
