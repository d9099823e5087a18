"""DistributedDataParallel in DataParallel's place, for scripts that train one model, by one backward a step."""

import atexit
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .draws import replica_draws
from .ranks import init_distributed, together
from .replicas import ModuleState, buckets_of, make_replica, run_alone, run_at_once
from .rows import OwnRows, gather_rows
from .trees import map_tensors


class WholeBatchDDP(DistributedDataParallel):
    """DistributedDataParallel that takes a whole batch and gives its outputs, as DataParallel does.

    Rank r computes chunk r of the batch, on a replica. All ranks compute the loss of the whole batch. Buffers are
    rank 0's, as DataParallel's are its first replica's.
    """

    def __init__(self, module: Any, device_ids: Any = None, output_device: Any = None) -> None:
        init_distributed()  # a script that was not converted may import what was
        # scripts ask for it: `type(net).__name__`, `"DataParallel" in str(type(net))`
        WholeBatchDDP.__name__ = WholeBatchDDP.__qualname__ = "DataParallel"
        WholeBatchDDP.__module__ = torch.nn.DataParallel.__module__
        super().__init__(module.cuda() if torch.cuda.is_available() else module)
        self.broadcast_buffers = False  # before forwards: they are shared behind them
        self.replicas = dist.get_world_size() if device_ids is None else len(device_ids)
        self.trained = [p for p in module.parameters() if p.requires_grad]
        self.buckets = buckets_of(self.trained)
        self.may_sum = False  # DistributedDataParallel does it once behind each forward
        atexit.register(drop_reducer, weakref.ref(self))

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if self.replicas < 2 or dist.get_world_size() == 1 or not together():
            return run_alone(self.module, inputs, kwargs)
        state = ModuleState(self.module)
        rows = OwnRows(state, bool(inputs or kwargs), self.replicas)

        def take(tensor: torch.Tensor) -> torch.Tensor:
            refuse(tensor.requires_grad and torch.is_grad_enabled(), "an input needs a gradient")
            return rows.take(tensor)

        inputs, kwargs = map_tensors(take, (inputs, kwargs))
        with replica_draws(rows.has_any) as drew:
            tree, copies = super().forward(state, *inputs, **kwargs)
        counts, wants = rows.settle(tree, drew, copies, lambda output: [output.requires_grad])
        whole = iter(GatherRows.apply(self, counts, wants, *rows.outputs, *self.trained))
        return map_tensors(lambda output: next(whole), tree)

    def check(self, state: ModuleState) -> None:
        """Refuse what DistributedDataParallel does not see."""
        trained = [p for p in state.parameters if p.requires_grad]
        others = [*map(id, trained)] != [*map(id, self.trained)]
        refuse(others, "other parameters are trained than at the wrap")
        hooked = any(each._backward_hooks for each in (*trained, *state.parts))
        refuse(hooked, "a parameter or a layer has a backward hook")
        held = [each for part in state.parts for each in (*part._buffers.values(), *vars(part).values())]
        learned = any(type(each) is torch.Tensor and each.requires_grad and each.is_leaf for each in held)
        refuse(learned, "a layer has a tensor that is no parameter, and wants a gradient")
        self.may_sum = True

    def _run_ddp_forward(self, state: ModuleState, *inputs: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            self.check(state)
        copies = state.copy_buffers()
        for bucket in self.buckets:
            copies.update(zip(bucket, CopyBucket.apply(*bucket)))
            run_at_once(copies[bucket[0]].grad_fn)  # gradients are summed while backward goes on
        copies.update({p: p.view_as(p) for p in state.parameters if p not in copies})
        return make_replica(state, copies)(*inputs, **kwargs), copies

    def __reduce_ex__(self, protocol: Any) -> Any:
        refuse(True, "the model is copied, or saved as a whole")


class CopyBucket(torch.autograd.Function):
    """Copies of a bucket's parameters: one step of backward, where each for itself would have one."""

    @staticmethod
    def forward(ctx: Any, *parameters: torch.Tensor) -> Any:
        ctx.came = False
        return tuple(parameter.view_as(parameter) for parameter in parameters)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        refuse(ctx.came, "a part of the forward has a backward of its own, as a reentrant checkpoint has")
        ctx.came = True
        return gradients


class GatherRows(torch.autograd.Function):
    """A rank's rows of all outputs to those of all ranks.

    All ranks compute the loss of the whole batch, so the gradient of a rank's rows is its part of DataParallel's sum.
    DistributedDataParallel averages, also what is in .grad already: it needs world_size times as much. Parameters that
    a replica leaves out get None here, and zeros from DistributedDataParallel, as under DataParallel.
    """

    @staticmethod
    def forward(ctx: Any, model: WholeBatchDDP, counts: Any, wants: Any, *tensors: torch.Tensor) -> Any:
        ctx.model, ctx.counts = model, counts
        ctx.set_materialize_grads(False)
        whole = [*map(gather_rows, tensors, counts)]
        ctx.mark_non_differentiable(*(each for each, of_ranks in zip(whole, wants) if not any(of_ranks)))
        return tuple(whole)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        trained, may_sum, ctx.model.may_sum = ctx.model.trained, ctx.model.may_sum, False
        refuse(torch.is_grad_enabled(), "gradients of gradients are wanted")
        refuse(not may_sum, "a step has two forwards, or two backwards")
        ends = [node for node, _ in ctx.next_functions[-len(trained) :]]
        sums_all = all(map(torch._C._will_engine_execute_node, ends))  # or torch says what it is not made for
        refuse(not sums_all, "autograd.grad or backward(inputs=...) asks for some gradients")

        def own_part(whole: Any, counts: Any) -> Any:
            return None if whole is None else whole.split(counts)[dist.get_rank()] * dist.get_world_size()

        return (None, None, None, *map(own_part, gradients, ctx.counts), *(None for _ in trained))


def drop_reducer(model: Any) -> None:
    """At exit, before the process group ends: with gloo, a reducer that outlives it may abort the process."""
    if model() is not None:
        vars(model()).update(reducer=None, logger=None)


def refuse(condition: bool, reason: str) -> None:
    if condition:
        raise RuntimeError(f"{reason}: convert anew with --import, and take WholeBatchParallel")
