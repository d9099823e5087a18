"""torch.distributed on virtual devices: a program that asks for NCCL gets gloo, which serves the same calls
on the CPU.

DistributedDataParallel itself needs nothing: it asks tensors where they are, and they say cuda:N.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from .machine import Machine
from .nccl import Nccl
from .patches import Patches


def install_distributed(patches: Patches, machine: Machine) -> None:
    """Let a program that asks for NCCL get gloo, with NCCL's rules."""
    if not dist.is_available():
        return
    nccl = Nccl(machine)
    both = dist.distributed_c10d, dist
    for name in ("init_process_group", "new_group"):
        patches.wrap(name, lambda original: _without_nccl(original, nccl), *both)
    patches.wrap("barrier", _without_device_ids, *both)
    patches.wrap("all_reduce", _averaging, *both)
    nccl.install(patches)
    patches.wrap("is_nccl_available", _always, *both)
    patches.set(torch.cuda.nccl, "is_available", no_nccl)
    patches.set(torch.multiprocessing, "spawn", _forking)


def no_nccl(tensors: Any) -> bool:
    """torch.cuda.nccl.is_available; False sends comm.reduce_add to its own sum in device order."""
    return False


def _forking(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    **_: Any,
) -> Any:
    """torch.multiprocessing.spawn(main, nprocs=torch.cuda.device_count()): the ranks of many hand-written scripts.

    A spawned process would start without virtual devices; a forked one has them. CUDA, for which torch says not to
    fork, is not there.
    """
    processes: Any = torch.multiprocessing
    return processes.start_processes(fn, args, nprocs, join, daemon, start_method="fork")


def _without_nccl(original: Any, nccl: Nccl) -> Any:
    position = 0 if original.__name__ == "init_process_group" else 2  # of `backend` among the arguments

    def call(*args: Any, **kwargs: Any) -> Any:
        requested = args[position] if len(args) > position else kwargs.get("backend")
        if len(args) > position:
            args = (*args[:position], _backend(args[position]), *args[position + 1 :])
        else:
            kwargs["backend"] = _backend(requested)
        for name in _FOR_NCCL & kwargs.keys():
            kwargs[name] = None
        made = original(*args, **kwargs)
        if position == 0:
            nccl.made(dist.group.WORLD, requested or _BY_DEFAULT)
        else:
            nccl.made(made, requested)
        return made

    return call


_BY_DEFAULT = "cpu:gloo,cuda:nccl"
_FOR_NCCL = frozenset({"device_id", "pg_options"})  # a device to bind the communicator to, and its options


def _backend(requested: Any) -> Any:
    """gloo instead of NCCL, of nothing (which means NCCL for CUDA), and of "cpu:gloo,cuda:nccl"."""
    return "gloo" if requested is None or "nccl" in str(requested).lower() else requested


def _without_device_ids(original: Any) -> Any:
    def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        return original(group=group, async_op=async_op)

    return barrier


def _averaging(original: Any) -> Any:
    """NCCL can average, gloo cannot: sum, then divide."""

    def all_reduce(
        tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False
    ) -> Any:
        if op != dist.ReduceOp.AVG:
            return original(tensor, op=op, group=group, async_op=async_op)
        original(tensor, op=dist.ReduceOp.SUM, group=group)
        with torch.no_grad():
            tensor.div_(dist.get_world_size(group))
        return Done([tensor]) if async_op else None

    return all_reduce


class Done:
    """The Work of a collective that is already over."""

    def __init__(self, result: list[torch.Tensor]) -> None:
        self._result = result

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def result(self) -> list[torch.Tensor]:
        return self._result

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        future.set_result(self._result)
        return future


def _always(original: Any) -> Any:
    return lambda: True
