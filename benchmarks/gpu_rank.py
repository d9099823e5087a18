"""What benchmarks/gpu.py runs as a rank, or as DataParallel's process: a script whose steps are timed and profiled.

    python gpu_rank.py FOLDER SCRIPT [ARGUMENTS]

Where there are more ranks than GPUs, all share the first, over gloo: NCCL wants a GPU for each rank.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import runpy
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

WARM, PROFILED = 4, 3  # steps that are left out, and that are profiled at the end
Spans = list[tuple[float, float]]


class Steps:
    """The steps of this process: seconds, peak memory, and how much of the sums ran beside other work."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.path = folder / f"{os.environ.get('RANK', '0')}.json"
        self.steps = steps
        self.ends: list[float] = []
        self.profiler: Any = None

    def stepped(self, *ignored: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())
        if len(self.ends) == self.steps - PROFILED:
            self.profiler = torch.profiler.profile()
            self.profiler.__enter__()
        elif len(self.ends) == self.steps:
            self.profiler.__exit__(None, None, None)

    def write(self) -> None:
        timed = self.ends[WARM : self.steps - PROFILED]
        told = {
            "step": statistics.median(b - a for a, b in zip(timed, timed[1:], strict=False)),
            "memory": peak_memory(),
            "beside": share_beside(self.profiler.events()) if self.profiler else None,
        }
        self.path.write_text(json.dumps(told), encoding="utf-8")


def peak_memory() -> int:
    """Bytes that were allocated at once on the GPU; without one, that the process had."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def share_beside(events: Any) -> float | None:
    """The share of the time of all_reduce in which something else was computed; None where nothing was summed."""
    on_gpu = [each for each in events if str(each.device_type).endswith("CUDA")]
    sums = united([span(each) for each in on_gpu if "allreduce" in each.name.lower()])
    work = united([span(each) for each in on_gpu if "nccl" not in each.name.lower()])
    if not sums:  # gloo's are on the host
        sums = united([span(each) for each in events if each.name.startswith("gloo:all_reduce")])
        if not on_gpu:
            work = united([span(each) for each in events if "backward" in each.name.lower()])
    whole = sum(end - start for start, end in sums)
    return common(sums, work) / whole if whole else None


def span(event: Any) -> tuple[float, float]:
    return event.time_range.start, event.time_range.end


def united(spans: Spans) -> Spans:
    """Spans that do not overlap, in order, and cover the same time."""
    found: Spans = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def common(one: Spans, other: Spans) -> float:
    """How much time is in both."""
    return sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in one for b in other)


def share_the_gpu() -> None:
    """All ranks use the first GPU, over gloo."""
    init = dist.init_process_group
    os.environ["LOCAL_RANK"] = "0"
    dist.init_process_group = lambda backend=None, **given: init("gloo", **given)


def main() -> None:
    folder, script, *arguments = sys.argv[1:]
    if torch.cuda.is_available() and int(os.environ.get("LOCAL_WORLD_SIZE", 1)) > torch.cuda.device_count():
        share_the_gpu()
    steps = Steps(Path(folder), int(arguments[arguments.index("--steps") + 1]))
    register_optimizer_step_post_hook(steps.stepped)
    atexit.register(steps.write)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
