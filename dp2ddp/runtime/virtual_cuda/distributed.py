"""torch.distributed on virtual devices: a program that asks for NCCL gets gloo, which serves the same calls on the CPU.

Where the two differ: NCCL refuses a tensor on the CPU, and two ranks on one GPU; it asks for as many numbers where gloo
asks for a shape; it can average. DistributedDataParallel itself needs nothing: it asks tensors where they are, and they
say cuda:N.
"""

from __future__ import annotations

from functools import partial, wraps
from typing import Any

import torch
import torch.distributed as dist

from dp2ddp.runtime.hang.collectives import OF_OBJECTS, OF_TENSORS, group_of
from dp2ddp.runtime.virtual_cuda.places import HOST, Machine, place_of, tensors_in
from dp2ddp.taps import Inside, Taps

SUM = dist.ReduceOp.SUM if dist.is_available() else None
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
    taps.around(
        "barrier",
        lambda barrier, group=None, async_op=False, device_ids=None: barrier(group, async_op),
        *both,
    )
    taps.around("all_reduce", _averaging, *both)
    nccl.install(taps)
    taps.around("is_nccl_available", lambda original: True, *both)
    # sends comm.reduce_add to its own sum in device order
    taps.set(torch.cuda.nccl, "is_available", lambda tensors: False)
    taps.set(torch.multiprocessing, "spawn", _forking)


def _forking(
    fn: Any, args: Any = (), nprocs: int = 1, join: bool = True, daemon: bool = False, **_: Any
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
    nccl.made(*((made, requested) if position else (dist.group.WORLD, requested or _BY_DEFAULT)))
    return made


def _backend(requested: Any) -> Any:
    """gloo instead of NCCL, of nothing (which means NCCL for CUDA), and of "cpu:gloo,cuda:nccl"."""
    return "gloo" if requested is None or "nccl" in str(requested).lower() else requested


def _averaging(
    original: Any, tensor: torch.Tensor, op: Any = SUM, group: Any = None, async_op: bool = False
) -> Any:
    """NCCL can average, gloo cannot: sum, then divide."""
    if op != dist.ReduceOp.AVG:
        return original(tensor, op=op, group=group, async_op=async_op)
    original(tensor, op=SUM, group=group)
    with torch.no_grad():
        tensor.div_(dist.get_world_size(group))
    return done([tensor]) if async_op else None


def done(result: list[torch.Tensor]) -> Any:
    """The Work of a collective that is already over."""
    future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
    future.set_result(result)
    made: Any = torch._C._distributed_c10d
    return made._create_work_from_future(future)


# Any throughout: arguments and results of functions of torch.distributed, and its groups.
# (output, input, ...); torch 2.14 calls them single
_OF_ONE_TENSOR = "all_gather_into_tensor all_gather_single reduce_scatter_single reduce_scatter_tensor"


class Nccl:
    """Which groups the script made with NCCL, and what it may not ask of them."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._groups: dict[str, str] = {}  # name -> the backend that was asked for
        self._on: dict[str, int] = {}  # name -> this rank's device in it
        self._inside = Inside()

    def install(self, taps: Taps) -> None:
        for names, call in (
            (_OF_ONE_TENSOR, self._with_numbers),
            (OF_TENSORS, self._with_tensors),
            (OF_OBJECTS, self._with_objects),
        ):
            for name in filter(partial(hasattr, dist), names.split()):
                taps.around(name, call, dist.distributed_c10d, dist)
        taps.around("__init__", self._with_models, torch.nn.parallel.DistributedDataParallel)
        taps.around("register_comm_hook", self._with_hooks, torch.nn.parallel.DistributedDataParallel)

    def made(self, group: Any, backend: Any) -> None:
        """A group was made with `backend`; None means that of the group of all ranks (for those: torch's choice)."""
        name = getattr(group, "group_name", None)  # of a rank that is no member: a number
        if name is not None:
            self._groups[name] = (
                self._groups.get(_name(None), "") if backend is None else str(backend).lower()
            )

    def _with_tensors(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._inside.yes:
            group = _name(group_of(args, kwargs))
            for tensor in tensors_in((*args, *kwargs.values())):
                self._check(group, place_of(tensor))
        return self._called(original, args, kwargs)

    def _with_numbers(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Both tensors in one row: `_allgather_base` of ProcessGroupNCCL.cpp looks at numel alone."""
        if "nccl" in self._groups.get(_name(group_of(args, kwargs)), ""):
            args = tuple(map(_in_one_row, args))
            kwargs = {name: _in_one_row(value) for name, value in kwargs.items()}
        return original(*args, **kwargs)

    def _with_objects(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """They travel as a tensor on the current device."""
        if not self._inside.yes and kwargs.get("device") is None:
            self._check(_name(group_of(args, kwargs)), self._machine.current)
        return self._called(original, args, kwargs)

    def _with_models(self, original: Any, wrapper: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        places = {place_of(parameter) for parameter in module.parameters() if parameter.requires_grad}
        for place in places:
            self._check(_name(kwargs.get("process_group")), place)
        self._called(original, (wrapper, module, *args), kwargs)

    def _with_hooks(self, original: Any, wrapper: Any, state: Any, hook: Any) -> None:
        """Buckets are the reducer's own memory, of which nobody has said where it lies: where the model does."""

        @wraps(hook)  # torch looks at its annotations
        def inside(*args: Any) -> Any:
            return self._called(hook, args, {})

        original(wrapper, state, inside)

    def _called(self, original: Any, args: Any, kwargs: Any) -> Any:
        with self._inside.entered():
            return original(*args, **kwargs)

    def _check(self, group: str, place: int | None) -> None:
        """Raise what torch raises (c10d/ProcessGroup.hpp, ProcessGroupNCCL.cpp)."""
        backend = self._groups.get(group, "")
        if "nccl" not in backend or place is None:
            return
        if place == HOST and "cpu:" not in backend:
            raise RuntimeError(
                "No backend type associated with device type cpu (NCCL takes tensors on a GPU only)"
            )
        if place >= 0 and self._on.get(group) != place:
            self._on[group] = place
            self._meet(group, place)

    def _meet(self, group: str, place: int) -> None:
        """Say where this rank is, and look where those are that have said so."""
        store: Any = dist.distributed_c10d._get_default_store()
        own = dist.get_rank()
        store.set(f"dp2ddp/{group}/{place}/{own}", "here")
        for other in range(dist.get_world_size()):
            if other != own and store.check([f"dp2ddp/{group}/{place}/{other}"]):
                raise dist.DistBackendError(
                    f"NCCL error: invalid usage: Duplicate GPU detected: rank {own} and rank {other} both on CUDA "
                    f"device {place} (torch.cuda.set_device(local_rank) is missing?)"
                )


def _name(group: Any) -> str:
    """The name of a group; None means the group of all ranks."""
    whole = dist.group.WORLD
    name: str = getattr(whole if group is None else group, "group_name", "")
    return name


def _in_one_row(value: Any) -> Any:
    """A tensor as a row of its numbers (NCCL takes contiguous ones only); anything else as it is."""
    return value.view(-1) if isinstance(value, torch.Tensor) and value.is_contiguous() else value
