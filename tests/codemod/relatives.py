"""Small programs around what once went wrong, in families; DataParallel and the conversion train the same.

Families: checkpoints around, inside and beside a wrapped model; what is done while modules are imported; second
backwards; orders of sets.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

HEAD = """
import os, random
import numpy as np
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
"""


@dataclass(frozen=True)
class Relative:
    family: str
    name: str
    files: tuple[tuple[str, str], ...]

    @property
    def id(self) -> str:
        return f"{self.family}-{self.name}"


# --- checkpoints: DataParallel's replicas are threads, which hooks for saved tensors do not reach

BLOCK = """
torch.manual_seed(1)
def block(i, o):
    return nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o), nn.ReLU(), nn.Dropout(0.2))
"""
ONE = "net = nn.DataParallel(nn.Sequential(block(4, 8), nn.Linear(8, 2)).cuda())\n"
TWO = """
feat, head = nn.DataParallel(block(4, 8).cuda()), nn.DataParallel(block(8, 2).cuda())
net = nn.Sequential(feat, head)
"""
INSIDE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = block(4, 8), block(8, 8), nn.Linear(8, 2)
    def forward(self, x):
        return self.c({forward})
net = nn.DataParallel(Net().cuda())
"""
PART = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.head = nn.DataParallel(block(4, 8).cuda()), nn.Linear(8, 2).cuda()
    def forward(self, x):
        return self.head(checkpoint(self.features, x, use_reentrant={reentrant}))
net = Net()
"""
STEPS = """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(3):
    x, y = torch.randn(8, 4).cuda().requires_grad_(), torch.randint(2, (8,)).cuda()
    loss = nn.functional.cross_entropy({output}, y)
    optimizer.zero_grad()
    {backward}
    optimizer.step()
    print(step, loss.item(), sum(each.double().sum().item() for each in net.buffers()))
"""
CHECKPOINTS = {
    "around": (ONE, "checkpoint(net, x, use_reentrant={reentrant})"),
    "around_without_streams": (
        ONE,
        "checkpoint(net, x, use_reentrant={reentrant}, preserve_rng_state=False)",
    ),
    "around_twice": (
        ONE,
        " + ".join(f"checkpoint(net, x * {i}, use_reentrant={{reentrant}})" for i in (1, 2)),
    ),
    "around_one_of_two": (TWO, "head(checkpoint(feat, x, use_reentrant={reentrant}))"),
    "around_both": (TWO, "checkpoint(lambda t: head(feat(t)), x, use_reentrant={reentrant})"),
    "sequential_around": (TWO, "checkpoint_sequential(net, 2, x, use_reentrant={reentrant})"),
    "around_a_part": (PART, "net(x)"),
    "inside": (INSIDE.format(forward="self.b(checkpoint(self.a, x, use_reentrant={reentrant}))"), "net(x)"),
    "sequential_inside": (
        INSIDE.format(forward="checkpoint_sequential([self.a, self.b], 2, x, use_reentrant={reentrant})"),
        "net(x)",
    ),
}


def steps(model: str, output: str = "net(x)", backward: str = "loss.backward()") -> str:
    return HEAD + BLOCK + model + STEPS.format(output=output, backward=backward)


def _checkpoints() -> list[Relative]:
    found = []
    for name, (model, output) in CHECKPOINTS.items():
        for reentrant in (True, False):
            text = steps(model, output).replace("{reentrant}", str(reentrant))
            found.append(Relative("checkpoint", f"{name}_{reentrant}", (("train.py", text),)))
    return found


# --- second backwards

BACKWARDS = {
    "retained": "loss.backward(retain_graph=True); (2 * loss).backward()",
    "of_two_forwards": "other = net(x * 2).pow(2).mean(); loss.backward(); other.backward()",
    "of_some": "loss.backward(inputs=list(net.module[1].parameters()))",
    "gradients_asked_for": "torch.autograd.grad(loss, [*net.parameters()], retain_graph=True); loss.backward()",
    "of_outputs": "loss.backward(retain_graph=True); net(x).backward(torch.ones(8, 2).cuda())",
    "of_several": "torch.autograd.backward([loss, net(x).sum()])",
}


# --- while modules are imported (what the system draws, DataParallel draws anew in each run)

EFFECTS = {
    "input": 'import io, sys\nsys.stdin = io.StringIO("8\\n")\nwidth = int(input())\n',
    "makedirs": 'import os\nos.makedirs("out")\nwidth = 8\n',
    "open": 'with open("a.txt", "w") as file:\n    file.write("x")\nwidth = len(open("a.txt").read()) * 8\n',
    "urandom": "import os\nwidth = 8 + 0 * os.urandom(1)[0]\n",
    "subprocess": 'import subprocess\nwidth = int(subprocess.check_output(["echo", "8"]))\n',
    "clock": 'import time\nname = time.strftime("%H%M%S")\nopen("a.txt", "w").write("x")\nwidth = 8 * bool(name)\n',
    "save": 'import torch\ntorch.save([1], "a.pt")\nwidth = 8\n',
    "logging": 'import logging\nlogging.basicConfig(filename="a.log", level=20)\nlogging.info("x")\nwidth = 8\n',
    "generator": "import numpy as np\nwidth = 8 + 0 * int(np.random.default_rng().integers(8))\n",
    "seed": "import random\nrandom.seed()\nwidth = 8 + 0 * random.randrange(8)\n",
    "temporary_folder": "import tempfile\nfolder = tempfile.TemporaryDirectory()\nwidth = 8 if folder.name else 4\n",
    "path": 'from pathlib import Path\nPath("o").mkdir()\n(Path("o") / "a").write_text("x")\nwidth = 8\n',
    "draw": 'import torch\nprint("options")\nwidth = 8 + int(torch.randint(8, ()))\n',
    "loader": "from torch.utils.data import DataLoader\nwidth = sum(1 for _ in DataLoader(range(8), num_workers=1))\n",
}
WIDE = "net = nn.DataParallel(nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2)).cuda())\n"


def _imports() -> list[Relative]:
    body = textwrap.indent(BLOCK + WIDE + STEPS.format(output="net(x)", backward="loss.backward()"), "    ")
    main = f'{HEAD}from options import width\ndef main():\n{body}\nif __name__ == "__main__":\n    main()\n'
    found = []
    for name, text in EFFECTS.items():
        called = f"def read():\n{textwrap.indent(text, '    ')}    return width\nwidth = read()\n"
        for way, files in {
            "at_the_top": {"options.py": text},
            "in_a_function": {"options.py": called},
            "two_modules_deep": {"options.py": "from inner import width\n", "inner.py": text},
        }.items():
            found.append(Relative("import", f"{name}_{way}", (("train.py", main), *files.items())))
    return found


# --- orders of sets

SETS = {
    "vocabulary": "words = set('the quick brown fox jumps over it'.split())\nscale = [*words].index('fox') + 1\n",
    "comprehension": "scale = [*{w.upper() for w in 'the quick brown fox'.split()}].index('FOX') + 1\n",
    "hash": "scale = hash('fox') % 7 + 1\n",
}

RELATIVES = [
    *_checkpoints(),
    *(
        Relative("backward", name, (("train.py", steps(ONE, backward=text)),))
        for name, text in BACKWARDS.items()
    ),
    *_imports(),
    *(
        Relative("set", name, (("train.py", steps(text + ONE, "net(x) * scale")),))
        for name, text in SETS.items()
    ),
]
