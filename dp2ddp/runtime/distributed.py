"""torch.distributed on virtual devices: a program that asks for NCCL gets gloo, which serves the same calls
on the CPU.

DistributedDataParallel itself needs nothing: it asks tensors where they are, and they say cuda:N.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from dp2ddp.taps import Taps

from .machine import Machine
from .nccl import Nccl

_SUM = dist.ReduceOp.SUM if dist.is_available() else None
_BY_DEFAULT = "cpu:gloo,cuda:nccl"
_FOR_NCCL = frozenset({"device_id", "pg_options"})  # a device to bind the communicator to, and its options


def install_distributed(taps: Taps, machine: Machine) -> None:
    """Let a program that asks for NCCL get gloo, with NCCL's rules."""
    if not dist.is_available():
        return
    nccl = Nccl(machine)
    both = dist.distributed_c10d, dist
    for position, name in enumerate(("init_process_group", "new_group")):
        taps.around(name, partial(_without_nccl, nccl, 2 * position), *both)
    taps.around("barrier", _without_device_ids, *both)
    taps.around("all_reduce", _averaging, *both)
    nccl.install(taps)
    taps.around("is_nccl_available", lambda original: True, *both)
    taps.set(torch.cuda.nccl, "is_available", no_nccl)
    taps.set(torch.multiprocessing, "spawn", _forking)


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


def _without_nccl(nccl: Nccl, position: int, original: Any, *args: Any, **kwargs: Any) -> Any:
    """`position`: of `backend` among the arguments."""
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


def _backend(requested: Any) -> Any:
    """gloo instead of NCCL, of nothing (which means NCCL for CUDA), and of "cpu:gloo,cuda:nccl"."""
    return "gloo" if requested is None or "nccl" in str(requested).lower() else requested


def _without_device_ids(
    original: Any, group: Any = None, async_op: bool = False, device_ids: Any = None
) -> Any:
    return original(group=group, async_op=async_op)


def _averaging(
    original: Any, tensor: torch.Tensor, op: Any = _SUM, group: Any = None, async_op: bool = False
) -> Any:
    """NCCL can average, gloo cannot: sum, then divide."""
    if op != dist.ReduceOp.AVG:
        return original(tensor, op=op, group=group, async_op=async_op)
    original(tensor, op=_SUM, group=group)
    with torch.no_grad():
        tensor.div_(dist.get_world_size(group))
    return Done([tensor]) if async_op else None


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
