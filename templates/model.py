"""DataParallel over ranks."""

import copy
import copyreg
from typing import Any, Dict, List, Optional

import torch
import torch.distributed as dist

from .draws import ReplicaDraws
from .meeting import SideEffects, meet
from .ranks import init_distributed, together
from .replicas import make_replica, run_alone, share_tensors, versions_of
from .rows import Rows
from .sums import GradientSums
from .trees import map_tensors, tensors_of


class WholeBatchParallel(torch.nn.Module):
    """A model that takes a whole batch and gives its outputs, as DataParallel does.

    Rank r computes chunk r, on a replica. Parameters and buffers are the same on all ranks (buffers are rank 0's, as
    DataParallel keeps its first replica's).
    """

    stands_for_data_parallel = True  # as no class of the script's own does
    of_program: Any = None  # the wrapper that does

    def __init__(
        self, module: torch.nn.Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        init_distributed()  # a script that was not converted may import what was
        self.module, self.dim = module, dim
        self.device_ids = [*range(dist.get_world_size())] if device_ids is None else [*device_ids]
        first = self.device_ids[0] if self.device_ids else None
        self.output_device = first if output_device is None else output_device
        share_tensors([*module.parameters(), *module.buffers()])
        # of one that comes out of a file
        torch.nn.DataParallel.__setstate__ = WholeBatchParallel.take_place  # type: ignore[method-assign]
        if "stands_for_data_parallel" in vars(type(self)):
            WholeBatchParallel.of_program = type(self)
            type(self).__name__ = type(self).__qualname__ = "DataParallel"  # scripts go by its name

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if dist.get_world_size() == 1 or len(self.device_ids) == 1 or not together():
            return run_alone(self.module, inputs, kwargs)
        return compute_own_rows(self.module, self.dim, self.run_replica, inputs, kwargs)

    def run_replica(self, replica: Any, has_rows: bool, inputs: Any, kwargs: Any) -> Any:
        return replica(*inputs, **kwargs)

    def __deepcopy__(self, memo: Any) -> Any:
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        vars(new).update(copy.deepcopy(vars(self), memo))
        return new

    def __reduce_ex__(self, protocol: Any) -> Any:
        """In a file it is the DataParallel that it stands for."""
        if type(self) is not WholeBatchParallel.of_program:
            return super().__reduce_ex__(protocol)
        first = torch.device("cuda", self.device_ids[0]) if self.device_ids else None
        kind = (torch.nn.DataParallel, object, None)
        return copyreg._reconstructor, kind, {**vars(self), "src_device_obj": first}  # type: ignore[attr-defined]

    def take_place(self: Any, state: Any) -> None:
        if type(self) is torch.nn.DataParallel:
            self.__class__ = WholeBatchParallel.of_program
        torch.nn.Module.__setstate__(self, state)


def data_parallel_on_ranks(
    module: Any,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Optional[Dict[str, Any]] = None,
) -> Any:
    """torch.nn.parallel.data_parallel, over the ranks."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    if dist.get_world_size() == 1 or device_ids is not None and len(device_ids) == 1:
        return run_alone(module, inputs, module_kwargs or {})

    def run_replica(replica: Any, has_rows: bool, inputs: Any, kwargs: Any) -> Any:
        return replica(*inputs, **kwargs)

    return compute_own_rows(module, dim, run_replica, inputs, module_kwargs or {})


def compute_own_rows(module: torch.nn.Module, dim: int, run_replica: Any, inputs: Any, kwargs: Any) -> Any:
    """The outputs of the whole batch, of which this rank computes its chunk."""
    parameters, rows, draws = [*module.parameters()], Rows(dim), ReplicaDraws()
    if not inputs and not kwargs:  # then DataParallel runs on one device
        rows.has_any = dist.get_rank() == 0
    device = parameters[0].device if parameters else None
    inputs, kwargs = map_tensors(lambda tensor: rows.take(tensor, device), (inputs, kwargs))
    outputs, error, before = None, None, versions_of(module)
    sums = sums_of(module, rows)
    copies = copies_of(module, sums)
    with draws(rows.has_any):
        try:
            outputs = run_replica(make_replica(module, copies), rows.has_any, inputs, kwargs)
        except Exception as raised:
            error = raised if rows.has_any else None
    own = SideEffects(draws.on_host, draws.on_device, *changes_of(module, before))
    sizes = [rows.kept(output).shape[dim] for output in tensors_of(outputs)]
    effects, counts = meet(error, own, sizes)
    draws.go_on(effects.drew_on_host, effects.drew_on_device)
    if effects.changed_buffers:
        share_tensors([*module.buffers()])
    if effects.changed_parameters:  # a forward that writes into weights: those of replica 0 stay
        share_tensors(parameters)
    if sums:
        sums.watch_buffers([*module.buffers()])
    next_counts = iter(counts)
    return map_tensors(lambda output: rows.join(output, next(next_counts)), outputs)


def sums_of(module: torch.nn.Module, rows: Rows) -> Optional[GradientSums]:
    """What sums the gradients of a forward over the ranks, if it leaves any."""
    trained = [p for p in module.parameters() if p.requires_grad and torch.is_grad_enabled()]
    sparse: List[Any] = [part.weight for part in module.modules() if getattr(part, "sparse", False) is True]
    return GradientSums(trained, sparse, wait=rows.want_gradient) if trained else None


def copies_of(module: torch.nn.Module, sums: Optional[GradientSums]) -> Dict[Any, torch.Tensor]:
    """What stands for parameters in the replica of this rank."""
    copies: Dict[Any, torch.Tensor] = {p: p.view_as(p) for p in module.parameters()}
    return {**copies, **(sums.copies() if sums else {})}


def changes_of(module: torch.nn.Module, before: Any) -> List[bool]:
    """Whether a forward has changed buffers, and parameters."""
    now, trains = versions_of(module), any(part.training for part in module.modules())
    return [trains or now[0] != before[0], now[1] != before[1]]
