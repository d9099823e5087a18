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
from .messages import RankMessage, StepExchange
from .missing import MissingGradients
from .outputs import TensorMeta, describe_output, gather_outputs, joinable_shapes
from .parted import GradientFactor, is_parted, join_parts, own_numbers, plain
from .process import drop_reducer, exchange, own_rank, random_streams, set_random_streams, world_size
from .replicas import (
    Contents,
    DeviceStream,
    are_plain_layers,
    changed_streams,
    contents_of,
    default_generator,
    device_mark,
    replaced_parameters,
    replica_of,
    stream_marks,
)
from .rows import inside_replica
from .whole import (
    Layout,
    RowsIntoWhole,
    ScaleGradient,
    ScatterToRanks,
    ZeroGradients,
    copy_from_rank,
    replica_is_done,
)

Kind = TypeVar("Kind", bound=type)


@dataclass(frozen=True)
class ReplicaReport:
    """What a rank reports to the others about its forward pass."""

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

    def report(self, left_out: Collection[str] = (), **news: bool) -> ReplicaReport:
        """What the others get; of random streams, where rank 0's are now."""
        drawn = self.drawn.keys() - left_out if own_rank() == 0 else ()
        return ReplicaReport(
            self.outputs, self.error, self.text, random_streams(drawn) if drawn else {}, **news
        )


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
class ReplicaDDP(DistributedDataParallel):
    """nn.DataParallel over the ranks: rank r runs replica r. GraphDDP and ExactDDP say how gradients are summed.

    With whole_outputs=True every rank gets all outputs at once, also large ones.
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
        self.step_exchange = StepExchange()
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
        """Run this rank's replica, report to the others how it went, and join the outputs."""
        self.bring_buffers()
        link, copies, part = self.enter(inputs, kwargs)
        tensors: list[torch.Tensor] = []
        report = self.run_replica(part, copies, tensors)
        kind = self.is_training, torch.is_grad_enabled()
        messages = self.step_exchange.exchange(kind, report, tensors, (inputs, kwargs))
        replica_is_done(link)
        reports = [message.value for message in messages]
        self.follow(reports)
        link = self.bring_zero_gradients(link)
        ranks = [rank for rank, report in enumerate(reports) if report.outputs]
        return gather_outputs(
            [reports[rank].outputs[0] for rank in ranks],
            lambda metas: self.join_tensors(
                dict(zip(ranks, metas, strict=True)), tensors, link, self.dim, messages
            ),
        )

    @property
    def contents(self) -> Contents:
        """What the module is made of."""
        contents: Contents | None = vars(self).get("looked_up")
        return contents_of(self.module) if contents is None else contents

    def enter(
        self, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor], Part]:
        """From what all ranks hold to this rank's: the link, copies of parameters, its part of the inputs."""
        world, grad = world_size(), torch.is_grad_enabled()
        cut = {id(t): t for t in tensors_in((inputs, kwargs)) if t.requires_grad and grad}
        sparse = self.sparse_parameters()
        layouts: list[Layout] = [p.shape for p in sparse]
        layouts += [(self.dim, rank_sizes(tensor, world, self.dim)) for tensor in cut.values()]
        if layouts:
            link, *own = ScatterToRanks.apply(tuple(layouts), *sparse, *cut.values())
        else:
            is_first = grad and not self.parameters_in_graph()
            link, own = torch.zeros((), device=self.device, requires_grad=is_first), []
        link, stand_ins = self.copy_parameters(link.to(self.device), sparse)
        stand_ins |= {id(p): copy for p, copy in zip(sparse, own, strict=False)}
        chunks = dict(zip(cut, own[len(sparse) :], strict=True))
        part = split_arguments(inputs, kwargs, own_rank(), world, lambda tensor: self.take(tensor, chunks))
        return link, stand_ins, part

    def take(self, tensor: torch.Tensor, chunks: dict[int, torch.Tensor]) -> tuple[int, torch.Tensor]:
        """The number of chunks of an input, and this rank's, on its device."""
        world = world_size()
        count = len(chunk_sizes(tensor, world, self.dim))
        if id(tensor) in chunks:
            return count, self.scale_input_gradient(chunks[id(tensor)].to(self.device))
        own = own_numbers(tensor.detach(), rank_sizes(tensor, world, self.dim), self.dim)
        return count, own.to(self.device, copy=True)

    def has_rows(self, part: Part) -> bool:
        """Whether there is anything to do for this rank's replica."""
        return own_rank() < part.replicas

    def host_streams(self, streams: dict[str, Any]) -> dict[str, Any]:
        """Those of the random streams that all replicas draw from: all but the one of the module's device."""
        own = "cuda" if self.device.type == "cuda" else "torch"
        return {name: state for name, state in streams.items() if name != own}

    def run_replica(
        self, part: Part, copies: dict[int, torch.Tensor], tensors: list[torch.Tensor]
    ) -> ReplicaReport:
        """Call a replica with its part of the inputs. The tensors of its output go to the list."""
        if not self.has_rows(part):
            return ReplicaReport(())
        if self.runs_itself(copies):
            return self.run_module(part, copies, tensors)
        return self.run(lambda: describe_output(self.replica(copies)(*part.inputs, **part.kwargs), tensors))

    def runs_itself(self, copies: dict[int, torch.Tensor]) -> bool:
        """Whether no replica is needed: nothing that forward does would stay behind in the module."""
        if not self.pure_forward or self.compiler is not None:
            return False
        first_training = self.is_training and not self.trained  # in which layers may look at the data
        return not first_training and are_plain_layers(self.contents.parts, bool(copies))

    def run_module(
        self, part: Part, copies: dict[int, torch.Tensor], tensors: list[torch.Tensor]
    ) -> ReplicaReport:
        """Call the module itself with its part of the inputs. The tensors of its output go to the list."""
        contents = self.contents
        are_held = are_held_elsewhere(contents.holders)
        with replaced_parameters(contents.parts, contents.holders, copies):
            outcome = self.attempt(
                lambda: describe_output(self.module(*part.inputs, **part.kwargs), tensors),
                device_mark(self.device),
            )
        return outcome.report(
            changed_buffers=contents.is_training,
            buffers_are_held=are_held,
            **self.news_of_sums(),
        )

    def replica(self, copies: dict[int, torch.Tensor]) -> torch.nn.Module:
        """What this rank runs of the module."""
        replica = replica_of(self.module, self.stand_ins(copies), self.contents.parts)
        plain = self.compiler is None or is_compiled(replica)
        return replica if plain else self.compiler(replica)  # type: ignore[misc]

    def run(self, call: Callable[[], Any]) -> ReplicaReport:
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
            **self.news_of_sums(),
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
        return {**copies, **{id(tensor): tensor.clone() for tensor in tensors_of(map(held_buffers, far))}}

    def follow(self, reports: Sequence[ReplicaReport]) -> None:
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
                "CPU). Let the ranks draw one after another: take dp2ddp.helpers.InTurnDDP."
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
        metas: dict[int, TensorMeta],
        tensors: list[torch.Tensor],
        link: torch.Tensor,
        dim: int,
        messages: Sequence[RankMessage] = (),
    ) -> torch.Tensor:
        """One tensor from the ranks' tensors along a dimension, by the rules of torch.nn.parallel.gather."""
        shapes = dict(zip(metas, joinable_shapes(list(metas.values()), dim), strict=True))
        sizes = tuple(shapes[rank][dim] if rank in shapes else 0 for rank in range(world_size()))
        come = self.received_tensors(metas, shapes, messages)
        if own_rank() in metas:
            own = tensors[metas[own_rank()].place].view(shapes[own_rank()])
        else:
            some = next(iter(shapes))
            own = link.new_empty(shapes[some], dtype=metas[some].dtype).narrow(dim, 0, 0)
        if not (torch.is_grad_enabled() and any(meta.needs_gradient for meta in metas.values())):
            whole = torch.cat(come, dim) if come else join_parts(own, sizes, dim)
        else:
            with torch.no_grad():
                whole = torch.cat(come, dim) if come else join_parts(own, sizes, dim)
            whole = RowsIntoWhole.apply((dim, sizes), self.output_gradient_factor, [whole], link, own)
        whole = plain(whole) if self.whole_outputs else whole
        self.watch(whole)
        if all(meta.channels_last for meta in metas.values()) and not is_parted(whole):
            return whole.contiguous(memory_format=torch.channels_last)
        return whole

    def received_tensors(
        self, metas: dict[int, TensorMeta], shapes: dict[int, torch.Size], messages: Sequence[RankMessage]
    ) -> list[torch.Tensor]:
        """The ranks' tensors, if all of them came with the reports."""
        come = {rank: messages[rank].tensors for rank in metas if messages}
        if not messages or any(tensors is None for tensors in come.values()):
            return []
        return [come[rank][metas[rank].place].view(shapes[rank]) for rank in metas]  # type: ignore[index]

    def scale_input_gradient(self, chunk: torch.Tensor) -> torch.Tensor:
        """Rows of an input, where their gradient goes out to the whole input."""
        return chunk

    @property
    def output_gradient_factor(self) -> float:
        """What gradients of the whole are multiplied by where they enter the own rows."""
        return 1.0

    def watch(self, whole: torch.Tensor) -> None:
        """Called with each tensor that comes out of the forward pass, before the script has it."""

    def tensor_of(
        self, rank: int, meta: TensorMeta, tensors: list[torch.Tensor], link: torch.Tensor
    ) -> torch.Tensor:
        """One rank's tensor, on every rank, with the dimensions in the same order of memory."""
        flat = TensorMeta(0, torch.Size([meta.shape.numel()]), meta.dtype, meta.needs_gradient)
        own = [tensors[meta.place].permute(meta.order).reshape(-1)] if rank == own_rank() else []
        whole = plain(self.join_tensors({rank: flat}, own, link, 0))
        return whole.view([meta.shape[place] for place in meta.order]).permute(
            sorted(range(len(meta.order)), key=meta.order.__getitem__)
        )

    def parameters_in_graph(self) -> list[torch.nn.Parameter]:
        """The parameters whose gradients are added up inside the autograd graph."""
        return []

    def sparse_parameters(self) -> list[torch.nn.Parameter]:
        """Those of them whose gradients hold only the rows that were looked up."""
        return []

    def copy_parameters(
        self, link: torch.Tensor, sparse: Sequence[torch.nn.Parameter]
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """The link, and copies for this rank's replica of the others of them, by the parameters' id()."""
        return link, {}

    def news_of_sums(self) -> dict[str, Any]:
        """What the others have to know of how this rank's gradients are summed."""
        return {}

    def bring_zero_gradients(self, link: torch.Tensor) -> torch.Tensor:
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
        own = ("dim", "whole_outputs", "pure_forward", "trained", "far_buffers", "changes_behind", "step_exchange",
               "compiler", "reducing", "missing", "careful", "scales_rows", "zeros_for_all", "looked_up",
               "sums", "crossing")  # fmt: skip
        vars(wrapper).update({name: value for name, value in vars(self).items() if name not in own})
        return copyreg._reconstructor, (torch.nn.DataParallel, object, None), vars(wrapper)  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: dict[int, Any]) -> "ReplicaDDP":
        twin = memo[id(self)] = type(self).__new__(type(self))
        twin.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return twin

    def __copy__(self) -> "ReplicaDDP":
        twin = type(self).__new__(type(self))
        twin.__setstate__(self.__getstate__())
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "far_buffers": BuffersOfRankZero(), "step_exchange": StepExchange()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        torch.nn.Module.__setstate__(self, state)


@called_data_parallel
class GraphDDP(ReplicaDDP):
    """nn.DataParallel over the ranks; gradients are added up inside the autograd graph, as DataParallel does.

    Right for whatever autograd can do: several backward passes, autograd.grad, gradients of gradients, layers
    that come or thaw later.
    """

    def __init__(
        self, module: torch.nn.Module, dim: int = 0, whole_outputs: bool = False, pure_forward: bool = False
    ) -> None:
        super().__init__(module, dim, whole_outputs, pure_forward)
        self.sums = SumsOfModel()
        self.crossing = Crossing(self.sums)

    def parameters_in_graph(self) -> list[torch.nn.Parameter]:
        return self.trainable()

    def sparse_parameters(self) -> list[torch.nn.Parameter]:
        if not self.trainable():
            return []
        layers = [
            part
            for part in self.contents.parts
            if vars(part).get("sparse", getattr(type(part), "sparse", False)) is True
        ]
        weights = {p for layer in layers for p in layer._parameters.values() if p is not None}
        return [p for p in self.trainable() if p in weights]

    def copy_parameters(
        self, link: torch.Tensor, sparse: Sequence[torch.nn.Parameter]
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        apart = {*sparse}
        dense = [p for p in self.parameters_in_graph() if p not in apart]
        LateSums.forget()
        self.sums.met_others |= has_hooks(dense)
        self.crossing = Crossing(self.sums)
        link, copies = copies_for_replica(self.crossing, link, dense)
        return link, {id(p): copy for p, copy in zip(dense, copies, strict=True)}

    def news_of_sums(self) -> dict[str, Any]:
        return {"sums_at_once": self.sums.met_others, "sums_set_out": self.sums.may_set_out}

    def follow(self, reports: Sequence[ReplicaReport]) -> None:
        at_once = any(report.sums_at_once for report in reports)
        self.crossing.settle(at_once, all(report.sums_set_out for report in reports))
        super().follow(reports)

    def __getstate__(self) -> dict[str, Any]:
        sums = SumsOfModel()
        return {**super().__getstate__(), "sums": sums, "crossing": Crossing(sums)}


def compile_on_ranks(model: Any = None, **options: Any) -> Any:
    """torch.compile; of a wrapped module, what each rank runs of it is compiled, in a shell with torch.compile's keys.

    DataParallel on several devices ran what was compiled around it as plain Python (pytorch/pytorch#94636).
    """
    if not isinstance(model, ReplicaDDP):
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
class ExactDDP(ReplicaDDP):
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
    zeros_for_all = True  # whether this forward pass brings zeros to all parameters

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
        state = [(id(p), p.requires_grad, p.device, p.dtype) for p in self.contents.parameters]
        if not self.reducing or self.reducing[0] != state:
            if self.reducing:
                drop_reducer(self.reducing[1])
            made = DistributedDataParallel(ReducedCall(self.module), **no_buffers())
            made.modules_buffers, made.named_module_buffers = [], {}  # they come by BuffersOfRankZero
            self.reducing = (state, made)
        ddp: DistributedDataParallel = self.reducing[1]
        return ddp

    def enter(
        self, inputs: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor], Part]:
        parameters = self.trainable()
        compiled = self.compiler is not None or self.contents.is_compiled
        self.scales_rows = not (self.careful or compiled or may_be_half(parameters))
        GradientFactor.now = self.output_gradient_factor
        self.zeros_for_all = len(self.training_wrappers) > 1
        link, _, part = super().enter(inputs, kwargs)
        self.zeros_for_all = self.zeros_for_all or not self.has_rows(part)
        self.missing.expect(parameters)
        if self.scales_rows:
            return link, {}, part
        return link, {id(p): ScaleGradient.apply(p, world_size()) for p in parameters}, part

    def scale_input_gradient(self, chunk: torch.Tensor) -> torch.Tensor:
        self.zeros_for_all = (
            True  # by them comes an exchange in backward: on all ranks behind the same gradients
        )
        return ScaleGradient.apply(chunk, 1 / world_size()) if self.scales_rows else chunk

    @property
    def output_gradient_factor(self) -> float:
        return float(world_size()) if self.scales_rows else 1.0

    def watch(self, whole: torch.Tensor) -> None:
        if not self.zeros_for_all:
            self.missing.watch(whole)

    def run_replica(
        self, part: Part, copies: dict[int, torch.Tensor], tensors: list[torch.Tensor]
    ) -> ReplicaReport:
        if self.runs_itself(copies):
            return super().run_replica(part, copies, tensors)
        places = {p.data_ptr() for p in self.contents.parameters}
        report = super().run_replica(part, copies, tensors)
        if copies:
            moved = any(copy.data_ptr() not in places or copy._backward_hooks for copy in copies.values())
        else:
            moved = {p.data_ptr() for p in self.contents.parameters} != places
        return dataclasses.replace(report, moved_parameters=moved and own_rank() == 0)

    def follow(self, reports: Sequence[ReplicaReport]) -> None:
        super().follow(reports)
        if reports[0].moved_parameters and self.scales_rows:
            raise RuntimeError(
                "The module's forward has given a parameter other data (parameter.data = ...), which it did not do "
                "in its first training pass. Take GraphDDP, whose replicas have parameters of their own."
            )
        if self.is_training:
            self.careful = reports[0].moved_parameters

    def bring_zero_gradients(self, link: torch.Tensor) -> torch.Tensor:
        """The link, with zero gradients for parameters that would get none.

        Tied after the module ran, so that backward comes here first and no parameter waits for its zeros.
        """
        parameters = self.trainable()
        if not self.zeros_for_all:
            parameters = [p for p in parameters if id(p) in self.missing.known] if self.missing.known else []
        return ZeroGradients.apply(link, *parameters) if parameters else link

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "reducing": (), "missing": MissingGradients()}


def no_buffers() -> dict[str, Any]:
    """The option by which DistributedDataParallel leaves buffers alone in forward; renamed in torch 2.13."""
    options = inspect.signature(DistributedDataParallel.__init__).parameters
    return {"forward_sync_buffers" if "forward_sync_buffers" in options else "broadcast_buffers": False}
