"""What torch's own words (torch_program.py) mean for training."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dp2ddp.codemod.knowledge.wrapping_libraries import UNASKED
from dp2ddp.doctor.host import Answer, answered, size

OLDEST = (2, 4)  # of torch, for dp2ddp's helpers; pyproject.toml says the same
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
GPU_DRIVERS = (NVIDIA_DRIVER, Path("/dev/kfd"), Path("/dev/dxg"))  # NVIDIA's, AMD's, Windows' for WSL


def broken_torch(words: str) -> Answer:
    return answered("torch", f"cannot be imported: {words}", "install it anew: pip install torch", "bad")


def torch_answers(said: Mapping[str, Any], driver: str | None) -> Iterator[Answer]:
    """`driver`: the version of the machine's NVIDIA driver, if it has one."""
    yield torch_answer(str(said["version"]), bool(said["distributed"]))
    yield cuda_answer(said, driver)
    yield devices_answer(said["devices"])
    if len(said["devices"]) > 1:
        yield peers_answer(said["peers"])
        if wrapping := [name for name in UNASKED if find_spec(name)]:
            yield libraries_answer(wrapping)
    yield backends_answer(bool(said["gloo"]), said["nccl"], len(said["devices"]))


def libraries_answer(wrapping: Sequence[str]) -> Answer:
    """`wrapping`: the packages here that wrap models in DataParallel by themselves."""
    names = ", ".join(wrapping)
    text = f"{names}: their Trainer takes all GPUs into one process, in DataParallel, under python"
    advice = "start its scripts by torchrun; `dp2ddp convert SCRIPT` says what else they need"
    return answered("libraries", text, advice, "good")


def torch_answer(version: str, distributed: bool) -> Answer:
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST:
        advice = "dp2ddp's helpers need 2.4 or newer: pip install -U torch"
        return answered("torch", version, advice, "bad")
    if not distributed:
        text = f"{version}, built without torch.distributed"
        return answered("torch", text, "take another build", "bad")
    return answered("torch", version)


def driver_version() -> str | None:
    """The version of the NVIDIA driver that the kernel has loaded."""
    try:
        version = re.search(r"\s(\d+\.\d+[.\d]*)\s", NVIDIA_DRIVER.read_text())
    except OSError:
        return None
    return version[1] if version else "of an unknown version"


def may_have_gpus() -> bool:
    """Whether the kernel has a driver for GPUs that torch can use; without starting torch."""
    return any(path.exists() for path in GPU_DRIVERS)


def cuda_answer(said: Mapping[str, Any], driver: str | None) -> Answer:
    built = f"CUDA {said['cuda']}" if said["cuda"] else f"ROCm {said['rocm']}" if said["rocm"] else ""
    machine = f"NVIDIA driver {driver}" if driver else "no NVIDIA driver"
    if not built:
        advice = "GPUs need a build with CUDA: https://pytorch.org/get-started/locally" if driver else ""
        return answered("CUDA", f"torch is a build for CPUs only; {machine}", advice)
    advice = (
        "torch does not reach the driver: it may be older than this CUDA needs, or CUDA_VISIBLE_DEVICES is empty; "
        "`nvidia-smi` shows what the driver has"
    )
    unreached = driver and not said["available"]
    return answered("CUDA", f"torch is built for {built}; {machine}", advice if unreached else "")


def devices_answer(devices: Sequence[Mapping[str, Any]]) -> Answer:
    if not devices:
        advice = "`dp2ddp verify` compares on virtual devices on the CPU; torchrun trains on the CPU here, with gloo"
        return answered("GPUs", "torch sees none here", advice, "good")
    text = _shown(devices)
    broken = [f"{index}: {device['error']}" for index, device in enumerate(devices) if device["error"]]
    if broken:
        return answered("GPUs", text, f"does not add two numbers: {'; '.join(broken)}", "bad")
    if len(devices) == 1:
        advice = "one GPU is one rank; `dp2ddp verify -n 2` compares on virtual devices on the CPU"
        return answered("GPUs", text, advice, "good")
    advice = f"`torchrun --standalone --nproc-per-node {len(devices)}` uses all of them"
    if len({device["name"] for device in devices}) > 1:
        return answered("GPUs", text, f"{advice}; they differ, and the slowest sets the pace")
    busy = [str(index) for index, device in enumerate(devices) if device["free"] < 0.8 * device["memory"]]
    if busy:
        others = f"somebody else's memory is on GPU {', '.join(busy)}: `nvidia-smi` says whose"
        return answered("GPUs", text, others)
    return answered("GPUs", text, advice, "good")


def _shown(devices: Sequence[Mapping[str, Any]]) -> str:
    """Each model in a part, with its numbers: "0, 1: A100, 80 GB, at least 79 GB free"."""
    models: dict[tuple[str, int], list[int]] = {}
    for index, device in enumerate(devices):
        models.setdefault((device["name"], device["memory"]), []).append(index)
    parts = []
    for (name, memory), indices in models.items():
        free = [devices[index]["free"] for index in indices if devices[index]["free"] is not None]
        least = f", {'at least ' if len(indices) > 1 else ''}{size(min(free))} free" if free else ""
        parts.append(f"{', '.join(map(str, indices))}: {name}, {size(memory)}{least}")
    return "; ".join(parts)


def peers_answer(peers: Sequence[Sequence[bool]]) -> Answer:
    """The matrix of who reads whose memory."""
    count = len(peers)
    apart = [
        f"{i}-{j}" for i in range(count) for j in range(i + 1, count) if not (peers[i][j] and peers[j][i])
    ]
    if not apart:
        return answered("GPU to GPU", "each reads the memory of each other (P2P)")
    pairs = "no pair" if len(apart) == count * (count - 1) // 2 else f"not {', '.join(apart)}"
    advice = (
        "gradients go through the host's memory there, slower, for DataParallel as for DDP; if ranks hang in their "
        "first collective: NCCL_P2P_DISABLE=1"
    )
    return answered("GPU to GPU", f"P2P: {pairs}", advice)


def backends_answer(gloo: bool, nccl: str | None, devices: int) -> Answer:
    text = f"gloo {'is there' if gloo else 'is missing'}, NCCL {nccl or 'is missing'}"
    if not gloo:
        advice = "ranks meet and exchange small messages by gloo: take another build of torch"
        return answered("backends", text, advice, "bad")
    slow = "without NCCL the GPUs exchange gradients through the host, by gloo: slow"
    return answered("backends", text, slow if not nccl and devices > 1 else "")
