"""Which functions of torch.distributed the script calls, without what these call, and without the reducer in C++."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from dp2ddp.runtime.patches import replace_everywhere
from dp2ddp.trace.recorder import Recorder

NAMES = (
    *("all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter", "reduce_scatter_tensor"),
    *("all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object"),
    *("gather", "gather_object", "scatter", "scatter_object_list", "all_to_all", "all_to_all_single"),
    *("broadcast", "broadcast_object_list", "barrier", "monitored_barrier"),
    *("send", "recv", "isend", "irecv", "send_object_list", "recv_object_list", "batch_isend_irecv"),
)


def observe_collectives(recorder: Recorder) -> None:
    if not dist.is_available():
        return
    inside = threading.local()
    module: Any = dist.distributed_c10d
    for name in NAMES:
        if hasattr(module, name):
            original = getattr(module, name)
            replace_everywhere(name, original, _counted(original, name, recorder, inside))


def _counted(original: Callable[..., Any], name: str, recorder: Recorder, inside: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if getattr(inside, "yes", False):
            return original(*args, **kwargs)
        recorder.saw_collective(name)
        inside.yes = True
        try:
            return original(*args, **kwargs)
        finally:
            inside.yes = False

    return call
