"""DistributedDataParallel that computes what torch.nn.DataParallel computes, to the last number.

DataParallel cuts its inputs into chunks, runs a replica of the module on each, joins the outputs, and
adds up the replicas' gradients. Here rank r runs replica r. Everything behind the forward pass sees the
joined outputs, on every rank, so that losses, metrics and decisions stay as they were written.
"""

import contextlib
import copy
import copyreg
import inspect
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed
from torch._utils import ExceptionWrapper
from torch.nn.parallel import DistributedDataParallel

from .arguments import Part, chunk_sizes, rank_sizes, split_arguments, tensors_in
from .compiled import compiler_with, is_compiled, uncompiled
from .outputs import Face, describe_output, gather_outputs, joinable_shapes
from .process import drop_reducer, exchange, own_rank, random_streams, set_random_streams, world_size
from .replicas import DeviceStream, changed_streams, default_generator, replica_of
from .rows import RowsApart, concatenate_ranks, own_slice
from .whole import (
    FromWhole,
    IntoWhole,
    Layout,
    ScaleGradient,
    ZeroGradients,
    copy_from_rank,
    replica_is_done,
)

Kind = TypeVar("Kind", bound=type)


@dataclass(frozen=True)
class Report:
    """What a rank tells the others about its forward pass."""

    outputs: tuple[Any, ...]  # one described output; none without rows, or after an error
    error: ExceptionWrapper | None = None
    text: str = ""
    streams: dict[str, Any] | None = None
    changed_buffers: bool = False
    changed_parameters: bool = False
    drew_on_host: bool = False  # from streams that all replicas share


def raised_behind_helpers() -> Any:
    """sys.exc_info(), with the traceback from the first frame on that is not torch's nor one of the two of `run`."""
    kind, error, trace = sys.exc_info()
    inner = trace.tb_next.tb_next if trace is not None and trace.tb_next is not None else None
    torchs = os.path.dirname(torch.__file__) + os.sep
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(torchs):
        inner = inner.tb_next
    return kind, error, inner or trace


def called_data_parallel(kind: Kind) -> Kind:
    """Give a class the name that was printed, saved and compared before."""
    kind.__name__ = "DataParallel"
    return kind


@called_data_parallel
class GraphDDP(DistributedDataParallel):
    """nn.DataParallel over the ranks; gradients are added up inside the autograd graph, as DataParallel does.

    Right for whatever autograd can do: several backward passes, autograd.grad, gradients of gradients, layers
    that come or thaw later. With split=False the inputs are this rank's rows already.
    It is a DistributedDataParallel by name only: for isinstance, .module, and the keys of the state dict.
    """

    in_turn = False  # whether the ranks run the module one after another
    # One a process: a device has one default generator, whichever model draws from it.
    device_stream = DeviceStream()

    def __init__(self, module: torch.nn.Module, dim: int = 0, split: bool = True) -> None:
        torch.nn.Module.__init__(self)
        self.module = module
        self.dim = dim
        self.split = split
        RowsApart.now = RowsApart.now or not split
        self.trained = False
        self.buffers_then: list[int] = []
        self.compiler: Callable[[torch.nn.Module], torch.nn.Module] | None = None

    def compile(self, *args: Any, **options: Any) -> None:
        """Compile what each rank runs of the module; what the ranks say to each other is in no graph."""
        self.compiler = compiler_with(options)

    @uncompiled
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if world_size() > 1:
            return self.forward_on_ranks(inputs, kwargs)
        alone = split_arguments(inputs, kwargs, 0, 1, lambda tensor: (1, tensor.to(self.device)))
        plain = self.compiler is None or is_compiled(self.module)
        module = self.module if plain else self.compiler(self.module)  # type: ignore[misc]
        return module(*alone.inputs, **alone.kwargs)

    def forward_on_ranks(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run this rank's replica, tell the others how it went, and join the outputs."""
        self.catch_up()
        link, copies, part = self.enter(inputs, kwargs)
        tensors: list[torch.Tensor] = []
        reports = exchange(self.run_replica(part, copies, tensors))
        replica_is_done(link)
        self.follow(reports)
        link = self.tie(link)
        ranks = [rank for rank, report in enumerate(reports) if report.outputs]
        return gather_outputs(
            [reports[rank].outputs[0] for rank in ranks],
            lambda faces: self.join_tensors(dict(zip(ranks, faces, strict=True)), tensors, link, self.dim),
        )

    def enter(
        self, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor, dict[Any, Any], Part]:
        """From what all ranks hold to this rank's: the link, copies of parameters, its part of the inputs."""
        world, grad = world_size(), torch.is_grad_enabled()
        parameters = self.parameters_in_graph()
        cut = {id(t): t for t in tensors_in((inputs, kwargs)) if t.requires_grad and grad and self.split}
        sparse = self.sparse_parameters()
        layouts: list[Layout] = [p.shape if p in sparse else None for p in parameters]
        layouts += [(self.dim, rank_sizes(tensor, world, self.dim)) for tensor in cut.values()]
        if layouts:
            link, *own = FromWhole.apply(tuple(layouts), *parameters, *cut.values())
        else:
            link, own = torch.zeros((), device=self.device, requires_grad=grad), []
        copies, chunks = own[: len(parameters)], dict(zip(cut, own[len(parameters) :], strict=True))
        part = split_arguments(inputs, kwargs, own_rank(), world, lambda tensor: self.take(tensor, chunks))
        return link.to(self.device), dict(zip(parameters, copies, strict=True)), part

    def take(self, tensor: torch.Tensor, chunks: dict[int, torch.Tensor]) -> tuple[int, torch.Tensor]:
        """The number of chunks of an input, and this rank's, on its device."""
        world = world_size()
        if not self.split:
            return world, tensor.to(self.device)
        count = len(chunk_sizes(tensor, world, self.dim))
        if id(tensor) in chunks:
            return count, chunks[id(tensor)].to(self.device)
        own = own_slice(tensor, rank_sizes(tensor, world, self.dim), self.dim)
        return count, own.to(self.device, copy=True)

    def has_rows(self, part: Part) -> bool:
        """Whether there is anything to do for this rank's replica."""
        if self.split:
            return own_rank() < part.replicas
        first = next(tensors_in((part.inputs, part.kwargs)), None)
        return own_rank() == 0 or first is None or first.dim() == 0 or first.shape[self.dim] > 0

    def host_streams(self) -> dict[str, Any]:
        """The random streams that all replicas draw from: all but the one of the module's device."""
        own = "cuda" if self.device.type == "cuda" else "torch"
        return {name: state for name, state in random_streams().items() if name != own}

    def run_replica(self, part: Part, copies: dict[Any, Any], tensors: list[torch.Tensor]) -> Report:
        """Call a replica with its part of the inputs. The tensors of its output go to the list."""
        if not self.has_rows(part):
            return Report(())
        return self.run(lambda: describe_output(self.replica(copies)(*part.inputs, **part.kwargs), tensors))

    def replica(self, copies: dict[Any, Any]) -> torch.nn.Module:
        """What this rank runs of the module."""
        replica = replica_of(self.module, self.stand_ins(copies))
        return replica if self.compiler is None or is_compiled(replica) else self.compiler(replica)

    def run(self, call: Callable[[], Any]) -> Report:
        """Do a replica's work, which gives its described output."""
        before, versions = random_streams(), self.versions()
        outputs: tuple[Any, ...] = ()
        error = None
        with self.replica_streams(before) as text:
            try:
                outputs = (call(),)
            except Exception:  # it is raised on every rank, in follow
                error = ExceptionWrapper(
                    raised_behind_helpers(), where=f"in replica {own_rank()} on device {self.device}"
                )
            on_host = changed_streams(self.host_streams(), before)
        drawn = changed_streams(random_streams(), before)
        if self.in_turn:
            drawn = {name: state for name, state in drawn.items() if name not in on_host}
        buffers, parameters = (now != then for now, then in zip(self.versions(), versions, strict=True))
        return Report(
            outputs,
            error,
            text.getvalue(),
            drawn,
            buffers or self.is_training,
            parameters,
            bool(on_host) and not self.in_turn,
        )

    @contextlib.contextmanager
    def replica_streams(self, before: dict[str, Any]) -> Iterator[io.StringIO]:
        """On ranks > 0, draw from the device's own stream, then go on with the script's; keep the print."""
        text = io.StringIO()
        if own_rank() == 0:
            yield text
            return
        with contextlib.redirect_stdout(text), self.device_stream.drawn_from(default_generator(self.device)):
            yield text
        shared = self.host_streams() if self.in_turn else {}
        set_random_streams({name: state for name, state in before.items() if name not in shared})

    def stand_ins(self, copies: dict[Any, Any]) -> dict[torch.Tensor, torch.Tensor]:
        """What a replica computes with: as with DataParallel, only replica 0 can change the module's own.

        Except that parameters are copied in the first training pass only, in which layers may look at the
        data to initialise themselves. To copy them at every step would cost more than it is worth.
        """
        stand_ins = {tensor: copies.get(tensor, tensor) for tensor in self.module.parameters()}
        if own_rank() == 0:
            return {**stand_ins, **{buffer: buffer for buffer in self.module.buffers()}}
        if self.is_training and not self.trained:
            stand_ins = {tensor: copy.clone() for tensor, copy in stand_ins.items()}
        return {**stand_ins, **{buffer: buffer.clone() for buffer in self.module.buffers()}}

    def follow(self, reports: Sequence[Report]) -> None:
        """Let every rank go on as rank 0 does: errors, printed lines, random streams, buffers."""
        if own_rank() == 0:
            for report in reports[1:]:
                sys.stdout.write(report.text)
        elif reports[0].streams:
            set_random_streams(reports[0].streams)
        for report in reports:
            if report.error is not None:
                report.error.reraise()
        if len(reports) > 1 and any(report.drew_on_host for report in reports) and reports[1].outputs:
            raise RuntimeError(
                "The module draws random numbers on the host in its forward pass (random, numpy, or torch on the "
                "CPU). Let the ranks draw one after another: take dp2ddp.templates.in_turn.InTurnDDP."
            )
        if reports[0].changed_buffers:
            copy_from_rank(0, list(self.module.buffers()))
        first_training = self.is_training and not self.trained
        if first_training or any(report.changed_parameters for report in reports):
            copy_from_rank(0, list(self.module.parameters()))
        self.trained = (self.trained or first_training) and not self.in_turn
        may_run_again = self.is_training and torch.is_grad_enabled()
        self.buffers_then = self.versions()[0] if may_run_again else []

    def catch_up(self) -> None:
        """Take over what rank 0's replica changed since its forward: a checkpoint runs layers again in backward."""
        if self.buffers_then and exchange(self.versions()[0] != self.buffers_then)[0]:
            copy_from_rank(0, list(self.module.buffers()))

    def join_tensors(
        self, faces: dict[int, Face], tensors: list[torch.Tensor], link: torch.Tensor, dim: int
    ) -> torch.Tensor:
        """One tensor from the ranks' tensors along a dimension, by the rules of torch.nn.parallel.gather."""
        shapes = dict(zip(faces, joinable_shapes(list(faces.values()), dim), strict=True))
        sizes = tuple(shapes[rank][dim] if rank in shapes else 0 for rank in range(world_size()))
        if own_rank() in faces:
            own = tensors[faces[own_rank()].place].view(shapes[own_rank()])
        else:
            some = next(iter(shapes))
            own = link.new_empty(shapes[some], dtype=faces[some].dtype).narrow(dim, 0, 0)
        if torch.is_grad_enabled() and any(face.needs_gradient for face in faces.values()):
            whole: torch.Tensor = IntoWhole.apply(((dim, sizes),), link, own)[0]
        else:
            whole = concatenate_ranks(own, sizes, dim)
        if all(face.channels_last for face in faces.values()):
            return whole.contiguous(memory_format=torch.channels_last)
        return whole

    def tensor_of(
        self, rank: int, face: Face, tensors: list[torch.Tensor], link: torch.Tensor
    ) -> torch.Tensor:
        """One rank's tensor, on every rank, with the dimensions in the same order of memory."""
        flat = Face(0, torch.Size([face.shape.numel()]), face.dtype, face.needs_gradient)
        own = [tensors[face.place].permute(face.order).reshape(-1)] if rank == own_rank() else []
        whole = self.join_tensors({rank: flat}, own, link, 0)
        return whole.view([face.shape[place] for place in face.order]).permute(
            sorted(range(len(face.order)), key=face.order.__getitem__)
        )

    def parameters_in_graph(self) -> list[torch.nn.Parameter]:
        """The parameters whose gradients are added up inside the autograd graph."""
        return self.trainable()

    def sparse_parameters(self) -> set[torch.Tensor]:
        """The weights of embeddings whose gradients hold only the rows that were looked up."""
        layers = [part for part in self.module.modules() if getattr(part, "sparse", False) is True]
        return {p for layer in layers for p in layer.parameters(recurse=False)}

    def tie(self, link: torch.Tensor) -> torch.Tensor:
        """The link that the joined outputs get."""
        return link

    def trainable(self) -> list[torch.nn.Parameter]:
        """The parameters that this forward pass can give a gradient."""
        return [p for p in self.module.parameters() if p.requires_grad and torch.is_grad_enabled()]

    @property
    def is_training(self) -> bool:
        """Whether any part of the module is in training mode."""
        return any(part.training for part in self.module.modules())

    @property
    def device(self) -> torch.device:
        """Where the module is."""
        for tensor in [*self.module.parameters(), *self.module.buffers()]:
            return tensor.device
        return torch.device("cuda" if torch.cuda.is_initialized() else "cpu")

    def versions(self) -> tuple[list[int], list[int]]:
        """Numbers that grow when a buffer, or a parameter, is changed in place."""
        return (
            [buffer._version for buffer in self.module.buffers()],
            [parameter._version for parameter in self.module.parameters()],
        )

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients are whole after every backward pass, as DataParallel's are."""
        yield

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Saved as a whole it is a DataParallel around the module, as it was before: any script can load that."""
        wrapper = torch.nn.DataParallel(self.module, dim=self.dim)
        own = ("dim", "split", "trained", "buffers_then", "compiler", "reducing")
        vars(wrapper).update({name: value for name, value in vars(self).items() if name not in own})
        return copyreg._reconstructor, (torch.nn.DataParallel, object, None), vars(wrapper)  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: dict[int, Any]) -> "GraphDDP":
        twin = memo[id(self)] = type(self).__new__(type(self))
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return twin

    def __copy__(self) -> "GraphDDP":
        twin = type(self).__new__(type(self))
        twin.__setstate__(self.__getstate__())
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return vars(self).copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        torch.nn.Module.__setstate__(self, state)


def compile_on_ranks(model: Any = None, **options: Any) -> Any:
    """torch.compile; of a wrapped module, what each rank runs of it is compiled, in a shell with torch.compile's keys.

    DataParallel on several devices ran what was compiled around it as plain Python (pytorch/pytorch#94636).
    """
    if not isinstance(model, GraphDDP):
        return torch.compile(model, **options)
    model.compile(**options)
    from torch import _dynamo

    return _dynamo.disable(model)


class ReducedCall(torch.nn.Module):
    """What DistributedDataParallel's reducer wraps: a module's parameters, and any call that uses them."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, call: Callable[[], Any]) -> Any:
        return call()


@called_data_parallel
class ExactDDP(GraphDDP):
    """nn.DataParallel over the ranks; gradients are summed by DistributedDataParallel while backward runs.

    The loss on the joined outputs is the whole loss, on every rank. So rank r's gradient g_r is its part of
    DataParallel's gradient, sum(g_r). DistributedDataParallel averages: sum(g_r) / world. Therefore gradients
    are multiplied by world on their way to the parameters. (Not at the outputs, where float16 may overflow.
    Not by a hook that sums without dividing: under accumulation the reducer averages all that .grad holds.)

    Right for one forward and one backward a step; for anything else take GraphDDP.
    """

    def __init__(self, module: torch.nn.Module, dim: int = 0, split: bool = True) -> None:
        super().__init__(module, dim, split)
        self.reducing: tuple[Any, ...] = ()

    def forward_on_ranks(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.trainable():
            return super().forward_on_ranks(inputs, kwargs)
        return self.reducing_ddp()(lambda: super(ExactDDP, self).forward_on_ranks(inputs, kwargs))

    def reducing_ddp(self) -> DistributedDataParallel:
        """torch's DistributedDataParallel of the module, made anew when other parameters are trained."""
        wanted = [(id(p), p.requires_grad, p.device, p.dtype) for p in self.module.parameters()]
        if not self.reducing or self.reducing[0] != wanted:
            if self.reducing:
                drop_reducer(self.reducing[1])
            self.reducing = (wanted, DistributedDataParallel(ReducedCall(self.module), **no_buffers()))
        ddp: DistributedDataParallel = self.reducing[1]
        return ddp

    def enter(
        self, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor, dict[Any, Any], Part]:
        link, _, part = super().enter(inputs, kwargs)
        return link, {p: ScaleGradient.apply(p, world_size()) for p in self.trainable()}, part

    def parameters_in_graph(self) -> list[torch.nn.Parameter]:
        return []

    def tie(self, link: torch.Tensor) -> torch.Tensor:
        """The link, with zero gradients for all parameters.

        Tied after the module ran, so that backward comes here first and no parameter waits for its zeros.
        """
        return ZeroGradients.apply(link, *self.trainable())

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "reducing": ()}


def no_buffers() -> dict[str, Any]:
    """The option by which DistributedDataParallel leaves buffers alone in forward; renamed in torch 2.13."""
    options = inspect.signature(DistributedDataParallel.__init__).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in options else "broadcast_buffers": False}
