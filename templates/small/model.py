"""DataParallel over ranks."""

import copy
import copyreg
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

from .ranks import together
from .replicas import share_tensors
from .rows import JoinRows, TakeRows
from .streams import share_device_stream
from .sums import Crossing
from .turns import ReplicaRun, norms_of


class WholeBatchParallel(torch.nn.Module):
    """A model that takes a whole batch and gives its outputs, as DataParallel does; rank r computes chunk r, on a replica.

    Parameters and buffers are the same on all ranks (buffers are rank 0's, as DataParallel keeps its first replica's).
    """

    def __init__(
        self, module: torch.nn.Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.module, self.dim = module, dim
        self.device_ids = list(range(dist.get_world_size())) if device_ids is None else list(device_ids)
        self.output_device = (
            self.device_ids[0] if output_device is None and self.device_ids else output_device
        )
        share_tensors([*module.parameters(), *module.buffers()])
        torch.nn.DataParallel.__setstate__ = WholeBatchParallel.take_place  # of one that comes out of a file

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if dist.get_world_size() == 1 or len(self.device_ids) == 1 or not together():
            return self.module(*inputs, **kwargs)
        return compute_own_rows(self, self.module, self.dim, inputs, kwargs)

    def _get_name(self) -> str:
        return "DataParallel" if type(self) is WholeBatchParallel else type(self).__name__

    def __deepcopy__(self, memo: Any) -> Any:
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        vars(new).update(copy.deepcopy(vars(self), memo))
        return new

    def __reduce_ex__(self, protocol: Any) -> Any:
        """In a file it is the DataParallel that it stands for."""
        if type(self) is WholeBatchParallel:
            state = {
                name: value
                for name, value in vars(self).items()
                if name not in ("in_turn", "has_run", "has_trained")
            }
            first = torch.device("cuda", self.device_ids[0]) if self.device_ids else None
            return (
                copyreg._reconstructor,
                (torch.nn.DataParallel, object, None),
                {**state, "src_device_obj": first},
            )
        return super().__reduce_ex__(protocol)

    def take_place(self, state: Any) -> None:
        if type(self) is torch.nn.DataParallel:
            self.__class__ = WholeBatchParallel
        torch.nn.Module.__setstate__(self, state)


WholeBatchParallel.__name__ = "DataParallel"


def data_parallel_on_ranks(
    module: Any,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """torch.nn.parallel.data_parallel, over the ranks."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    if dist.get_world_size() == 1 or device_ids is not None and len(device_ids) == 1:
        return module(*inputs, **(module_kwargs or {}))
    return compute_own_rows(module, module, dim, inputs, module_kwargs or {})


def compute_own_rows(wrapper: Any, module: torch.nn.Module, dim: int, inputs: Any, kwargs: Any) -> Any:
    """The outputs of the whole batch, of which this rank computes its chunk."""
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = [*module.modules()]
    parameters = [*dict.fromkeys(p for part in parts for p in part._parameters.values() if p is not None)]
    device = parameters[0].device if parameters else None
    trained = [p for p in parameters if p.requires_grad and torch.is_grad_enabled()]
    has_rows, early = (
        rank == 0 or bool(inputs or kwargs),
        True,
    )  # without arguments, DataParallel runs on one device

    def take_rows(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal has_rows, early
        early = early and not tensor.requires_grad
        size = -(-tensor.shape[dim] // world)
        counts = [max(0, min(size, tensor.shape[dim] - k * size)) for k in range(world)]
        rows = TakeRows.apply(tensor, counts, dim)
        if not counts[rank]:  # a rank without rows runs two, and keeps nothing of them
            has_rows, rows = False, torch.cat([rows, tensor.narrow(dim, 0, min(2, size)).detach()], dim)
        return rows.to(device or rows.device)

    def join_rows(output: torch.Tensor) -> Any:
        rows = output if output.dim() else output.reshape(1)  # DataParallel makes a vector of numbers
        at = dim if output.dim() else 0
        return JoinRows.apply(rows if has_rows else rows.narrow(at, 0, 0), None, at)

    buffers = [*dict.fromkeys(b for part in parts for b in part._buffers.values() if b is not None)]
    if vars(wrapper).get("has_trained"):  # a checkpoint's recomputation may have changed them since
        share_tensors(buffers)
    inputs, kwargs = tree_map_only(torch.Tensor, take_rows, (inputs, kwargs))
    copies = Crossing(trained, early, parts).copies(trained) if trained else ()
    norms = norms_of(parameters)
    outputs = ReplicaRun(wrapper, parts, dict(zip(trained, copies)), has_rows)(inputs, kwargs)
    changed = torch.tensor([float(torch.equal(norms, norms_of(parameters)))], dtype=torch.float32)
    dist.all_reduce(changed, dist.ReduceOp.MIN)
    if not changed.item():  # a forward that writes into weights: those of replica 0 stay
        share_tensors(parameters)
    vars(wrapper)["has_trained"] = any(part.training for part in parts)
    if vars(wrapper)["has_trained"]:  # else no buffer has changed
        share_tensors(buffers)
    if torch.cuda.is_available():
        share_device_stream()
    return tree_map_only(torch.Tensor, join_rows, outputs)
