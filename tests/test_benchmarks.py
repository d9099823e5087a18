"""What benchmarks/ measures, against what scripts and texts are known to do; and that what waits for a GPU runs."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from click.testing import CliRunner

from dp2ddp.cli import main

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_rank_that_has_counted_lets_its_reducers_go() -> None:
    """One that outlives the interpreter aborts it now and then, and a port by hand keeps its model to the end."""
    subprocess.run([sys.executable, "-c", ENDS], cwd=ROOT / "benchmarks" / "counted", check=True, timeout=120)


@pytest.mark.slow
def test_a_port_that_fails_is_no_measurement(ports: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(3)", encoding="utf-8")
    with pytest.raises(RuntimeError, match="train ended with 3"):
        ports.run(tmp_path, ["train"], 5, RANK="0")


# ---- gpu.py


@pytest.mark.slow
@pytest.mark.torchrun
def test_what_waits_for_a_gpu_runs_on_the_processor(tmp_path: Path) -> None:
    """The same code: a conversion's weights are those of DataParallel, and its sums are seen by the profile."""
    out = tmp_path / "gpu.md"
    only = ["--small", "--no-tests", "--programs", "images", "--versions", "converted"]
    command = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), *only, "--out", str(out)]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False)
    assert told.returncode == 0, told.stderr
    rows = [line.split(" | ") for line in told.stdout.splitlines() if line.startswith("| ResNet-50")]
    titles = ["DataParallel", "DataParallel again", "converted", "converted"]
    assert [row[1] for row in rows] == titles, told.stdout
    assert all(float(row[-1].removesuffix(" |")) < 1e-4 for row in rows[1:3])
    assert int(rows[3][2]) >= 1
    assert re.fullmatch(r"[\d.]+ ms", rows[3][4])
    assert out.read_text() == told.stdout


@pytest.fixture(scope="module")
def gpu() -> ModuleType:
    return benchmark("gpu")


def test_scripts_are_told_that_two_ranks_share_a_device(gpu: ModuleType, tmp_path: Path) -> None:
    for work in gpu.WORKS:
        place = tmp_path / work.folder
        gpu.lay_out(work, place, shared=True)
        port, script = ((place / name).read_text() for name in ("train_ddp.py", "train_dp.py"))
        assert 'dist.init_process_group("gloo")' in port
        assert "local_rank = 0\n" in port
        wraps = re.findall(r"^\w+ = nn\.DataParallel\((.+)\)$", script, re.MULTILINE)
        assert wraps
        assert all(wrap.endswith(".to(device), device_ids=[0, 0]") for wrap in wraps)


def test_a_part_that_fails_or_has_no_time_stops_nothing(gpu: ModuleType, tmp_path: Path) -> None:
    report = gpu.Report(gpu.time.monotonic() + 100, tmp_path / "out.md")
    report.say("begun")
    assert report.attempt("one", 10, lambda number, patience: (number, patience), 7) == (7, 10)
    assert report.attempt("two", 10, gpu.run, tmp_path, ["no_such_module"], 5) is None
    assert "No module named no_such_module" in report.failures[0]
    report.end = gpu.time.monotonic()
    assert report.attempt("three", 10, lambda patience: 1) is None
    assert (tmp_path / "out.md").read_text() == "\n".join(["begun", *report.failures]) + "\n"


def test_a_command_that_takes_too_long_is_ended(ports: ModuleType, tmp_path: Path) -> None:
    code, _ = ports.run_for(0.5, [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, {})
    assert code == "nothing within 0 s"


def event(name: str, start: float, end: float, kind: str = "CPU") -> SimpleNamespace:
    """What torch.profiler gives; microseconds."""
    device = SimpleNamespace(name=kind)
    return SimpleNamespace(
        name=name,
        time_range=SimpleNamespace(start=start, end=end),
        device_type=device,
        is_user_annotation=False,
    )


HOST = [
    event("autograd::engine::evaluate_function: AddmmBackward0", 0, 40),
    event("c10d::allreduce_", 30, 32),  # early: one more function comes
    event("autograd::engine::evaluate_function: ReluBackward0", 50, 60),
    event("autograd::engine::evaluate_function: CopyToRanksBackward", 60, 95),  # a helper's, which only waits
    event("c10d::allreduce_", 70, 72),  # behind them
    event("Optimizer.step#SGD.step", 100, 110),
    event("autograd::engine::evaluate_function: AddmmBackward0", 120, 130),
    event("c10d::allreduce_", 140, 142),
    event("Optimizer.step#SGD.step", 150, 160),
]


@pytest.fixture
def overlapping(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "counted"))
    monkeypatch.setenv("COUNTS_RANK", "0")  # it notes this one, for good
    module = importlib.import_module("overlapping")
    monkeypatch.setattr(module, "MEASURED", 2)  # steps in HOST
    return module


def test_sums_of_gloo_are_seen_beside_the_functions_of_backward(overlapping: ModuleType) -> None:
    gloo = [
        event("gloo:all_reduce", 30, 80),
        event("gloo:all_reduce", 70, 90),
        event("gloo:all_reduce", 140, 148),
    ]
    found = overlapping.read([*HOST, *gloo])
    # 30 to 90 and 140 to 148; of these 30 to 40 and 50 to 60 beside backward
    assert found == pytest.approx({"sums": 1.5, "early": 0.5, "seconds": 34e-6, "beside": 10e-6})


def test_sums_of_nccl_are_seen_beside_kernels(overlapping: ModuleType) -> None:
    device = [
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 35, 75, "CUDA"),
        event("ncclDevKernel_AllGather_RING_LL", 0, 20, "CUDA"),
        event("cutlass_80_simt_sgemm", 30, 55, "CUDA"),
        event("Memcpy DtoD (Device -> Device)", 55, 75, "CUDA"),
        event("Optimizer.step#SGD.step", 0, 200, "CUDA"),  # a span over kernels, none itself
    ]
    found = overlapping.read([*HOST, event("nccl:all_reduce", 30, 31), *device])
    assert found == pytest.approx({"sums": 1.5, "early": 0.5, "seconds": 20e-6, "beside": 10e-6})


# ---- helper_lines.py

MODULE = '''"""A module."""

import os

# a comment


class Rule:
    """Two
    lines."""

    examples = (
        "one",
    )
    code = """
    text"""

    def look(self):
        """What it does."""
        return os
'''


def test_logic_is_what_is_neither_prose_nor_example() -> None:
    lines = benchmark("helper_lines").count_lines(MODULE)
    assert lines.everything == MODULE.count("\n")
    assert lines.logic == 6  # import, class, code (2), def, return


def test_lines_of_helpers_are_those_of_the_file_that_is_written(tmp_path: Path) -> None:
    module = benchmark("helper_lines")
    script = tmp_path / "train.py"
    script.write_text("import torch\nnet = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n", encoding="utf-8")
    (tmp_path / "plain.py").write_text("print(1)\n", encoding="utf-8")
    found, plain = (
        module.outcome_of(module.Started(name, tmp_path, name)) for name in ("train.py", "plain.py")
    )
    assert CliRunner().invoke(main, ["convert", str(script)]).exit_code == 0
    assert found.lines == len((tmp_path / "ddp_helpers.py").read_text().splitlines())
    assert (found.kind, plain.kind, plain.lines) == (module.Kind.CONVERTED, module.Kind.UNCHANGED, 0)
