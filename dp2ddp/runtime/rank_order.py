"""Sums over ranks in the order of the ranks: g0 + g1 + g2, as DataParallel adds its replicas' gradients.

gloo adds around a ring, chunk by chunk, in an order of its own. From three ranks on that rounds differently, and a
float32 run drifts away from DataParallel's however right it is. Added in order it is the same to the last bit, so
that any bit that differs means something (docs/semantics.md#order-of-sums).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .distributed import Done
from .patches import Patches

_HOOKED = "_dp2ddp_hooked"  # True, or our own hook, which gives way to one that the script registers later


def add_in_rank_order(patches: Patches) -> None:
    """all_reduce, reduce, and DistributedDataParallel where the script gave it no communication hook."""
    if not dist.is_available():
        return
    for name, wrap in (("all_reduce", _all_reduce), ("reduce", _reduce)):
        patches.wrap(name, wrap, dist.distributed_c10d, dist)
    ddp: Any = DistributedDataParallel
    patches.set(ddp, "register_comm_hook", _remembering(ddp.register_comm_hook))
    patches.set(ddp, "forward", _hooking(ddp.forward))


def ordered_sum(tensor: torch.Tensor, group: Any) -> torch.Tensor:
    """The sum of the ranks' tensors, first rank first."""
    with torch.no_grad(), torch._C.DisableTorchFunction():
        own = tensor.detach().contiguous()
        parts = [torch.empty_like(own) for _ in range(group.size())]
        group.allgather([parts], [own]).wait()
        total = parts[0].clone()
        for part in parts[1:]:
            total += part
        return total


def _depends_on_order(tensor: Any, op: Any, group: Any) -> bool:
    """Sums of floating point numbers; those of integers are the same in any order."""
    adds = op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG)
    return adds and not tensor.is_sparse and tensor.is_floating_point() and _group(group) is not None


def _group(group: Any) -> Any:
    """None for a group that this rank is not in."""
    process_group = dist.distributed_c10d._get_default_group() if group is None else group
    return None if process_group is dist.GroupMember.NON_GROUP_MEMBER else process_group


def _summed(tensor: torch.Tensor, op: Any, group: Any) -> torch.Tensor:
    total = ordered_sum(tensor, _group(group))
    return total.div_(_group(group).size()) if op == dist.ReduceOp.AVG else total


def _write(tensor: torch.Tensor, total: torch.Tensor) -> None:
    with torch.no_grad(), torch._C.DisableTorchFunction():
        tensor.copy_(total)


def _all_reduce(original: Callable[..., Any]) -> Callable[..., Any]:
    def all_reduce(
        tensor: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False
    ) -> Any:
        if not _depends_on_order(tensor, op, group):
            return original(tensor, op=op, group=group, async_op=async_op)
        _write(tensor, _summed(tensor, op, group))
        return Done([tensor]) if async_op else None

    return all_reduce


def _reduce(original: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(tensor: Any, dst: Any = None, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False,
               **more: Any) -> Any:  # fmt: skip
        if dst is None or more or not _depends_on_order(tensor, op, group):
            return original(tensor, dst, op=op, group=group, async_op=async_op, **more)
        total = _summed(tensor, op, group)
        if dist.get_rank() == dst:
            _write(tensor, total)
        return Done([tensor]) if async_op else None

    return reduce


def _remembering(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def register_comm_hook(self: Any, state: Any, hook: Callable[..., Any]) -> Any:
        own_hook = getattr(self, _HOOKED, None)
        if not isinstance(own_hook, _Hook) or own_hook.gave_way:
            setattr(self, _HOOKED, True)
            return original(self, state, hook)
        self._check_comm_hook(hook)
        return own_hook.give_way(
            state, hook
        )  # torch takes one hook only, and has ours since the first forward

    return register_comm_hook


def _hooking(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        if not getattr(self, _HOOKED, False) and hasattr(self, "reducer"):
            hook = _Hook(self.process_group)
            self.register_comm_hook(hook, _call)
            setattr(self, _HOOKED, hook)
        return original(self, *inputs, **kwargs)

    return forward


class _Hook:
    """What the reducer does (reducer.cpp: times 1/W on the way into the bucket, then the sum), in order."""

    def __init__(self, group: Any) -> None:
        self._group, self._factor = group, 1 / group.size()
        self._instead: Callable[[Any], Any] | None = None

    @property
    def gave_way(self) -> bool:
        return self._instead is not None

    def give_way(self, state: Any, hook: Callable[..., Any]) -> None:
        self._instead = functools.partial(hook, state)

    def __call__(self, bucket: Any) -> torch.futures.Future[Any]:
        if self._instead is not None:
            instead: torch.futures.Future[Any] = self._instead(bucket)
            return instead
        buffer = bucket.buffer()
        with torch._C.DisableTorchFunction():
            total = ordered_sum(buffer * self._factor, self._group)
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(total)
        return future


def _call(hook, bucket):  # type: ignore[no-untyped-def]  # torch compares annotations by value; ours would be texts
    return hook(bucket)
