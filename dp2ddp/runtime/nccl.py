"""Where NCCL and gloo, which stands in for it, differ.

NCCL refuses a tensor on the CPU, and two ranks on one GPU. It asks for as many numbers where gloo asks for a shape.
"""

from __future__ import annotations

import threading
from functools import partial, wraps
from typing import Any

import torch
import torch.distributed as dist

from dp2ddp.taps import Taps

from .collectives import group_of
from .machine import HOST, Machine
from .tensor_places import place_of, tensors_in

# Any throughout: arguments and results of functions of torch.distributed, and its groups.
_OF_TENSORS = (
    "all_gather", "all_gather_into_tensor", "all_gather_single", "all_reduce", "all_to_all", "all_to_all_single",
    "broadcast", "gather", "gather_into_tensor", "gather_single", "reduce", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_tensor", "scatter",
)  # fmt: skip
_OF_OBJECTS = (
    "all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list",
)  # fmt: skip
_OF_ONE_TENSOR = (  # (output, input, ...); torch 2.14 calls them single
    "all_gather_into_tensor", "all_gather_single", "reduce_scatter_single", "reduce_scatter_tensor",
)  # fmt: skip


class Nccl:
    """Which groups the script made with NCCL, and what it may not ask of them."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._groups: dict[str, str] = {}  # name -> the backend that was asked for
        self._on: dict[str, int] = {}  # name -> this rank's device in it
        self._inside = threading.local()

    def install(self, taps: Taps) -> None:
        for names, call in (
            (_OF_ONE_TENSOR, self._with_numbers),
            (_OF_TENSORS, self._with_tensors),
            (_OF_OBJECTS, self._with_objects),
        ):
            for name in filter(partial(hasattr, dist), names):
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
        if not self._is_inside:
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
        if not self._is_inside and kwargs.get("device") is None:
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

    @property
    def _is_inside(self) -> bool:
        return getattr(self._inside, "yes", False)

    def _called(self, original: Any, args: Any, kwargs: Any) -> Any:
        """What torch calls in turn is its own affair."""
        before, self._inside.yes = self._is_inside, True
        try:
            return original(*args, **kwargs)
        finally:
            self._inside.yes = before

    def _check(self, group: str, place: int | None) -> None:
        """Raise what torch raises (c10d/ProcessGroup.hpp, ProcessGroupNCCL.cpp)."""
        backend = self._groups.get(group, "")
        if "nccl" not in backend or place is None:
            return
        if place == HOST:
            if "cpu:" not in backend:
                raise RuntimeError(
                    "No backend type associated with device type cpu (NCCL takes tensors on a GPU only)"
                )
            return
        if self._on.get(group) != place:
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
