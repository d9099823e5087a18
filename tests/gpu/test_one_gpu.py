"""Real CUDA devices: DataParallel as torch runs it against the converted script under torchrun.

No stage, no recorder: both are started as a user would start them, and what they leave behind is compared.
With `device_ids=[0, 0]` one GPU stands for two; its two replicas draw from one generator in the order in
which threads happen to run, so there is no dropout where a device is used twice.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dp2ddp.runtime.process.meeting import free_port

PROGRAM = Path(__file__).parent.parent / "programs" / "on_gpu.py"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


def write_program(folder: Path, devices: list[int], dropout: float) -> Path:
    given = devices if len(devices) > 1 else None  # a wrap on one device that the text names is not converted
    text = PROGRAM.read_text().replace("DEVICES", repr(given)).replace("DROPOUT", repr(dropout))
    (folder / "train.py").write_text(text)
    return folder / "train.py"


def run(folder: Path, *command: str, visible: str) -> str:
    folder.mkdir(exist_ok=True)
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": visible, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def train_both_ways(
    folder: Path, devices: list[int], dropout: float = 0.0, backend: str = "nccl"
) -> tuple[str, str]:
    """What DataParallel prints, what as many ranks print; each leaves final.pt in a folder of its own."""
    visible = ",".join(str(device) for device in sorted(set(devices)))
    script = write_program(folder, devices, dropout)
    converted = script.with_name("train_ddp.py")
    run(folder, sys.executable, "-m", "dp2ddp", "convert", str(script), visible=visible)
    original = run(folder / "dp", sys.executable, str(script), visible=visible)
    spy = folder / "spy.py"
    spy.write_text(
        "import atexit, runpy, sys, torch.distributed as dist\n"
        "init = dist.init_process_group\n"
        "def told(*a, **k):\n"
        "    init(*a, **k)\n"
        "    open(f'backend{dist.get_rank()}', 'w').write(dist.get_backend())\n"
        "dist.init_process_group = told\n"
        f"runpy.run_path({str(converted)!r}, run_name='__main__')\n"
    )
    ranks = run(folder / "ddp", *TORCHRUN, str(len(devices)), str(spy), visible=visible)
    assert {p.read_text() for p in (folder / "ddp").glob("backend*")} == {backend}
    return original, ranks


def largest_difference(folder: Path) -> float:
    """The largest difference of one tensor of final.pt, relative to its largest number.

    Where one device is used twice, torch's broadcast_coalesced hands a buffer that is the only one of its type to both
    replicas as it is, so each batch counts twice.
    """
    import torch

    left, right = (
        torch.load(folder / mode / "final.pt", map_location="cpu", weights_only=True)
        for mode in ("dp", "ddp")
    )
    assert list(left) == list(right)
    return max(
        float((left[k].double() - right[k].double()).abs().max() / left[k].double().abs().max()) for k in left
    )


@pytest.mark.gpu
@pytest.mark.torchrun
def test_one_gpu_used_twice_trains_as_two_ranks_on_it_over_gloo(tmp_path: Path) -> None:
    original, ranks = train_both_ways(tmp_path, devices=[0, 0], backend="gloo")
    assert ranks == original
    assert largest_difference(tmp_path) <= 1e-10


@pytest.mark.gpu
@pytest.mark.torchrun
def test_one_gpu_used_twice_trains_as_two_nodes_with_a_gpu_each_over_nccl(tmp_path: Path) -> None:
    """NCCL refuses one GPU for two ranks of a machine: NCCL_HOSTID lets each rank be a machine of its own."""
    script = write_program(tmp_path, [0, 0], 0.0)
    converted = script.with_name("train_ddp.py")
    run(tmp_path, sys.executable, "-m", "dp2ddp", "convert", str(script), visible="0")
    original = run(tmp_path / "dp", sys.executable, str(script), visible="0")
    (tmp_path / "ddp").mkdir()
    port = free_port()
    nodes = [start_node(tmp_path / "ddp", converted, rank, port) for rank in range(2)]
    told = [node.communicate(timeout=300) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], told
    assert told[0][0] == original
    assert largest_difference(tmp_path) <= 1e-10


def start_node(folder: Path, script: Path, rank: int, port: int) -> subprocess.Popen[str]:
    """A rank that is alone on its machine."""
    rendezvous = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": port}
    nccl = {"NCCL_HOSTID": f"node{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": 1}
    variables = {"MASTER_ADDR": "127.0.0.1", "CUDA_VISIBLE_DEVICES": 0, **rendezvous, **nccl}
    return subprocess.Popen(
        [sys.executable, str(script)],
        cwd=folder,
        env={**os.environ, **{name: str(value) for name, value in variables.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.gpu
@pytest.mark.torchrun
def test_a_world_of_one_over_nccl_trains_as_one_device(tmp_path: Path) -> None:
    original, ranks = train_both_ways(tmp_path, devices=[0], dropout=0.3)
    assert ranks == original
    assert largest_difference(tmp_path) <= 1e-10


@pytest.mark.gpu(devices=2)
@pytest.mark.torchrun
def test_two_devices_over_nccl_train_as_data_parallel_does_with_dropout(tmp_path: Path) -> None:
    original, ranks = train_both_ways(tmp_path, devices=[0, 1], dropout=0.3)
    assert ranks == original
    assert largest_difference(tmp_path) <= 1e-10
