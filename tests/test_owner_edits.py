"""Conversions that their owner goes on to edit, without a thought for ranks: right."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from ranks import run_program

from dp2ddp.cli import main
from dp2ddp.runtime.process.server import Server

# What the owner writes into script and conversion alike, behind the loop over the loader of the conversion.
EDITS = {
    "counts samples by the batch's size": """
seen, right = 0, 0
for x, y in loader:
    seen += x.size(0)
    right += (net(x).argmax(1) == y).sum().item()
print(seen, right, len(x), x.shape[0], y.numel())
""",
    "a second loader": """
from torch.utils.data import DataLoader

other = DataLoader(TensorDataset(data[:22] * 2, labels[:22]), batch_size=8)
for x, y in other:
    out = net(x)
    loss = F.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}", len(out), len(y))
""",
    "a new metric": """
confusion, scores = torch.zeros(5, 5), []
with torch.no_grad():
    for x, y in loader:
        out = net(x)
        for t, p in zip(y.view(-1), out.argmax(1).view(-1)):
            confusion[t.long(), p.long()] += 1
        scores.extend(out.softmax(1).max(1).values.tolist())
        spread = (out - out.mean(0)).std().item()
print(confusion.tolist(), len(scores), f"{sum(scores):.4f} {spread:.4f}", [f"{one:.4f}" for one in sorted(scores)[:5]])
""",
    "outputs kept over an epoch": """
kept = [(net(x).detach(), y) for x, y in loader]
out, y = torch.cat([o for o, _ in kept]), torch.cat([y for _, y in kept])
print(tuple(out.shape), len(y), f"{F.cross_entropy(out, y).item():.5f} {out.cumsum(0)[-1].norm().item():.3f}")
""",
    "a batch that is written into": """
for x, y in loader:
    x[0] = 0.0
    x[:, 1] *= 2
    y[y == 2] = 1
    print(f"{F.cross_entropy(net(x), y).item():.5f}", int(y.sum()), f"{x.sum().item():.3f}")
""",
}
# Batches are large, so that with workers ranks map their memory.
SCRIPT = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)  # whose rounding five digits do not show, whatever the processor
data, labels = torch.randn(38, 4000), torch.arange(38) % 5
net = nn.DataParallel(nn.Linear(4000, 5))
optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
loader = DataLoader(TensorDataset(data, labels), batch_size=8, shuffle=True, num_workers=WORKERS)
for x, y in loader:
    loss = F.cross_entropy(net(x), y)PENALTY
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
# later
"""


PENALTIES = {"WholeBatchDDP": "", "WholeBatchParallel": " + sum(p.norm() for p in net.parameters())"}


def both(folder: Path, workers: int, wrapper: str) -> tuple[str, str]:
    """The script and its conversion, each with the edits."""
    script = SCRIPT.replace("WORKERS", str(workers)).replace("PENALTY", PENALTIES[wrapper])
    (folder / "train.py").write_text(script)
    assert CliRunner().invoke(main, ["convert", str(folder / "train.py")]).exit_code == 0
    text = (folder / "train_ddp.py").read_text()
    assert f"= {wrapper}(" in text
    if workers:
        assert "= Rank0Loader(" in text
    edits = "".join(EDITS.values())
    return script.replace("# later", edits), text.replace("# later", edits)


def ended(folder: Path, server: Server, texts: tuple[str, str]) -> list[subprocess.CompletedProcess[str]]:
    """The script in one process, and the conversion on two ranks."""
    found = []
    for name, ranks, text in zip(("train.py", "train_ddp.py"), (0, 2), texts, strict=True):
        (folder / name).write_text(text)
        found.append(run_program(server, folder, name, ranks=ranks))
    assert found[0].returncode == 0, found[0].stderr
    return found


@pytest.mark.torchrun
@pytest.mark.parametrize(
    ("workers", "wrapper"),
    [
        (0, "WholeBatchDDP"),
        (1, "WholeBatchParallel"),
        pytest.param(1, "WholeBatchDDP", marks=pytest.mark.slow),
        pytest.param(0, "WholeBatchParallel", marks=pytest.mark.slow),
    ],
)
def test_all_that_the_owner_adds_is_right(tmp_path: Path, server: Server, workers: int, wrapper: str) -> None:
    alone, ranks = ended(tmp_path, server, both(tmp_path, workers, wrapper))
    assert ranks.returncode == 0, ranks.stderr
    assert ranks.stdout == alone.stdout
    assert len(alone.stdout.splitlines()) >= 11
