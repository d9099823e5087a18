"""DataParallel over ranks."""

import copyreg
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist

from .broadcast import Rank, exchange_numbers
from .draws import replica_draws
from .ranks import init_distributed, together
from .replicas import ModuleState, as_in_a_thread, learned_beside, make_replica, run_alone, share_tensors
from .rows import JoinRows, OwnRows
from .sums import CopyToRanks, GradientSums
from .trees import map_tensors


class AnyDataParallel(torch.nn.Module):
    """What takes DataParallel's place, whichever it is."""

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
        if together():
            share_tensors([*module.parameters(), *module.buffers()])
        # of one that comes out of a file
        torch.nn.DataParallel.__setstate__ = AnyDataParallel.take_place  # type: ignore[method-assign]
        if "stands_for_data_parallel" in vars(type(self)):
            AnyDataParallel.of_program = type(self)
            # scripts ask for it: `type(net).__name__`, `"DataParallel" in str(type(net))`
            type(self).__name__ = type(self).__qualname__ = "DataParallel"
            type(self).__module__ = torch.nn.DataParallel.__module__

    def __reduce_ex__(self, protocol: Any) -> Any:
        """In a file it is the DataParallel that it stands for, which takes its place where it is read, or copied."""
        if type(self) is not AnyDataParallel.of_program:
            return super().__reduce_ex__(protocol)
        first = torch.device("cuda", self.device_ids[0]) if self.device_ids else None
        kind = (torch.nn.DataParallel, object, None)
        return copyreg._reconstructor, kind, {**vars(self), "src_device_obj": first}  # type: ignore[attr-defined]

    def take_place(self: Any, state: Any) -> None:
        if type(self) is torch.nn.DataParallel:
            self.__class__ = AnyDataParallel.of_program
        torch.nn.Module.__setstate__(self, state)


def run_own_replica(
    wrapper: Any, rows: OwnRows, copies: Mapping[Any, torch.Tensor], batch: Any
) -> Tuple[Any, List[int]]:
    """What this rank's replica gives for its rows of a batch, and what it draws."""
    inputs, kwargs = map_tensors(rows.take, batch)
    replica = make_replica(rows.state, copies)
    with replica_draws(rows.has_any) as drew:
        return wrapper.run_replica(replica, rows.has_any, inputs, kwargs), drew


def compute_own_rows(wrapper: Any, /, *inputs: Any, **kwargs: Any) -> Any:
    """The outputs of the whole batch, of which this rank computes its chunk."""
    if dist.get_world_size() == 1 or len(wrapper.device_ids) < 2 or not together():
        return run_alone(wrapper.module, inputs, kwargs)
    state = ModuleState(wrapper.module)
    rows = OwnRows(state, bool(inputs or kwargs), len(wrapper.device_ids), wrapper.dim)
    entered: List[torch.Tensor] = []
    if Rank.before_forward:
        Rank.before_forward(wrapper.module)

    def enter(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.requires_grad and torch.is_grad_enabled():
            (tensor,) = CopyToRanks.apply(None, tensor)
            entered.append(tensor)
        return tensor

    batch = map_tensors(enter, (inputs, kwargs))
    learned = learned_beside(state)
    sums = wrapper.sums(state, wait=bool(learned or entered))
    copies = make_copies(sums, learned)
    with as_in_a_thread():
        tree, drew = wrapper.run_replicas(rows, copies, batch)
    trained = [copies[p] for p in (*sums.dense, *sums.tables)]
    alone = [[each] for each in (*entered, *(copies[each] for each in learned))]
    ties = [trained, *alone] if trained else alone
    counts, ways = rows.settle(tree, drew, copies, partial(comes_to, ties))
    sums.begin()
    for (place, (tie, *_)), of_ranks in zip(product(range(len(counts)), ties), ways):
        if any(of_ranks) and not all(of_ranks):
            refuse_reentrant(rows.outputs[place])
        if any(of_ranks) and not of_ranks[dist.get_rank()]:  # then backward comes there on all ranks
            rows.outputs[place] = rows.outputs[place] + tie.reshape(-1)[:0].abs().sum()
    whole = map(wrapper.join_rows, rows.outputs, counts, [wrapper.dim] * len(counts))
    return map_tensors(lambda output: next(whole), tree)


class WholeBatch(AnyDataParallel):
    """A model that takes a whole batch and gives its outputs, as DataParallel does.

    Rank r computes chunk r, on a replica. Parameters and buffers are the same on all ranks (buffers are rank 0's, as
    DataParallel keeps its first replica's).
    """

    stands_for_data_parallel = True
    sums: Any = GradientSums
    join_rows: Any = JoinRows.apply
    run_replicas: Any = run_own_replica
    forward: Any = compute_own_rows

    def run_replica(self, replica: Any, has_rows: bool, inputs: Any, kwargs: Any) -> Any:
        return replica(*inputs, **kwargs)


def data_parallel_on_ranks(
    module: Any,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Optional[Dict[str, Any]] = None,
    run_replicas: Any = run_own_replica,
) -> Any:
    """torch.nn.parallel.data_parallel, over the ranks."""
    ids = [*range(dist.get_world_size())] if device_ids is None else device_ids
    wrapper = SimpleNamespace(
        module=module, device_ids=ids, dim=dim, sums=GradientSums, join_rows=JoinRows.apply
    )
    wrapper.run_replica = lambda replica, has_rows, inputs, kwargs: replica(*inputs, **kwargs)
    wrapper.run_replicas = partial(run_replicas, wrapper)
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return compute_own_rows(wrapper, *inputs, **(module_kwargs or {}))


def make_copies(sums: GradientSums, learned: Sequence[torch.Tensor]) -> Dict[Any, torch.Tensor]:
    """What stands for parameters, and what else is learned, in the replica of this rank.

    Themselves where there are no gradients, as in replica 0 of DataParallel: what is assigned to their .data stays.
    """
    parameters = sums.state.parameters
    if not torch.is_grad_enabled():
        return {p: p for p in parameters}
    copies: Dict[Any, torch.Tensor] = sums.copies()
    copies.update({p: p.view_as(p) for p in parameters if p not in copies})
    copies.update({each: CopyToRanks.apply(None, each)[0] for each in learned if each not in copies})
    return copies


def comes_to(ties: Sequence[Sequence[torch.Tensor]], output: torch.Tensor) -> List[bool]:
    """To which ties, each of tensors that autograd has from one place, a backward from an output comes."""
    if len(ties) < 2:
        return [output.requires_grad for _ in ties]
    nodes = nodes_behind(output)
    return [any(each.grad_fn in nodes for each in tie) for tie in ties]


def nodes_behind(output: torch.Tensor) -> Set[Any]:
    """What autograd has recorded of an output."""
    nodes: Set[Any] = set()
    ahead: List[Any] = [output.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in nodes:
            nodes.add(node)
            ahead += [each for each, _ in node.next_functions]
    return nodes


def refuse_reentrant(output: torch.Tensor) -> None:
    """Refuse a reentrant checkpoint where some chunks want no gradient: it sums by itself, on the others alone."""
    kinds = {node.name() for node in nodes_behind(output)}
    if any(has for (has,) in exchange_numbers(["CheckpointFunctionBackward" in kinds])):
        raise RuntimeError(
            "an output wants a gradient on some ranks: call checkpoint with use_reentrant=False"
        )
