"""The parts of torch.nn.DataParallel over the ranks, for scripts that call them by hand.

Such a script holds all chunks of a batch, all replicas and all outputs. So every rank holds all of them here: each
chunk, a replica for each rank, of which only its own can run, and behind parallel_apply the outputs of all ranks.
What the script does with them in between stays as it is, and has the same results on every rank.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .arguments import map_tensors, tensors_in
from .compiled import uncompiled
from .ddp import GraphDDP, ReplicaReport, called_data_parallel
from .outputs import ContainerMeta, TensorMeta, describe_output, gather_outputs, joinable_shapes, meta_of
from .process import exchange, own_rank, world_size
from .replicas import replica_of
from .whole import ScatterToRanks, copy_from_rank


def data_parallel_on_ranks(
    module: torch.nn.Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: "dict[str, Any] | None" = None,
) -> Any:
    """torch.nn.parallel.data_parallel over the ranks: each runs the module on its chunk, all have the outputs."""
    inputs = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return DataParallelOnRanks(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))


def scatter_to_ranks(inputs: Any, target_gpus: Any, dim: int = 0) -> Any:
    """torch.nn.parallel.scatter: the parts of a value, one for each device, all of them on each rank."""
    count = len(target_gpus)
    if isinstance(inputs, torch.Tensor):
        return scatter_tensor_to_ranks(target_gpus, None, dim, inputs)
    if not isinstance(inputs, (tuple, list, dict)) or not inputs:
        return [inputs for _ in range(count)]
    kind: Any = type(inputs)
    items = inputs.items() if isinstance(inputs, dict) else inputs
    rows = zip(*(scatter_to_ranks(item, target_gpus, dim) for item in items))  # noqa: B905 (the fewest count)
    return [kind(*row) if hasattr(kind, "_fields") else kind(row) for row in rows]


def scatter_tensor_to_ranks(
    target_gpus: Any, chunk_sizes: "Sequence[int] | None", dim: int, tensor: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """torch.nn.parallel._functions.Scatter.apply: a tensor in chunks, or in parts of given sizes."""
    parts = (
        tensor.chunk(len(target_gpus), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    )
    return tuple(part.to(rank_device()) for part in parts)


def scatter_kwargs_to_ranks(
    inputs: tuple[Any, ...], kwargs: "dict[str, Any] | None", target_gpus: Any, dim: int = 0
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """torch.nn.parallel.scatter_gather.scatter_kwargs: the shorter of the two is filled up."""
    parts = list(scatter_to_ranks(inputs, target_gpus, dim)) if inputs else []
    keywords = list(scatter_to_ranks(kwargs, target_gpus, dim)) if kwargs else []
    parts += [() for _ in keywords[len(parts) :]]
    keywords += [{} for _ in parts[len(keywords) :]]
    return tuple(parts), tuple(keywords)


def replicate_on_ranks(network: torch.nn.Module, devices: Any, detach: bool = False) -> list[torch.nn.Module]:
    """torch.nn.parallel.replicate: a replica for each device. Replica r runs on rank r alone."""
    trained = [p for p in network.parameters() if p.requires_grad and torch.is_grad_enabled() and not detach]
    link, copies = copies_on_ranks(trained)
    replicas = []
    for number in range(len(devices)):
        stand_ins: dict[torch.Tensor, torch.Tensor] = {p: p for p in network.parameters()}
        stand_ins.update(zip(trained, copies, strict=True))
        buffers = {buffer: buffer for buffer in network.buffers()}
        if number == own_rank() > 0:  # only replica 0 can change the module's own
            buffers = {buffer: buffer.clone() for buffer in buffers}
            if network.training:
                stand_ins = {tensor: copy.clone() for tensor, copy in stand_ins.items()}
        replica = replica_of(network, {id(own): copy for own, copy in {**stand_ins, **buffers}.items()})
        vars(replica).update(replica_number=number, replica_link=link, replica_origin=network)
        if number != own_rank() and world_size() > 1 and [*stand_ins, *buffers]:
            vars(replica)["forward"] = functools.partial(refuse, number)
        replicas.append(replica)
    return replicas


def refuse(number: int, *inputs: Any, **kwargs: Any) -> None:
    """The forward of a replica that belongs to another rank."""
    raise RuntimeError(f"replica {number} runs on rank {number}: call it by parallel_apply_on_ranks")


def broadcast_to_ranks(target_gpus: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """torch.nn.parallel._functions.Broadcast.apply: copies of all tensors, for device 0, for device 1, and so on.

    Only what the first device's part changes in place is seen by the others, and by the script.
    """
    trained = [t for t in tensors if t.requires_grad and torch.is_grad_enabled()]
    link, copies = copies_on_ranks(trained)
    link.kept = [t for t in tensors if not t.requires_grad]  # type: ignore[attr-defined]
    stand_ins = {id(t): copy for t, copy in zip(trained, copies, strict=True)}
    copied = []
    for number in range(len(target_gpus)):
        for tensor in tensors:
            copy = stand_ins.get(id(tensor), tensor if number == 0 else tensor.clone())
            copy = copy.view_as(copy) if copy is tensor else copy
            copy.replica_link = link  # type: ignore[attr-defined]
            copied.append(copy)
    return tuple(copied)


def reduce_add_on_ranks(destination: Any, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """torch.nn.parallel._functions.ReduceAddCoalesced.apply: sums of `count` tensors each, replica by replica."""
    return tuple(functools.reduce(torch.add, tensors[place::count]) for place in range(count))


def copies_on_ranks(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """A copy of each tensor for this rank's replica, whose gradients add up over the ranks; and their link."""
    if not tensors or world_size() == 1:
        return torch.zeros(()), list(tensors)
    link, *copies = ScatterToRanks.apply(tuple(None for _ in tensors), *tensors)
    return link, copies


def parallel_apply_on_ranks(
    modules: Sequence[Any], inputs: Sequence[Any], kwargs_tup: Any = None, devices: Any = None
) -> list[Any]:
    """torch.nn.parallel.parallel_apply: replica r runs on rank r, and every rank gets the outputs of all."""
    calls, keywords = as_calls(modules, inputs, kwargs_tup)
    if world_size() == 1:
        return [module(*part, **each) for module, part, each in zip(modules, calls, keywords, strict=True)]
    return RunByHand(modules).outputs_of(calls, keywords)


def as_calls(
    modules: Sequence[Any], inputs: Sequence[Any], kwargs_tup: Any
) -> tuple[list[Any], list[dict[str, Any]]]:
    """The arguments of each module, by position and by name."""
    calls = [part if isinstance(part, (list, tuple)) else (part,) for part in inputs]
    keywords = [dict(each or {}) for each in kwargs_tup or [{} for _ in modules]]
    assert len(modules) == len(calls) == len(keywords), "a part of the inputs for each module"
    return calls, keywords


class RunByHand:
    """One call of parallel_apply, on this rank's replica."""

    def __init__(self, modules: Sequence[Any]) -> None:
        self.links = {id(link): link for module in modules for link in links_of(module)}
        origin = vars(modules[0]).get("replica_origin")
        self.wrapper = GraphDDP(torch.nn.Module() if origin is None else origin)
        self.wrapper.trained = True  # replicas have copies of their own
        self.modules = modules
        self.numbers = [vars(module).get("replica_number", place) for place, module in enumerate(modules)]
        if max(self.numbers) >= world_size():
            raise RuntimeError(
                f"{max(self.numbers) + 1} replicas on {world_size()} ranks: start one rank for each device"
            )
        self.link = torch.zeros(())

    def outputs_of(self, inputs: Sequence[Any], kwargs: Sequence[Any]) -> list[Any]:
        """The outputs of all replicas, on every rank."""
        wanting = {
            id(t): t for t in tensors_in((inputs, kwargs)) if t.requires_grad and torch.is_grad_enabled()
        }
        self.link, copies = copies_on_ranks(list(wanting.values()))
        for more in self.links.values():
            self.link = self.link.to(more.device) + more
        stand_ins = dict(zip(wanting, copies, strict=True))
        tensors: list[torch.Tensor] = []
        report = ReplicaReport(())
        if own_rank() in self.numbers:
            place = self.numbers.index(own_rank())
            part, keywords = map_tensors(
                (inputs[place], kwargs[place]), lambda tensor: stand_ins.get(id(tensor), tensor)
            )
            report = self.wrapper.run(lambda: describe_part(self.modules[place](*part, **keywords), tensors))
        reports = self.exchange_reports(report)
        self.wrapper.follow(reports)
        self.follow_kept()
        link = self.link.to(self.wrapper.device)
        return [
            from_part(
                reports[number].outputs[0],
                functools.partial(self.wrapper.tensor_of, number, tensors=tensors, link=link),
            )
            for number in self.numbers
        ]

    def exchange_reports(self, report: ReplicaReport) -> list[ReplicaReport]:
        """How the forward passes of all replicas went."""
        return exchange(report)

    def follow_kept(self) -> None:
        """Tensors that were broadcast are what replica 0 made of them."""
        for link in self.links.values():
            copy_from_rank(0, getattr(link, "kept", []))


def links_of(module: Any) -> Iterator[torch.Tensor]:
    """What ties a replica, or a function with broadcast tensors among its arguments, to the other ranks."""
    if isinstance(module, functools.partial):
        for tensor in tensors_in((module.args, module.keywords)):
            if hasattr(tensor, "replica_link"):
                yield tensor.replica_link
    elif "replica_link" in vars(module):
        yield module.replica_link
    elif isinstance(module, torch.nn.Module) and any(p.requires_grad for p in module.parameters()):
        raise RuntimeError("parallel_apply_on_ranks is given a module that replicate_on_ranks did not make")


def describe_part(output: Any, tensors: list[torch.Tensor]) -> Any:
    """One replica's output as the other ranks may see it; its tensors go to the list."""
    if isinstance(output, torch.Tensor):
        tensors.append(output)
        return meta_of(output, len(tensors) - 1)
    if isinstance(output, dict):
        items = tuple(describe_part(item, tensors) for item in output.values())
        return ContainerMeta(type(output), tuple(output), items)
    if isinstance(output, (tuple, list)):
        return ContainerMeta(type(output), (), tuple(describe_part(item, tensors) for item in output))
    return output


def from_part(described: Any, join: Callable[[TensorMeta], torch.Tensor]) -> Any:
    """One replica's described output with tensors in it again."""
    if isinstance(described, TensorMeta):
        return join(described)
    if not isinstance(described, ContainerMeta):
        return described
    items = [from_part(item, join) for item in described.items]
    if issubclass(described.kind, dict):
        return described.kind(zip(described.keys, items, strict=True))
    kind: Any = described.kind
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def gather_from_ranks(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """torch.nn.parallel.gather, of outputs that every rank has already."""
    tensors: list[torch.Tensor] = []

    def join(metas: Sequence[TensorMeta]) -> torch.Tensor:
        shapes = joinable_shapes(metas, dim)
        parts = [tensors[meta.place].view(shape) for meta, shape in zip(metas, shapes, strict=True)]
        return torch.cat(parts, dim)

    return gather_outputs([describe_output(output, tensors) for output in outputs], join)


def rank_device() -> torch.device:
    """The device of this rank."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@called_data_parallel
class DataParallelOnRanks(GraphDDP):
    """nn.DataParallel over the ranks, with its parts, for subclasses that change some of them."""

    def __init__(
        self, module: torch.nn.Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__(module, dim)
        self.device_ids = list(range(world_size()) if device_ids is None else device_ids)
        self.output_device = output_device

    def __reduce_ex__(self, protocol: Any) -> Any:
        return torch.nn.Module.__reduce_ex__(self, protocol)  # the subclass itself, as before

    @uncompiled
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        device_ids = self.device_ids or []
        if len(device_ids) < 2:
            return self.module(*inputs, **kwargs)
        if len(device_ids) == world_size() and not self.has_own_parts:
            return super().forward(*inputs, **kwargs)
        parts, keywords = self.scatter(inputs, kwargs, device_ids)
        if not parts and not keywords:
            parts, keywords = ((),), ({},)
        replicas = self.replicate(self.module, device_ids[: len(parts)])
        return self.gather(self.parallel_apply(replicas, parts, keywords), self.output_device)

    @property
    def has_own_parts(self) -> bool:
        """Whether a subclass, or a function put in its place, does one of the parts in another way."""
        names = ("scatter", "replicate", "parallel_apply", "gather")
        return any(
            name in vars(self) or getattr(type(self), name) is not getattr(DataParallelOnRanks, name)
            for name in names
        )

    def scatter(self, inputs: tuple[Any, ...], kwargs: Any, device_ids: Any) -> Any:
        return scatter_kwargs_to_ranks(inputs, kwargs, device_ids, self.dim)

    def replicate(self, module: torch.nn.Module, device_ids: Any) -> list[torch.nn.Module]:
        return replicate_on_ranks(module, device_ids, not torch.is_grad_enabled())

    def parallel_apply(self, replicas: Sequence[Any], inputs: Sequence[Any], kwargs: Any) -> list[Any]:
        return parallel_apply_on_ranks(replicas, inputs, kwargs)

    def gather(self, outputs: Sequence[Any], output_device: Any) -> Any:
        return gather_from_ranks(outputs, output_device, self.dim)
