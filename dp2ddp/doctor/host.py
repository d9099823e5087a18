"""What can be known of a machine without torch: its system, processors, memory, limits and settings."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from dp2ddp import __version__
from dp2ddp.installed import install, missing_for_runs
from dp2ddp.runtime.process.launch_command import SET_BY_TORCHRUN

State = Literal["good", "remark", "bad"]  # bad: training cannot work here before it is mended

TWO_RANKS = "two ranks"  # the name of the answer that counts most


@dataclass(frozen=True)
class Answer:
    """One line of `dp2ddp doctor`."""

    name: str  # what was asked: "shared memory"
    state: State
    text: str  # the facts, in words
    advice: str = ""  # what follows from them, and what to do


def answered(name: str, text: str, advice: str = "", state: State | None = None) -> Answer:
    """Where there is advice it is a remark, unless it is said to be something else."""
    return Answer(name, state or ("remark" if advice else "good"), text, advice)


def size(count: float) -> str:
    """Bytes in words: 64 MB, 1.5 GB."""
    for unit, factor in (("TB", 2**40), ("GB", 2**30), ("MB", 2**20)):
        if count >= factor:
            number = count / factor
            return f"{number:.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}".replace(".0 ", " ")
    return f"{count / 1024:.0f} KB"


GB = 2**30
SMALL_SHM = GB  # a loader with 4 workers keeps 8 batches there; docker's own 64 MB hold one of 100 images
FEW_FILES = 4096  # a batch that workers hand over takes a file descriptor for each tensor
RANK_MEMORY = GB // 2  # what a process with torch in it takes, before it has a model or data


def host_answers() -> Iterator[Answer]:
    """Everything that this process can find out by itself."""
    cores = usable_cores()
    system = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {sys.executable}"
    elsewhere = (
        "ranks meet and train with gloo here; NCCL, and what dp2ddp shares between ranks, is for Linux"
    )
    yield answered("Python", system, "" if sys.platform == "linux" else elsewhere)
    yield own_answer(missing_for_runs())
    shown, present = f"{cores:g} core{'s' if cores != 1 else ''}", os.cpu_count() or 1
    yield answered("processors", f"{shown} of {present} may be used here" if cores < present else shown)
    if find_spec("psutil"):
        from dp2ddp.runtime.process.room import read_room

        memory = read_room()
        yield memory_answer(memory.limit, memory.free)
    yield shared_memory_answer(shared_memory())
    yield open_files_answer(*resource.getrlimit(resource.RLIMIT_NOFILE))
    room = shutil.disk_usage(folder := tempfile.gettempdir()).free
    advice = "verify copies the project there, with its data: set TMPDIR to a folder with more room"
    yield answered("temporary files", f"{size(room)} free in {folder}", advice if room < GB else "")
    yield threads_answer(os.environ, cores)
    yield variables_answer(os.environ)


def own_answer(missing: Sequence[str]) -> Answer:
    """What of dp2ddp can run here; `missing` are packages."""
    what = "for converting and checking" if missing else "with all that verify needs"
    advice = f"verify, bench and run need {', '.join(missing)}: {install(missing)}" if missing else ""
    return answered("dp2ddp", f"{__version__}, {what}", advice)


def usable_cores() -> float:
    """Cores that this process may use: of those it is bound to, and of a container's quota."""
    bound = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1.0
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            return min(bound, int(quota) / int(period))
    return bound


def memory_answer(total: int, available: int) -> Answer:
    each = f"each rank takes about {size(RANK_MEMORY)} before it has a model or data: two of them do not fit"
    advice = each if available < 2 * RANK_MEMORY else ""
    return answered("memory", f"{size(total)}, {size(available)} of it free", advice)


def shared_memory() -> tuple[int, int] | None:
    """(bytes, free bytes) of /dev/shm; None where there is none."""
    with contextlib.suppress(OSError):
        usage = shutil.disk_usage("/dev/shm")
        return usage.total, usage.free
    return None


def shared_memory_answer(sizes: tuple[int, int] | None) -> Answer:
    total, free = sizes or (0, 0)
    text, advice = f"{size(free)} of {size(total)} in /dev/shm are free", ""
    if sizes is None:
        text, advice = "there is no /dev/shm", "loaders may need num_workers=0 here"
    elif total < SMALL_SHM:
        text = f"/dev/shm has {size(total)}"
        advice = (
            "DataLoader workers hand batches over in it, and die (Bus error) when it is full: start docker with "
            "--shm-size=8g (or --ipc=host), on Kubernetes mount an emptyDir in memory there"
        )
    elif free < SMALL_SHM:
        advice = "others have filled it: `ls -l /dev/shm`; files of processes that are gone may be removed"
    return answered("shared memory", text, advice)


def open_files_answer(soft: int, hard: int) -> Answer:
    if soft == resource.RLIM_INFINITY:
        return answered("open files", "as many as one likes")
    most = "unlimited" if hard == resource.RLIM_INFINITY else str(max(hard, FEW_FILES))
    advice = (
        'batches from loader workers take a file descriptor for each tensor ("Too many open files"): '
        f"`ulimit -n {most}` in the shell that trains"
    )
    return answered("open files", f"at most {soft}", advice if soft < FEW_FILES else "")


def threads_answer(variables: Mapping[str, str], cores: float) -> Answer:
    """OMP_NUM_THREADS, and the number of threads of a rank that follows."""
    given = variables.get("OMP_NUM_THREADS", "")
    half = max(1, int(cores // 2))
    if not given:
        text = "OMP_NUM_THREADS is not set: torchrun gives each rank one thread, and says so at length"
        advice = f"`export OMP_NUM_THREADS={half}` uses all cores with two ranks" if cores >= 4 else ""
        return answered("threads", text, advice, "good")
    if given.isdigit() and int(given) > half:
        advice = f"for each rank: two ranks have {2 * int(given)} threads on {cores:g} cores, which makes both slower"
        return answered("threads", f"OMP_NUM_THREADS={given}", advice)
    return answered("threads", f"OMP_NUM_THREADS={given}, for each rank")


def variables_answer(variables: Mapping[str, str]) -> Answer:
    """Settings that change how ranks meet, and those that are left over from a run."""
    left = [name for name in SET_BY_TORCHRUN if name in variables]
    names = ("NCCL_", "GLOO_", "TORCH_NCCL_", "TORCH_DISTRIBUTED_", "CUDA_VISIBLE_DEVICES")
    shown = [f"{name}={value}" for name, value in sorted(variables.items()) if name.startswith(names)]
    if "RANK" in left or "WORLD_SIZE" in left:
        advice = (
            f"a script believes that torchrun has started it, and waits for others: `unset {' '.join(left)}`"
        )
        return answered("variables", f"{', '.join(left)} set in this shell", advice)
    return answered("variables", ", ".join(shown) or "none that change how ranks meet")
