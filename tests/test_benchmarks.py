"""What benchmarks/counted counts, against what a script is known to do; and that each port in benchmarks/ports runs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent

# each step, on every rank: 2 collectives of 40 and 24 bytes, 1 of the two buffers of BatchNorm and its count, whose
# size is 2 * 4 * 4 + 8; 1 of gradients by a hook; 7 * 4 * 4 bytes to the device; 4 waits, one of them of a helper
SCRIPT = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from ddp_helpers import look

torch.cuda.set_device(int(__import__("os").environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).cuda())

def hook(state, bucket):
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])

model.register_comm_hook(None, hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
other = torch.optim.SGD(model.parameters(), lr=0.0)
for step in range(6):
    x = torch.randn(7, 4).cuda()
    loss = model(x).square().sum()
    optimizer.zero_grad()
    loss.backward()
    dist.all_reduce(torch.zeros(10, device="cuda"))
    parts = [torch.zeros(3, device="cuda") for _ in range(dist.get_world_size())]
    dist.all_gather(parts, torch.ones(3, device="cuda"))
    loss.item(), parts[0].cpu(), look(loss)
    if loss > 0:
        torch.ones(3).sum().item()  # on the host: nobody waits
    other.step()
    optimizer.step()
dist.destroy_process_group()
"""
HELPERS = """
def look(loss):
    return loss.detach().tolist()
"""


@pytest.fixture(scope="module")
def ports() -> ModuleType:
    return benchmark("ports")


def benchmark(name: str) -> ModuleType:
    """A module of the folder benchmarks."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


@pytest.mark.torchrun
def test_what_a_rank_does_in_a_step_is_counted(ports: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "ddp_helpers.py").write_text(HELPERS, encoding="utf-8")
    found = ports.counted(tmp_path, "train.py", "ddp", 2, [], steps=6)
    assert len(found.ranks) == 2
    assert all(len(steps) == 3 for steps in found.ranks)  # without the first three
    assert found.a_step("collectives") == 3
    assert found.a_step("exchanged") == 40 + 24 + (2 * 4 * 4 + 8)
    assert found.a_step("gradients") == 4 * (4 * 4 + 4 + 4 + 4)
    gradients, sent = found.a_step("gradients"), found.a_step("sent")
    # two ranks: each sends its half twice in a sum, its part of a gather, rank 0 the buffers; gloo's headers beside it
    assert gradients + 40 + 12 < sent < gradients + 40 + 12 + 40 + 3000
    assert found.a_step("moved") == 7 * 4 * 4
    assert found.all_ranks("moved") == 2 * 7 * 4 * 4
    assert found.a_step("waits") == 4
    assert found.a_step("waits of helpers") == 1
    assert found.places("wait in ") == "look 1"
    assert found.places("by ") == "train.py:<module> 3"


def test_every_folder_has_all_versions(ports: ModuleType) -> None:
    folders = {path.name for path in ports.PORTS.iterdir() if path.is_dir()}
    assert folders == set(ports.NAMES)
    for name in folders:
        missing = [
            stem
            for stem in ("train_dp", *ports.KINDS.values())
            if not (ports.PORTS / name / f"{stem}.py").exists()
        ]
        assert missing == ["train_converted"]


def test_data_parallel_sends_what_docs_scaling_says(ports: ModuleType) -> None:
    scaling = benchmark("scaling")
    sizes = scaling.SIZES["tiny"]()
    found = ports.counted(ports.PORTS / "tiny", "train_dp.py", "dp", 3, ["--steps", "6"], steps=6)
    assert found.all_ranks("moved") == sizes.batch * sizes.row
    # 16 rows are 6 + 6 + 4: ten leave device 0, and their outputs come back; weights go to two devices
    assert found.all_ranks("between devices") == 10 * (3 * 8 * 8 * 4 + 10 * 4) + 2 * sizes.parameters
    assert found.all_ranks("between devices") == scaling.data_parallel(sizes, 3)


ENDS = """
import torch, torch.distributed as dist, counting
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = DistributedDataParallel(torch.nn.Linear(2, 2))
model(torch.ones(1, 2)).sum().backward()
assert model.reducer
counting.let_reducers_go()
assert not hasattr(model, "reducer")
assert not hasattr(model, "logger")
dist.destroy_process_group()
"""


def test_a_rank_that_has_counted_lets_its_reducers_go() -> None:
    """One that outlives the interpreter aborts it now and then, and a port by hand keeps its model to the end."""
    subprocess.run([sys.executable, "-c", ENDS], cwd=ROOT / "benchmarks" / "counted", check=True, timeout=120)


def test_a_port_that_fails_is_no_measurement(ports: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(3)", encoding="utf-8")
    with pytest.raises(RuntimeError, match="train ended with 3"):
        ports.run(tmp_path, ["train"], 5, RANK="0")
