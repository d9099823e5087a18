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

from dp2ddp.runtime.virtual_cuda.distributed import SUM, done
from dp2ddp.taps import Function, Taps

_HOOKED = "_dp2ddp_hooked"  # True, or our own hook, which gives way to one that the script registers later


def add_in_rank_order(taps: Taps) -> None:
    """all_reduce, reduce, and DistributedDataParallel where the script gave it no communication hook."""
    if not dist.is_available():
        return
    for name, call in (("all_reduce", _all_reduce), ("reduce", _reduce)):
        taps.around(name, call, dist.distributed_c10d, dist)
    taps.around("register_comm_hook", _register, DistributedDataParallel)
    taps.before("forward", _hook, DistributedDataParallel)


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


def _sum_of_ranks(tensor: Any, op: Any, group: Any) -> torch.Tensor | None:
    """In order; None where that is no matter (integers, maxima), or where this rank is not in the group."""
    members = dist.distributed_c10d._get_default_group() if group is None else group
    adds = (
        op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG) and not tensor.is_sparse and tensor.is_floating_point()
    )
    if not adds or members is dist.GroupMember.NON_GROUP_MEMBER:
        return None
    total = ordered_sum(tensor, members)
    return total.div_(members.size()) if op == dist.ReduceOp.AVG else total


def _write(tensor: torch.Tensor, total: torch.Tensor) -> None:
    with torch.no_grad(), torch._C.DisableTorchFunction():
        tensor.copy_(total)


def _all_reduce(
    original: Function, tensor: Any, op: Any = SUM, group: Any = None, async_op: bool = False
) -> Any:
    total = _sum_of_ranks(tensor, op, group)
    if total is None:
        return original(tensor, op=op, group=group, async_op=async_op)
    _write(tensor, total)
    return done([tensor]) if async_op else None


def _reduce(
    original: Function, tensor: Any, dst: Any = None, op: Any = SUM, group: Any = None, **more: Any
) -> Any:
    known = dst is not None and not more.keys() - {"async_op"}
    total = _sum_of_ranks(tensor, op, group) if known else None
    if total is None:
        return original(tensor, dst, op=op, group=group, **more)
    if dist.get_rank() == dst:
        _write(tensor, total)
    return done([tensor]) if more.get("async_op") else None


def _register(original: Function, wrapper: Any, state: Any, hook: Function) -> Any:
    own_hook = getattr(wrapper, _HOOKED, None)
    if not isinstance(own_hook, _Hook) or own_hook.instead:
        setattr(wrapper, _HOOKED, True)
        return original(wrapper, state, hook)
    wrapper._check_comm_hook(hook)
    # torch takes one hook only, and has ours since the first forward
    own_hook.instead = functools.partial(hook, state)
    return None


def _hook(wrapper: Any, /, *inputs: Any, **kwargs: Any) -> None:
    if not getattr(wrapper, _HOOKED, False) and hasattr(wrapper, "reducer"):
        hook = _Hook(wrapper.process_group)
        wrapper.register_comm_hook(hook, _call)
        setattr(wrapper, _HOOKED, hook)


class _Hook:
    """What the reducer does (reducer.cpp: times 1/W on the way into the bucket, then the sum), in order."""

    def __init__(self, group: Any) -> None:
        self._group, self._factor = group, 1 / group.size()
        # the script's, if that came later: this gives way to it
        self.instead: Callable[[Any], torch.futures.Future[Any]] | None = None

    def __reduce__(self) -> Any:
        """A copy of the wrapper has none, and gets one of its own: groups can be neither copied nor pickled."""
        return type(None), ()

    def __call__(self, bucket: Any) -> torch.futures.Future[Any]:
        if self.instead is not None:
            return self.instead(bucket)
        with torch._C.DisableTorchFunction():
            total = ordered_sum(bucket.buffer() * self._factor, self._group)
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(total)
        return future


def _call(hook, bucket):  # type: ignore[no-untyped-def]  # torch compares annotations by value; ours would be texts
    return hook(bucket)
