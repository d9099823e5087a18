"""The parts of DataParallel, over ranks."""

from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves, tree_map_only

from .model import WholeBatchParallel
from .ranks import together
from .replicas import share_tensors
from .rows import Form, from_rank
from .streams import share_device_stream
from .sums import CopyToRanks, Crossing
from .turns import ReplicaRun


class DataParallelOnRanks(WholeBatchParallel):
    """The base of classes that override parts of DataParallel."""

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """As DataParallel's forward is written."""
        if dist.get_world_size() == 1 or len(self.device_ids) == 1 or not together():
            return self.module(*inputs, **kwargs)
        rows, options = self.scatter(inputs, kwargs, self.device_ids)
        replicas = self.replicate(self.module, self.device_ids[: len(rows)])
        return self.gather(self.parallel_apply(replicas, rows, options), self.output_device)

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        return scatter_kwargs_on_ranks(inputs, kwargs, device_ids, self.dim)

    def replicate(self, module: torch.nn.Module, device_ids: Any) -> Any:
        return replicate_on_ranks(module, device_ids)

    def parallel_apply(self, replicas: Any, inputs: Any, kwargs: Any) -> Any:
        return parallel_apply_on_ranks(replicas, inputs, kwargs)

    def gather(self, outputs: Any, output_device: Any) -> Any:
        return gather_on_ranks(outputs, output_device, self.dim)


def scatter_on_ranks(inputs: Any, target_gpus: Any, dim: int = 0) -> Any:
    """torch.nn.parallel.scatter: all ranks hold all chunks."""
    count = len(target_gpus)

    def cut(thing: Any) -> list[Any]:
        if isinstance(thing, torch.Tensor):
            return [*thing.chunk(count, dim)]
        if isinstance(thing, tuple) and hasattr(thing, "_fields"):
            return [type(thing)(*each) for each in zip(*map(cut, thing))]
        if isinstance(thing, (tuple, list)) and thing:
            return [type(thing)(each) for each in zip(*map(cut, thing))]
        if isinstance(thing, dict) and thing:
            return [type(thing)(each) for each in zip(*map(cut, thing.items()))]
        return [thing] * count

    return cut(inputs)


def scatter_kwargs_on_ranks(inputs: Any, kwargs: Any, target_gpus: Any, dim: int = 0) -> Any:
    rows = scatter_on_ranks(tuple(inputs), target_gpus, dim) if inputs else []
    options = scatter_on_ranks(kwargs, target_gpus, dim) if kwargs else []
    longest = max(len(rows), len(options), 1)
    rows = [*rows, *[()] * (longest - len(rows))]
    options = [*options, *[{}] * (longest - len(options))]
    return tuple(rows), tuple(options)


class ReplicaOfRank:
    """A replica that parallel_apply_on_ranks runs, on the rank of its number."""

    def __init__(self, module: torch.nn.Module, number: int) -> None:
        self.module_of_all, self.number = module, number

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["module_of_all"], name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a replica is run by parallel_apply, on the rank of its number")


def replicate_on_ranks(network: torch.nn.Module, devices: Any, detach: bool = False) -> list[Any]:
    return [ReplicaOfRank(network, number) for number, _ in enumerate(devices)]


def parallel_apply_on_ranks(
    modules: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None
) -> list[Any]:
    """Rank r runs module r on inputs r; all ranks get all outputs."""
    rank, world, count = dist.get_rank(), dist.get_world_size(), len(modules)
    inputs = [each if isinstance(each, (tuple, list)) else (each,) for each in inputs]
    kwargs_tup = kwargs_tup or [{}] * count
    if world == 1:
        return [
            getattr(module, "module_of_all", module)(*args, **kwargs)
            for module, args, kwargs in zip(modules, inputs, kwargs_tup)
        ]
    if count > world:
        raise RuntimeError(f"{count} replicas need as many ranks")
    networks = [*dict.fromkeys(getattr(module, "module_of_all", module) for module in modules)]
    parts = [*dict.fromkeys(part for network in networks for part in network.modules())]
    parameters = [*dict.fromkeys(p for part in parts for p in part._parameters.values() if p is not None)]
    trained = [p for p in parameters if p.requires_grad and torch.is_grad_enabled()]
    copies = [*Crossing(trained, False, parts).copies(trained)] if trained else []
    chunks = [
        leaf
        for leaf in tree_leaves((inputs, kwargs_tup))
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]
    entered = dict(zip(map(id, chunks), CopyToRanks.apply(*chunks))) if chunks else {}
    inputs, kwargs_tup = tree_map_only(
        torch.Tensor, lambda leaf: entered.get(id(leaf), leaf), (inputs, kwargs_tup)
    )
    mine = modules[rank] if rank < count else modules[0]
    own_parts = [*getattr(mine, "module_of_all", mine).modules()]
    run = ReplicaRun(
        mine if isinstance(mine, torch.nn.Module) else own_parts[0],
        own_parts,
        dict(zip(trained, copies)),
        rank < count,
    )
    outputs = run(
        inputs[rank] if rank < count else inputs[0], kwargs_tup[rank] if rank < count else kwargs_tup[0]
    )
    if any(part.training for part in parts):
        share_tensors([*dict.fromkeys(b for part in parts for b in part._buffers.values() if b is not None)])
    if torch.cuda.is_available():
        share_device_stream()
    leaves = [*copies, *entered.values()]
    return [receive(outputs if owner == rank else None, owner, leaves) for owner in range(count)]


def receive(outputs: Any, owner: int, ties: list[torch.Tensor]) -> Any:
    """The outputs of one rank, on all of them."""
    is_own = dist.get_rank() == owner
    box = [tree_map_only(torch.Tensor, lambda leaf: Form(leaf), outputs) if is_own else None]
    dist.broadcast_object_list(box, owner)
    leaves = iter([leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor)] if is_own else [])
    return tree_map_only(Form, lambda form: from_rank(form, owner, next(leaves, None), ties), box[0])


def gather_on_ranks(outputs: Any, target_device: Any = None, dim: int = 0) -> Any:
    """torch.nn.parallel.gather: all ranks hold all outputs."""
    first = outputs[0]
    if isinstance(first, torch.Tensor):
        return (
            torch.cat([each.reshape(1) for each in outputs])
            if not first.dim()
            else torch.cat([*outputs], dim)
        )
    if first is None:
        return None
    if isinstance(first, dict):
        return type(first)(
            (key, gather_on_ranks([each[key] for each in outputs], target_device, dim)) for key in first
        )
    if hasattr(first, "_fields"):
        return type(first)(*(gather_on_ranks(each, target_device, dim) for each in zip(*outputs)))
    return type(first)(gather_on_ranks(each, target_device, dim) for each in zip(*outputs))
