"""Whether the sums of gradients run beside backward: what torch's profiler saw of a few steps on each rank.

Times are of the device's kernels where NCCL sums; with gloo, of what gloo notes from a sum's start to its end (waiting
for other ranks included), beside the device's kernels, or beside backward's own functions on a processor.
"""

from __future__ import annotations

import atexit
import json
import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from counting import WARM, let_reducers_go
from torch.optim.optimizer import register_optimizer_step_post_hook

MEASURED = 4  # steps
Spans = list[tuple[float, float]]
BACKWARD = re.compile(r"^autograd::engine::evaluate_function: \w+Backward\d+$")  # torch's own, not a helper's
NO_COMPUTE = ("nccl", "memcpy", "memset", "#", "optimizer.", "distributeddataparallel")


def begin() -> None:
    """Profile this process, which leaves what was seen in the folder COUNTS."""
    steps = ProfiledSteps(Path(os.environ["COUNTS"]) / f"rank{os.environ.get('RANK', '0')}.json")
    register_optimizer_step_post_hook(steps.stepped)
    atexit.register(let_reducers_go)


class ProfiledSteps:
    """The steps of one process; of several optimizers, those of the one that stepped first."""

    def __init__(self, place: Path) -> None:
        self.place, self.process = place, os.getpid()
        self.first: object = None
        self.count = 0
        self.profiler: Any = None  # torch's

    def stepped(self, optimizer: object, *ignored: object) -> None:
        self.first = self.first or optimizer
        if optimizer is not self.first or os.getpid() != self.process:
            return
        self.count += 1
        if self.count == WARM:
            kinds = [torch.profiler.ProfilerActivity.CPU]
            if torch.cuda.is_available():
                kinds.append(torch.profiler.ProfilerActivity.CUDA)
            self.profiler = torch.profiler.profile(activities=kinds)
            self.profiler.start()
        elif self.count == WARM + MEASURED:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.profiler.stop()
            self.place.write_text(json.dumps(read(self.profiler.events())), encoding="utf-8")


def read(events: Iterable[Any]) -> dict[str, float]:
    """Sums in a step, how many of them set out before backward's last function, and their time, in seconds."""
    host: dict[str, Spans] = {"sums": [], "asked": [], "backward": [], "steps": []}
    device: dict[str, Spans] = {"sums": [], "compute": []}
    for event in events:
        name, span = event.name, (event.time_range.start, event.time_range.end)
        if event.device_type.name == "CPU":
            for kind, is_it in HOST_KINDS.items():
                if is_it(name):
                    host[kind].append(span)
        elif "nccl" in name.lower():
            if "allreduce" in name.lower().replace("_", ""):
                device["sums"].append(span)
        elif not getattr(event, "is_user_annotation", False) and not any(
            one in name.lower() for one in NO_COMPUTE
        ):
            device["compute"].append(span)
    sums = united(device["sums"] or host["sums"])
    beside = shared(sums, united(device["compute"] or host["backward"]))
    return {
        "sums": len(host["asked"]) / MEASURED,
        "early": count_early(host) / MEASURED,
        "seconds": length(sums) / MEASURED / 1e6,
        "beside": length(beside) / MEASURED / 1e6,
    }


HOST_KINDS: dict[str, Callable[[str], bool]] = {
    "sums": lambda name: name in ("gloo:all_reduce", "nccl:all_reduce"),
    "asked": lambda name: name == "c10d::allreduce_",
    "backward": lambda name: bool(BACKWARD.match(name)),
    "steps": lambda name: name.startswith("Optimizer.step#"),
}


def count_early(host: dict[str, Spans]) -> int:
    """Sums that were asked for before the last function of backward began, in the same step."""
    steps = sorted(start for start, _ in host["steps"])
    last: dict[int, float] = {}
    for start, _ in host["backward"]:
        step = bisect_left(steps, start)
        last[step] = max(start, last.get(step, start))
    return sum(start < last.get(bisect_left(steps, start), start) for start, _ in host["asked"])


# ---- spans of time


def united(spans: Spans) -> Spans:
    """The same time in spans that do not touch, in order."""
    found: Spans = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def shared(left: Spans, right: Spans) -> Spans:
    """The time that two lists of separate spans have in common."""
    pairs = ((max(a, c), min(b, d)) for a, b in left for c, d in right)
    return [(start, end) for start, end in pairs if start < end]


def length(spans: Spans) -> float:
    return sum(end - start for start, end in spans)
