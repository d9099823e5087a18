"""The parts of DataParallel, over ranks."""

from typing import Any

import torch
import torch.distributed as dist

from .draws import ReplicaDraws
from .model import WholeBatchParallel
from .one_rank import share_tree
from .ranks import together
from .replicas import make_replica, share_tensors
from .sums import CopyToRanks, GradientSums
from .trees import map_tensors, tensors_of


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
    parameters = [*dict.fromkeys(p for network in networks for p in network.parameters())]
    copies = {p: p.view_as(p) for p in parameters}
    trained = [p for p in parameters if p.requires_grad and torch.is_grad_enabled()]
    if trained:
        copies.update(GradientSums(trained, [], wait=True).copies())
    chunks = [leaf for leaf in tensors_of((inputs, kwargs_tup)) if leaf.requires_grad]
    entered = dict(zip(map(id, chunks), CopyToRanks.apply(*chunks))) if chunks else {}
    inputs, kwargs_tup = map_tensors(lambda leaf: entered.get(id(leaf), leaf), (inputs, kwargs_tup))
    number = rank if rank < count else 0
    mine = getattr(modules[number], "module_of_all", modules[number])
    with ReplicaDraws()(rank < count):
        outputs = make_replica(mine, copies)(*inputs[number], **kwargs_tup[number])
    if any(network.training for network in networks):
        share_tensors([*dict.fromkeys(b for network in networks for b in network.buffers())])
    leaves = [*copies.values(), *entered.values()]
    return [share_tree(outputs, owner, leaves) for owner in range(count)]


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
