"""DistributedDataParallel that computes what torch.nn.DataParallel computes, to the last number.

DataParallel cuts its inputs into chunks, runs a replica of the module on each, joins the outputs, and
adds up the replicas' gradients. Here rank r runs replica r. Everything behind the forward pass sees the
joined outputs, on every rank, so that losses, metrics and decisions stay as they were written.
"""

import contextlib
import copy
import copyreg
import dataclasses
import inspect
import io
import os
import sys
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed
from torch._utils import ExceptionWrapper
from torch.nn.parallel import DistributedDataParallel

from .arguments import Part, chunk_sizes, rank_sizes, split_arguments, tensors_in
from .buffers import (
    BuffersOfRankZero,
    GuardedBuffers,
    are_held_elsewhere,
    held_buffers,
    names_averages,
    reads_no_buffer,
    tensors_of,
)
from .compiled import compiler_with, is_compiled, uncompiled
from .half import may_be_half, notice_half_precision
from .late_sums import Crossing, LateSums, SumsOfModel, copies_for_replica, has_hooks
from .mail import Letter, Mail
from .missing import MissingGradients
from .outputs import Face, describe_output, gather_outputs, joinable_shapes
from .parted import FactorAhead, is_parted, join_parts, own_numbers, plain
from .process import drop_reducer, exchange, own_rank, random_streams, set_random_streams, world_size
from .replicas import (
    Contents,
    DeviceStream,
    are_bare,
    changed_streams,
    contents_of,
    default_generator,
    device_mark,
    replica_of,
    standing_in,
    stream_marks,
)
from .rows import inside_replica
from .whole import (
    FromWhole,
    Layout,
    RowsIntoWhole,
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
    moved_parameters: bool = False  # given other data, or hooks
    buffers_are_held: bool = False  # by somebody who would not see what comes to them later
    sums_at_once: bool = False  # gradients are looked at on their way into .grad
    sums_set_out: bool = False  # gradients come in the same order on all ranks that say so


@dataclass(frozen=True)
class Outcome:
    """What came of a replica's work on this rank."""

    outputs: tuple[Any, ...]
    error: ExceptionWrapper | None
    text: str
    drawn: dict[str, Any]  # the random streams that were drawn from

    def report(self, untold: Collection[str] = (), **news: bool) -> Report:
        """What the others are told; of random streams, where rank 0's are now."""
        told = self.drawn.keys() - untold if own_rank() == 0 else ()
        return Report(self.outputs, self.error, self.text, random_streams(told) if told else {}, **news)


def raised_behind_helpers() -> Any:
    """sys.exc_info(), with the traceback from the first frame on that is not torch's nor one of those of `attempt`."""
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
    that come or thaw later. With whole_outputs=True every rank gets all outputs at once, also large ones.
    With pure_forward=True nothing is done for a forward that leaves traces: the module itself runs, as in a port by
    hand. It is for modules whose forward sets no attribute, changes no buffer but running averages, prints nothing,
    draws nothing on the host, and does not ask which parameters there are; dp2ddp convert proves that.
    It is a DistributedDataParallel by name only: for isinstance, .module, and the keys of the state dict.
    """

    in_turn = False  # whether the ranks run the module one after another
    # One a process: a device has one default generator, whichever model draws from it.
    device_stream = DeviceStream()
    changes_behind = False  # whether layers may have run again since the buffers came

    def __init__(
        self, module: torch.nn.Module, dim: int = 0, whole_outputs: bool = False, pure_forward: bool = False
    ) -> None:
        torch.nn.Module.__init__(self)
        self.module = module
        self.dim = dim
        self.whole_outputs = whole_outputs
        self.pure_forward = pure_forward
        self.trained = False
        self.far_buffers = BuffersOfRankZero()
        self.mail = Mail()
        self.sums = SumsOfModel()
        self.crossing = Crossing(self.sums)
        self.compiler: Callable[[torch.nn.Module], torch.nn.Module] | None = None

    def compile(self, *args: Any, **options: Any) -> None:
        """Compile what each rank runs of the module; what the ranks say to each other is in no graph."""
        self.compiler = compiler_with(options)

    @uncompiled
    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if world_size() > 1:
            vars(self)["looked_up"] = contents_of(self.module)
            try:
                return self.forward_on_ranks(inputs, kwargs)
            finally:
                del vars(self)["looked_up"]
        alone = split_arguments(inputs, kwargs, 0, 1, lambda tensor: (1, tensor.to(self.device)))
        plain = self.compiler is None or is_compiled(self.module)
        module = self.module if plain else self.compiler(self.module)  # type: ignore[misc]
        return module(*alone.inputs, **alone.kwargs)

    def forward_on_ranks(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run this rank's replica, tell the others how it went, and join the outputs."""
        self.bring_buffers()
        link, copies, part = self.enter(inputs, kwargs)
        tensors: list[torch.Tensor] = []
        report = self.run_replica(part, copies, tensors)
        kind = self.is_training, torch.is_grad_enabled()
        letters = self.mail.exchange(kind, report, tensors, (inputs, kwargs))
        replica_is_done(link)
        reports = [letter.value for letter in letters]
        self.crossing.settle(
            any(report.sums_at_once for report in reports), all(report.sums_set_out for report in reports)
        )
        self.follow(reports)
        link = self.tie(link)
        ranks = [rank for rank, report in enumerate(reports) if report.outputs]
        return gather_outputs(
            [reports[rank].outputs[0] for rank in ranks],
            lambda faces: self.join_tensors(
                dict(zip(ranks, faces, strict=True)), tensors, link, self.dim, letters
            ),
        )

    @property
    def contents(self) -> Contents:
        """What the module is made of."""
        found: Contents | None = vars(self).get("looked_up")
        return contents_of(self.module) if found is None else found

    def enter(
        self, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor], Part]:
        """From what all ranks hold to this rank's: the link, copies of parameters, its part of the inputs."""
        world, grad = world_size(), torch.is_grad_enabled()
        parameters, device = self.parameters_in_graph(), self.device
        cut = {id(t): t for t in tensors_in((inputs, kwargs)) if t.requires_grad and grad}
        apart = self.sparse_parameters() if parameters else set()
        sparse, dense = [p for p in parameters if p in apart], [p for p in parameters if p not in apart]
        layouts: list[Layout] = [p.shape for p in sparse]
        layouts += [(self.dim, rank_sizes(tensor, world, self.dim)) for tensor in cut.values()]
        if layouts:
            link, *own = FromWhole.apply(tuple(layouts), *sparse, *cut.values())
        else:
            link, own = torch.zeros((), device=device, requires_grad=grad and not parameters), []
        LateSums.forget()
        self.sums.met_others |= has_hooks(dense)
        self.crossing = Crossing(self.sums)
        link, copies = copies_for_replica(self.crossing, link.to(device), dense)
        stand_ins = {id(p): copy for p, copy in zip((*dense, *sparse), (*copies, *own), strict=False)}
        chunks = dict(zip(cut, own[len(sparse) :], strict=True))
        part = split_arguments(inputs, kwargs, own_rank(), world, lambda tensor: self.take(tensor, chunks))
        return link, stand_ins, part

    def take(self, tensor: torch.Tensor, chunks: dict[int, torch.Tensor]) -> tuple[int, torch.Tensor]:
        """The number of chunks of an input, and this rank's, on its device."""
        world = world_size()
        count = len(chunk_sizes(tensor, world, self.dim))
        if id(tensor) in chunks:
            return count, self.way_out(chunks[id(tensor)].to(self.device))
        own = own_numbers(tensor.detach(), rank_sizes(tensor, world, self.dim), self.dim)
        return count, own.to(self.device, copy=True)

    def has_rows(self, part: Part) -> bool:
        """Whether there is anything to do for this rank's replica."""
        return own_rank() < part.replicas

    def host_streams(self, streams: dict[str, Any]) -> dict[str, Any]:
        """Those of the random streams that all replicas draw from: all but the one of the module's device."""
        own = "cuda" if self.device.type == "cuda" else "torch"
        return {name: state for name, state in streams.items() if name != own}

    def run_replica(self, part: Part, copies: dict[int, torch.Tensor], tensors: list[torch.Tensor]) -> Report:
        """Call a replica with its part of the inputs. The tensors of its output go to the list."""
        if not self.has_rows(part):
            return Report(())
        if self.runs_itself(copies):
            return self.run_module(part, copies, tensors)
        return self.run(lambda: describe_output(self.replica(copies)(*part.inputs, **part.kwargs), tensors))

    def runs_itself(self, copies: dict[int, torch.Tensor]) -> bool:
        """Whether no replica is needed: nothing that forward does would stay behind in the module."""
        if not self.pure_forward or self.compiler is not None:
            return False
        first_training = self.is_training and not self.trained  # in which layers may look at the data
        return not first_training and are_bare(self.contents.parts, bool(copies))

    def run_module(self, part: Part, copies: dict[int, torch.Tensor], tensors: list[torch.Tensor]) -> Report:
        """Call the module itself with its part of the inputs. The tensors of its output go to the list."""
        contents = self.contents
        are_held = are_held_elsewhere(contents.holders)
        with standing_in(contents.parts, contents.holders, copies):
            outcome = self.attempt(
                lambda: describe_output(self.module(*part.inputs, **part.kwargs), tensors),
                device_mark(self.device),
            )
        return outcome.report(
            changed_buffers=contents.is_training,
            buffers_are_held=are_held,
            sums_at_once=self.sums.met_others,
            sums_set_out=self.sums.may_set_out,
        )

    def replica(self, copies: dict[int, torch.Tensor]) -> torch.nn.Module:
        """What this rank runs of the module."""
        replica = replica_of(self.module, self.stand_ins(copies), self.contents.parts)
        plain = self.compiler is None or is_compiled(replica)
        return replica if plain else self.compiler(replica)  # type: ignore[misc]

    def run(self, call: Callable[[], Any]) -> Report:
        """Do a replica's work, which gives its described output."""
        contents = self.contents
        are_held = are_held_elsewhere(contents.holders)  # before the graph holds them
        versions = contents.versions()
        outcome = self.attempt(call, stream_marks())
        on_host = self.host_streams(outcome.drawn)
        buffers, parameters = (now != then for now, then in zip(contents.versions(), versions, strict=True))
        return outcome.report(
            on_host if self.in_turn else (),
            changed_buffers=buffers or contents.is_training,
            changed_parameters=parameters,
            drew_on_host=bool(on_host) and not self.in_turn,
            buffers_are_held=are_held,
            sums_at_once=self.sums.met_others,
            sums_set_out=self.sums.may_set_out,
        )

    def attempt(self, call: Callable[[], Any], before: dict[str, Any]) -> "Outcome":
        """Do a replica's work, and see what came of it; `before` marks the random streams that it may draw from."""
        outputs: tuple[Any, ...] = ()
        error = None
        with inside_replica(), self.replica_streams(before) as text:
            try:
                outputs = (call(),)
            except Exception:  # it is raised on every rank, in follow
                error = ExceptionWrapper(
                    raised_behind_helpers(), where=f"in replica {own_rank()} on device {self.device}"
                )
            drawn = changed_streams(stream_marks(before), before)
        return Outcome(outputs, error, text.getvalue(), drawn)

    @contextlib.contextmanager
    def replica_streams(self, before: dict[str, Any]) -> Iterator[io.StringIO]:
        """On ranks > 0, draw from the device's own stream, then go on with the script's; keep the print."""
        text = io.StringIO()
        if own_rank() == 0:
            yield text
            return
        with contextlib.redirect_stdout(text), self.device_stream.drawn_from(default_generator(self.device)):
            yield text
        shared = self.host_streams(before) if self.in_turn else {}
        kept = ("torch", "cuda")  # of the others, marks are no states
        set_random_streams({name: before[name] for name in before if name in kept and name not in shared})

    def stand_ins(self, copies: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
        """What a replica computes with: as with DataParallel, only replica 0 can change the module's own.

        Except that parameters are copied in the first training pass only, in which layers may look at the
        data to initialise themselves. To copy them at every step would cost more than it is worth. And running
        averages of other ranks are nobody's: rank 0's come when somebody looks at them.
        """
        if own_rank() == 0:
            return copies
        contents = self.contents
        if contents.is_training and not self.trained:
            copies = {id(p): copies.get(id(p), p).clone() for p in contents.parameters}
        far = [part for part in contents.holders if not reads_no_buffer(part)]
        return {**copies, **{id(one): one.clone() for one in tensors_of(map(held_buffers, far))}}

    def follow(self, reports: Sequence[Report]) -> None:
        """Let every rank go on as rank 0 does: errors, printed lines, random streams, buffers."""
        if own_rank() == 0:
            for report in reports[1:]:
                sys.stdout.write(report.text)
        elif reports[0].streams:
            set_random_streams(reports[0].streams)
        if any(report.drew_on_host for report in reports):
            streams = self.host_streams(exchange(random_streams())[0])
            set_random_streams(streams)
        if reports[0].changed_buffers:
            self.leave_buffers(any(report.buffers_are_held for report in reports))
        for report in reports:
            if report.error is not None:
                report.error.reraise()
        if len(reports) > 1 and any(report.drew_on_host for report in reports) and reports[1].outputs:
            raise RuntimeError(
                "The module draws random numbers on the host in its forward pass (random, numpy, or torch on the "
                "CPU). Let the ranks draw one after another: take dp2ddp.templates.in_turn.InTurnDDP."
            )
        first_training = self.is_training and not self.trained
        if first_training or any(report.changed_parameters for report in reports):
            copy_from_rank(0, self.contents.parameters)
        self.trained = (self.trained or first_training) and not self.in_turn

    def leave_buffers(self, are_held: bool) -> None:
        """Rank 0 has changed buffers. The others get them now, if somebody would not ask for them."""
        self.far_buffers.leave(self.contents.holders)
        if are_held or "looked_up" not in vars(self) or self.contents.is_compiled or self.compiler:
            self.far_buffers.arrive()
            self.changes_behind = self.is_training and torch.is_grad_enabled()

    def bring_buffers(self) -> None:
        """Let all ranks have rank 0's buffers, if this forward pass reads any.

        Also those that came at once: a checkpoint runs layers again in backward, and they may have changed since.
        """
        parts = self.contents.holders
        if self.changes_behind:
            self.far_buffers.leave(parts)
            self.far_buffers.arrive()
            self.changes_behind = False
        own = self.far_buffers.arrive
        kinds: Any = set(map(type, self.contents.parts))
        if any(map(names_averages, kinds)):
            own()
        for part in parts:
            table = part._buffers
            if type(table) is GuardedBuffers and (table.arrive != own or not reads_no_buffer(part)):
                table.arrive()

    def join_tensors(
        self,
        faces: dict[int, Face],
        tensors: list[torch.Tensor],
        link: torch.Tensor,
        dim: int,
        letters: Sequence[Letter] = (),
    ) -> torch.Tensor:
        """One tensor from the ranks' tensors along a dimension, by the rules of torch.nn.parallel.gather."""
        shapes = dict(zip(faces, joinable_shapes(list(faces.values()), dim), strict=True))
        sizes = tuple(shapes[rank][dim] if rank in shapes else 0 for rank in range(world_size()))
        come = self.come_already(faces, shapes, letters)
        if own_rank() in faces:
            own = tensors[faces[own_rank()].place].view(shapes[own_rank()])
        else:
            some = next(iter(shapes))
            own = link.new_empty(shapes[some], dtype=faces[some].dtype).narrow(dim, 0, 0)
        if not (torch.is_grad_enabled() and any(face.needs_gradient for face in faces.values())):
            whole = torch.cat(come, dim) if come else join_parts(own, sizes, dim)
        else:
            with torch.no_grad():
                whole = torch.cat(come, dim) if come else join_parts(own, sizes, dim)
            whole = RowsIntoWhole.apply((dim, sizes), self.entrance_factor, [whole], link, own)
        whole = plain(whole) if self.whole_outputs else whole
        self.watch(whole)
        if all(face.channels_last for face in faces.values()) and not is_parted(whole):
            return whole.contiguous(memory_format=torch.channels_last)
        return whole

    def come_already(
        self, faces: dict[int, Face], shapes: dict[int, torch.Size], letters: Sequence[Letter]
    ) -> list[torch.Tensor]:
        """The ranks' tensors, if all of them came with the reports."""
        come = {rank: letters[rank].tensors for rank in faces if letters}
        if not letters or any(tensors is None for tensors in come.values()):
            return []
        return [come[rank][faces[rank].place].view(shapes[rank]) for rank in faces]  # type: ignore[index]

    def way_out(self, chunk: torch.Tensor) -> torch.Tensor:
        """Rows of an input, where their gradient goes out to the whole input."""
        return chunk

    @property
    def entrance_factor(self) -> float:
        """What gradients of the whole are multiplied by where they enter the own rows."""
        return 1.0

    def watch(self, whole: torch.Tensor) -> None:
        """Called with each tensor that comes out of the forward pass, before the script has it."""

    def tensor_of(
        self, rank: int, face: Face, tensors: list[torch.Tensor], link: torch.Tensor
    ) -> torch.Tensor:
        """One rank's tensor, on every rank, with the dimensions in the same order of memory."""
        flat = Face(0, torch.Size([face.shape.numel()]), face.dtype, face.needs_gradient)
        own = [tensors[face.place].permute(face.order).reshape(-1)] if rank == own_rank() else []
        whole = plain(self.join_tensors({rank: flat}, own, link, 0))
        return whole.view([face.shape[place] for place in face.order]).permute(
            sorted(range(len(face.order)), key=face.order.__getitem__)
        )

    def parameters_in_graph(self) -> list[torch.nn.Parameter]:
        """The parameters whose gradients are added up inside the autograd graph."""
        return self.trainable()

    def sparse_parameters(self) -> set[torch.Tensor]:
        """The weights of embeddings whose gradients hold only the rows that were looked up."""
        layers = [
            part
            for part in self.contents.parts
            if vars(part).get("sparse", getattr(type(part), "sparse", False)) is True
        ]
        return {p for layer in layers for p in layer._parameters.values() if p is not None}

    def tie(self, link: torch.Tensor) -> torch.Tensor:
        """The link that the joined outputs get."""
        return link

    def trainable(self) -> list[torch.nn.Parameter]:
        """The parameters that this forward pass can give a gradient."""
        return self.contents.trainable if torch.is_grad_enabled() else []

    @property
    def is_training(self) -> bool:
        """Whether any part of the module is in training mode."""
        return self.contents.is_training

    @property
    def device(self) -> torch.device:
        """Where the module is."""
        return self.contents.device

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients are whole after every backward pass, as DataParallel's are."""
        yield

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Saved as a whole it is a DataParallel around the module, as it was before: any script can load that."""
        wrapper = torch.nn.DataParallel(self.module, dim=self.dim)
        own = ("dim", "whole_outputs", "pure_forward", "trained", "far_buffers", "changes_behind", "mail",
               "compiler", "reducing", "missing", "careful", "scales_rows", "ties_all", "looked_up",
               "sums", "crossing")  # fmt: skip
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
        sums = SumsOfModel()
        return {
            **vars(self),
            "far_buffers": BuffersOfRankZero(),
            "mail": Mail(),
            "sums": sums,
            "crossing": Crossing(sums),
        }

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
    are multiplied by world where they enter the own rows, and divided again where they leave by the inputs; in
    float16, where that may overflow, on their way to the parameters. (Not by a hook that sums without dividing: under
    accumulation the reducer averages all that .grad holds.)

    Right for one forward and one backward a step; for anything else take GraphDDP.
    """

    training_wrappers: "weakref.WeakSet[Any]" = weakref.WeakSet()  # all that have run with gradients
    careful = (
        True  # whether each parameter gets a stand-in: until it is known that forward leaves parameters alone
    )
    scales_rows = False  # in this forward pass; otherwise the parameters' gradients are scaled
    ties_all = True  # whether this forward pass brings zeros to all parameters

    def __init__(
        self, module: torch.nn.Module, dim: int = 0, whole_outputs: bool = False, pure_forward: bool = False
    ) -> None:
        super().__init__(module, dim, whole_outputs, pure_forward)
        self.reducing: tuple[Any, ...] = ()
        self.missing = MissingGradients()
        notice_half_precision()

    def forward_on_ranks(self, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.trainable():
            return super().forward_on_ranks(inputs, kwargs)
        self.training_wrappers.add(self)
        return self.reducing_ddp()(lambda: super(ExactDDP, self).forward_on_ranks(inputs, kwargs))

    def reducing_ddp(self) -> DistributedDataParallel:
        """torch's DistributedDataParallel of the module, made anew when other parameters are trained."""
        wanted = [(id(p), p.requires_grad, p.device, p.dtype) for p in self.contents.parameters]
        if not self.reducing or self.reducing[0] != wanted:
            if self.reducing:
                drop_reducer(self.reducing[1])
            made = DistributedDataParallel(ReducedCall(self.module), **no_buffers())
            made.modules_buffers, made.named_module_buffers = [], {}  # they come by BuffersOfRankZero
            self.reducing = (wanted, made)
        ddp: DistributedDataParallel = self.reducing[1]
        return ddp

    def enter(
        self, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor], Part]:
        parameters = self.trainable()
        compiled = self.compiler is not None or self.contents.is_compiled
        self.scales_rows = not (self.careful or compiled or may_be_half(parameters))
        FactorAhead.now = self.entrance_factor
        self.ties_all = len(self.training_wrappers) > 1
        link, _, part = super().enter(inputs, kwargs)
        self.ties_all = self.ties_all or not self.has_rows(part)
        self.missing.expect(parameters)
        if self.scales_rows:
            return link, {}, part
        return link, {id(p): ScaleGradient.apply(p, world_size()) for p in parameters}, part

    def way_out(self, chunk: torch.Tensor) -> torch.Tensor:
        self.ties_all = True  # by them comes an exchange in backward: on all ranks behind the same gradients
        return ScaleGradient.apply(chunk, 1 / world_size()) if self.scales_rows else chunk

    @property
    def entrance_factor(self) -> float:
        return float(world_size()) if self.scales_rows else 1.0

    def watch(self, whole: torch.Tensor) -> None:
        if not self.ties_all:
            self.missing.watch(whole)

    def run_replica(self, part: Part, copies: dict[int, torch.Tensor], tensors: list[torch.Tensor]) -> Report:
        if self.runs_itself(copies):
            return super().run_replica(part, copies, tensors)
        places = {p.data_ptr() for p in self.contents.parameters}
        report = super().run_replica(part, copies, tensors)
        if copies:
            moved = any(copy.data_ptr() not in places or copy._backward_hooks for copy in copies.values())
        else:
            moved = {p.data_ptr() for p in self.contents.parameters} != places
        return dataclasses.replace(report, moved_parameters=moved and own_rank() == 0)

    def follow(self, reports: Sequence[Report]) -> None:
        super().follow(reports)
        if reports[0].moved_parameters and self.scales_rows:
            raise RuntimeError(
                "The module's forward has given a parameter other data (parameter.data = ...), which it did not do "
                "in its first training pass. Take GraphDDP, whose replicas have parameters of their own."
            )
        if self.is_training:
            self.careful = reports[0].moved_parameters

    def parameters_in_graph(self) -> list[torch.nn.Parameter]:
        return []

    def tie(self, link: torch.Tensor) -> torch.Tensor:
        """The link, with zero gradients for parameters that would get none.

        Tied after the module ran, so that backward comes here first and no parameter waits for its zeros.
        """
        wanted = self.trainable()
        if not self.ties_all:
            wanted = [p for p in wanted if id(p) in self.missing.known] if self.missing.known else []
        return ZeroGradients.apply(link, *wanted) if wanted else link

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "reducing": (), "missing": MissingGradients()}


def no_buffers() -> dict[str, Any]:
    """The option by which DistributedDataParallel leaves buffers alone in forward; renamed in torch 2.13."""
    options = inspect.signature(DistributedDataParallel.__init__).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in options else "broadcast_buffers": False}
