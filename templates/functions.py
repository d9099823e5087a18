"""The parts of DataParallel over ranks: all hold all chunks, replicas and outputs, and replica r runs on rank r."""

import io
import weakref
from contextlib import redirect_stdout
from functools import partial
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from .broadcast import Rank, exchange_numbers
from .draws import go_on_behind, replica_draws
from .meeting import raise_on_all
from .model import AnyDataParallel, data_parallel_on_ranks, make_copies
from .one_rank import share_tree
from .ranks import together
from .replicas import ModuleState, as_in_a_thread, learned_beside, make_replica, share_tensors
from .sums import CopyToRanks, GradientSums
from .trees import map_tensors, refuse_hidden, tensors_of
from .turns import run_in_turns, run_rows_in_turns


class DataParallelOnRanks(AnyDataParallel):
    """The base of classes that override parts of DataParallel."""

    stands_for_data_parallel = True

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """As DataParallel's forward is written."""
        if dist.get_world_size() == 1 or len(self.device_ids) < 2 or not together():
            return self.module(*inputs, **kwargs)
        rows, options = self.scatter(inputs, kwargs, self.device_ids)
        if not rows and not options:
            rows, options = ((),), ({},)
        replicas = self.replicate(self.module, self.device_ids[: len(rows)])
        return self.gather(self.parallel_apply(replicas, rows, options), self.output_device)

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        return scatter_kwargs_on_ranks(inputs, kwargs, device_ids, self.dim)

    def replicate(self, module: torch.nn.Module, device_ids: Any) -> List[Any]:
        return replicate_on_ranks(module, device_ids)

    def parallel_apply(self, replicas: Any, inputs: Any, kwargs: Any) -> List[Any]:
        return parallel_apply_on_ranks(replicas, inputs, kwargs)

    def gather(self, outputs: Any, output_device: Any) -> Any:
        return gather_on_ranks(outputs, output_device, self.dim)


class DataParallelInTurns(DataParallelOnRanks):
    """DataParallelOnRanks for a model whose forward may fill lists, counters, objects: replicas take turns."""

    stands_for_data_parallel = True

    def parallel_apply(self, replicas: Any, inputs: Any, kwargs: Any) -> List[Any]:
        return parallel_apply_in_turns(replicas, inputs, kwargs)


class LibrarysOnRanks(DataParallelOnRanks):
    """The base of a library's subclass of DataParallel: whatever device it names by a number is the rank's own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.output_device = own_number()
        self.src_device_obj = torch.device("cuda", self.output_device)

    @property
    def device_ids(self) -> Any:
        return [own_number() for _ in vars(self)["device_ids"]]

    @device_ids.setter
    def device_ids(self, numbers: Any) -> None:
        vars(self)["device_ids"] = numbers  # a file has these


class LibrarysInTurns(DataParallelInTurns, LibrarysOnRanks):
    """LibrarysOnRanks for a model whose forward may fill lists, counters, objects: replicas take turns."""

    stands_for_data_parallel = True


def own_number() -> int:
    return torch.cuda.current_device() if torch.cuda.is_available() else 0


def scatter_on_ranks(inputs: Any, target_gpus: Any, dim: int = 0) -> Any:
    """torch.nn.parallel.scatter."""
    if isinstance(inputs, torch.Tensor):
        return scatter_tensor_on_ranks(target_gpus, None, dim, inputs)
    if not isinstance(inputs, (tuple, list, dict)) or not inputs:
        return [inputs for _ in target_gpus]
    items = inputs.items() if isinstance(inputs, dict) else inputs
    rows = zip(*(scatter_on_ranks(item, target_gpus, dim) for item in items))
    kind: Any = type(inputs)
    return [kind(*row) if hasattr(kind, "_fields") else kind(row) for row in rows]


def scatter_tensor_on_ranks(
    target_gpus: Any, chunk_sizes: Any, dim: int, tensor: torch.Tensor
) -> Tuple[torch.Tensor, ...]:
    """torch.nn.parallel._functions.Scatter.apply."""
    parts = tensor.chunk(len(target_gpus), dim) if chunk_sizes is None else tensor.split([*chunk_sizes], dim)
    device = "cuda" if torch.cuda.is_available() else tensor.device
    return tuple(part.to(device) for part in parts)


def scatter_kwargs_on_ranks(inputs: Any, kwargs: Any, target_gpus: Any, dim: int = 0) -> Any:
    """torch.nn.parallel.scatter_gather.scatter_kwargs."""
    rows = [*scatter_on_ranks(inputs, target_gpus, dim)] if inputs else []
    options = [*scatter_on_ranks(kwargs, target_gpus, dim)] if kwargs else []
    rows += [() for _ in options[len(rows) :]]
    options += [{} for _ in rows[len(options) :]]
    return tuple(rows), tuple(options)


def replicate_on_ranks(network: torch.nn.Module, devices: Any, detach: bool = False) -> List[Any]:
    """torch.nn.parallel.replicate: replica r runs on rank r alone."""
    with torch.set_grad_enabled(torch.is_grad_enabled() and not detach):
        if Rank.before_forward:
            Rank.before_forward(network)
        sums = GradientSums(ModuleState(network), wait=True)
        copies = make_copies(sums, learned_beside(sums.state))
    replicas = [make_replica(sums.state, copies, number) for number, _ in enumerate(devices)]
    for number, replica in enumerate(replicas):
        replica.of_all_ranks = number, copies, sums
        if number != dist.get_rank() and dist.get_world_size() > 1 and together():
            replica.forward = partial(refuse_forward, number)
    return replicas


def refuse_forward(number: int, /, *inputs: Any, **kwargs: Any) -> None:
    """The forward of another rank's replica."""
    raise RuntimeError(f"replica {number} runs on rank {number}: call it by parallel_apply")


class Broadcasts:
    """What was broadcast by hand and is still in use, in the order of the calls."""

    copies: "List[weakref.ref[torch.Tensor]]" = []  # their gradients are summed over the ranks
    others: "List[weakref.ref[torch.Tensor]]" = []  # the first replica may change these in place


def broadcast_on_ranks(target_gpus: Any, *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
    """torch.nn.parallel._functions.Broadcast.apply: copies for each device; rank r uses those of its number."""
    trained = [tensor for tensor in tensors if tensor.requires_grad and torch.is_grad_enabled()]
    copies = dict(
        zip(map(id, trained), CopyToRanks.apply(None, *trained) if trained and together() else trained)
    )
    Broadcasts.copies += map(weakref.ref, copies.values())
    Broadcasts.others += [weakref.ref(tensor) for tensor in tensors if id(tensor) not in copies]
    first = [copies.get(id(tensor), tensor) for tensor in tensors]
    others = [copies[id(tensor)] if id(tensor) in copies else tensor.clone() for tensor in tensors]
    return (*first, *others * (len(target_gpus) - 1))


def in_use(tensors: "List[weakref.ref[torch.Tensor]]") -> List[torch.Tensor]:
    tensors[:] = [each for each in tensors if each() is not None]
    return [tensor for tensor in (each() for each in tensors) if tensor is not None]


def reduce_add_on_ranks(destination: Any, count: int, *tensors: torch.Tensor) -> Tuple[torch.Tensor, ...]:
    """torch.nn.parallel._functions.ReduceAddCoalesced.apply, of tensors that all ranks hold."""
    return tuple(sum(tensors[place + count :: count], tensors[place]) for place in range(count))


def data_parallel_in_turns(
    module: Any,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Optional[Dict[str, Any]] = None,
) -> Any:
    """torch.nn.parallel.data_parallel, of a module whose forward fills lists, counters, objects."""
    return data_parallel_on_ranks(
        module, inputs, device_ids, output_device, dim, module_kwargs, run_rows_in_turns
    )


def parallel_apply_in_turns(
    modules: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None
) -> List[Any]:
    """torch.nn.parallel.parallel_apply, of replicas whose forward fills lists, counters, objects."""
    if [getattr(module, "of_all_ranks", (None,))[0] for module in modules] != [*range(len(modules))]:
        reason = "other ranks do not see what these change"
        raise RuntimeError(f"parallel_apply: {reason}: give it replicas by replicate, in their order")
    return parallel_apply_on_ranks(modules, inputs, kwargs_tup, devices, apply_all_in_turns, may_write=True)


def apply_all_in_turns(modules: Any, place: int, has_rows: bool, given: Any) -> Any:
    """What `apply_own` gives, when this rank has run all replicas."""
    held: Dict[torch.Tensor, None] = {}
    for _, copies, sums in (module.of_all_ranks for module in modules):
        held.update(dict.fromkeys([*copies.values(), *sums.state.buffers()]))
    for module in modules:
        vars(module).pop("forward", None)
    outputs, drew = run_in_turns(modules, [*held], given)
    refuse_hidden(outputs)
    return outputs, None, drew, ""


class Running:
    """The replicas of the call of parallel_apply that goes on."""

    numbers: List[int] = []
    exchange_messages = False  # while they run, so that nobody may wait for one that has failed


def apply_own(modules: Any, place: int, has_rows: bool, given: Any) -> Any:
    """Run the replica of this rank: its outputs or its error, what it draws, and what it prints.

    A rank without rows runs the first replica, for its messages and its way back, and keeps nothing.
    """
    outputs, error = None, None
    if not has_rows:
        vars(modules[place]).pop("forward", None)
    with replica_draws(has_rows) as drew, redirect_stdout(io.StringIO()) as printed:
        try:
            rows, named = given(place)
            outputs = modules[place](*rows, **named)
            refuse_hidden(outputs)
        except Exception as raised:
            if Running.exchange_messages:
                raise
            error = raised if has_rows else None
    return outputs, error, drew, printed.getvalue() if has_rows else ""


def parallel_apply_on_ranks(
    modules: Any,
    inputs: Any,
    kwargs_tup: Any = None,
    devices: Any = None,
    run_replicas: Any = apply_own,
    may_write: bool = False,
) -> List[Any]:
    """torch.nn.parallel.parallel_apply: all ranks get all outputs."""
    inputs = [each if isinstance(each, (tuple, list)) else (each,) for each in inputs]
    options = [each or {} for each in kwargs_tup or [None] * len(modules)]
    if dist.get_world_size() == 1 or not together():
        return [module(*rows, **named) for module, rows, named in zip(modules, inputs, options)]
    numbers = [getattr(module, "of_all_ranks", (place,))[0] for place, module in enumerate(modules)]
    if max(numbers) >= dist.get_world_size():
        raise RuntimeError(f"{max(numbers) + 1} replicas need as many ranks")
    origins = [module.of_all_ranks[1:] for module in modules if hasattr(module, "of_all_ranks")]
    copies_of: Dict[GradientSums, Any] = {sums: copies for copies, sums in origins}
    has_rows, Running.numbers = dist.get_rank() in numbers, numbers
    place = numbers.index(dist.get_rank()) if has_rows else 0
    tensors = [
        tensor for tensor in tensors_of((inputs, options)) if tensor.requires_grad and torch.is_grad_enabled()
    ]
    entered = dict(zip(map(id, tensors), CopyToRanks.apply(None, *tensors))) if tensors else {}

    def given(place: int) -> Any:
        def own(tensor: torch.Tensor) -> torch.Tensor:  # other replicas' rows lie elsewhere than the batch
            return entered.get(id(tensor), tensor.clone() if place else tensor)

        refuse_hidden((inputs[place], options[place]))
        return map_tensors(own, (inputs[place], options[place]))

    parameters = [p for sums in copies_of for p in sums.state.parameters]
    first = [each for each in tensors_of((inputs[0], options[0])) if not each.is_inference()]
    versions, before = versions_of(parameters), versions_of(first)
    with as_in_a_thread():
        outputs, error, drew, text = run_replicas(modules, place, has_rows, given)
    writes_own = [versions != versions_of(parameters), before != versions_of(first)]
    effects = exchange_numbers([*writes_own, text != "", *drew])
    go_on_behind(effects[0][3:])
    if any(each[2] for each in effects):
        texts: List[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(texts, text, Rank.host)
        print(*texts, sep="", end="")
    raise_on_all(error)
    writes_weights = may_write or any(each[0] for each in effects)
    for sums, copies in copies_of.items():
        sums.state.written = sums.state.parameters if writes_weights else ()
        sums.state.share(sums.state.layouts(copies))
        sums.begin()
    share_tensors([*(first if effects[0][1] else []), *in_use(Broadcasts.others)])
    ties = [
        *(copy for copies in copies_of.values() for copy in copies.values()),
        *entered.values(),
        *in_use(Broadcasts.copies),
    ]
    if not has_rows:
        ties += [tensor for tensor in tensors_of(outputs) if tensor.requires_grad]
    return [share_tree(outputs if owner == dist.get_rank() else None, owner, ties) for owner in numbers]


def versions_of(tensors: Sequence[torch.Tensor]) -> List[int]:
    """Numbers that change where something is written into them."""
    return [each._version for each in tensors]


def gather_on_ranks(outputs: Any, target_device: Any = None, dim: int = 0) -> Any:
    """torch.nn.parallel.gather."""
    first = outputs[0]
    if isinstance(first, torch.Tensor):
        if all(each.dim() == 0 for each in outputs):  # DataParallel makes a vector of numbers
            return torch.stack([*outputs])
        return torch.cat([*outputs], dim)
    if first is None:
        return None
    kind: Any = type(first)
    if isinstance(first, dict):
        return kind(
            (key, gather_on_ranks([each[key] for each in outputs], target_device, dim)) for key in first
        )
    joined = (gather_on_ranks(each, target_device, dim) for each in zip(*outputs))
    return kind(*joined) if hasattr(kind, "_fields") else kind(joined)
