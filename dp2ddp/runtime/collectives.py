"""Observes the functions of torch.distributed that a rank calls: the outermost ones, with the user's line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from dp2ddp.runtime.collective_calls import CallRing
from dp2ddp.runtime.stacks import users_line
from dp2ddp.taps import Taps

COLLECTIVES = (
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "gather_into_tensor",
    "irecv",
    "isend",
    "monitored_barrier",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "reduce_scatter_single",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
)
_OF_GROUPS = ("init_process_group", "new_group", "destroy_process_group")  # which all ranks have to call, too


def observe_collectives(calls: CallRing, add: Callable[[str, str], None] | None = None) -> None:
    """Note each call in the run folder, before it is made; `add` is told of the collectives among them."""
    import torch
    import torch.distributed as dist

    if not dist.is_available():
        return
    module: Any = dist.distributed_c10d
    inside = threading.local()

    def noted(name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Any: functions of torch."""
        if getattr(inside, "deep", False):
            return original(*args, **kwargs)
        inside.deep = True
        try:
            calls.add(name, _what(args, kwargs), _group(args, kwargs), users_line())
            if add and name in COLLECTIVES:
                add("collectives", name)
            return original(*args, **kwargs)
        finally:
            inside.deep = False

    taps = Taps()
    taps.everywhere(module, {name: partial(noted, name) for name in (*COLLECTIVES, *_OF_GROUPS)})
    wrapper = torch.nn.parallel.DistributedDataParallel  # whose ranks meet when it is made
    taps.around("__init__", partial(noted, "DistributedDataParallel"), wrapper)
    taps.around("wait", wait_for_collective, module.Work)


def wait_for_collective(original: Any, work: Any, *args: Any, **kwargs: Any) -> Any:
    """Work.wait of an asynchronous collective, as a frame that a stack shows."""
    return original(work, *args, **kwargs)


def group_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The group that a collective is asked for; None: that of all ranks."""
    from torch.distributed import ProcessGroup

    return kwargs.get("group") or next((each for each in args if isinstance(each, ProcessGroup)), None)


def _group(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Nothing for all ranks, also where they are a group beside that of NCCL."""
    from torch.distributed import get_world_size

    given = group_of(args, kwargs)
    return "" if given is None or get_world_size(given) == get_world_size() else "group"


def _what(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Shape and dtype of the first tensor; or how many ranks are to meet."""
    from dp2ddp.runtime.tensor_places import tensors_in

    if "world_size" in kwargs:
        return f"{kwargs['world_size']} ranks"
    tensors = tensors_in((*args, *kwargs.values()))
    if not tensors:
        return ""
    tensor = tensors[0]
    shape = "x".join(map(str, tensor.shape)) or "one number"
    return f"{str(tensor.dtype).removeprefix('torch.')} {shape}"
