"""Replicas that exchange messages while they run: batch norm over the rows of all replicas.

Under DataParallel the replicas' threads send what they have summed up to the first one's, where a function makes an
answer for each (Synchronized-BatchNorm-PyTorch). Here every rank gets the messages of all, in rank order, and calls
that function itself: it has the same numbers, so all have the same answers, and running averages.
"""

import contextlib
import functools
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from .ddp import GraphDDP, ReplicaReport, called_data_parallel
from .parted import plain
from .parts import DataParallelOnRanks, RunByHand, as_calls
from .process import alone, exchange, own_rank, world_size
from .rows import concatenate_ranks, put_together, take_apart
from .whole import GatherFromRanks, ScatterToRanks


@dataclass(frozen=True)
class TensorForm:
    """What the other ranks need to know of a tensor in a message."""

    shape: torch.Size
    kind: tuple[str, torch.dtype]  # where it is, "cuda" or "cpu"
    needs_gradient: bool


@dataclass(frozen=True)
class Message:
    """What a replica sends to all others: forms of its tensors, and what is no tensor."""

    leaves: tuple[Any, ...]

    @property
    def forms(self) -> list[TensorForm]:
        return [leaf for leaf in self.leaves if isinstance(leaf, TensorForm)]


def master_on_ranks(callback: str, register: str, run_master: str, run_slave: str) -> Callable[[Any], Any]:
    """Let the replicas that a class brings together (a SyncMaster) be ranks.

    By their names: its attribute with the function of all messages, [(0, message), (1, message), ...], its methods
    by which a replica gets a pipe, and by which the first one sends its message; and the method of a pipe by which
    the others send theirs.
    """

    def send(master: Any, message: Any) -> Any:
        return answer_on_ranks(getattr(master, callback), message)

    def pipe(master: Any, *identifier: Any, **named: Any) -> Any:
        return SimpleNamespace(**{run_slave: functools.partial(send, master)})

    def change(kind: Any) -> Any:
        setattr(kind, run_master, send)
        setattr(kind, register, pipe)
        return kind

    return change


def answer_on_ranks(function: Callable[[Any], Any], message: Any) -> Any:
    """What a function of all replicas' messages has for this rank."""
    if SyncedRun.now is not None:
        return SyncedRun.now.answer(function, message)
    if world_size() == 1:
        return dict(function([(0, message)]))[0]
    raise RuntimeError(
        "The replicas exchange messages outside of their forward pass: under torch.utils.checkpoint?"
    )


class SyncedRun(RunByHand):
    """One call of parallel_apply, of replicas that exchange messages.

    A rank without a replica takes part with nothing, in the forward and in the backward pass. The link goes from one
    exchange to the next, so that backward comes by all of them in one order, on all ranks.
    """

    now: "ClassVar[SyncedRun | None]" = None  # while this rank's replica runs

    def outputs_of(self, inputs: Sequence[Any], kwargs: Sequence[Any]) -> list[Any]:
        SyncedRun.now = self
        try:
            return super().outputs_of(inputs, kwargs)
        finally:
            SyncedRun.now = None

    def exchange_reports(self, report: ReplicaReport) -> list[ReplicaReport]:
        """How the replicas' forward passes went. Until all have ended, this rank takes part with nothing."""
        reports = exchange(report)
        while any(isinstance(each, Message) for each in reports):
            reports = self.take_part(reports, report)
        return reports

    def take_part(self, reports: Sequence[Any], report: ReplicaReport) -> list[Any]:
        """Be there while the others exchange messages; what comes after that."""
        if not self.is_complete(reports):
            return exchange(report)
        wholes = [leaf for leaves in self.whole_leaves(reports, []).values() for leaf in leaves]
        answered = exchange(report)
        forms = next((each.forms for each in answered if isinstance(each, Message)), None)
        if forms is None:  # the function has failed
            return answered
        tied = [leaf for leaf in wholes if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        zero = sum((leaf.reshape(-1)[:0].sum() for leaf in tied), start=self.link)
        self.own_copies([zero.to(*form.kind).expand(form.shape) for form in forms])
        return exchange(report)

    def is_complete(self, reports: Sequence[Any]) -> bool:
        """Whether there is a message of each replica."""
        return [rank for rank, each in enumerate(reports) if isinstance(each, Message)] == sorted(
            self.numbers
        )

    def answer(self, function: Callable[[Any], Any], message: Any) -> Any:
        """Send a message; what a function of all of them has for this rank."""
        leaves: list[Any] = []
        form = take_apart(message, leaves)
        received = exchange(message_of(leaves))
        if not self.is_complete(received):
            for error in (
                each.error for each in received if isinstance(each, ReplicaReport) and each.error is not None
            ):
                error.reraise()
            raise RuntimeError("One of the replicas has ended, for whose message the others wait.")
        wholes = self.whole_leaves(received, [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
        messages = [(rank, put_together(form, whole)) for rank, whole in wholes.items()]
        rank, answer_leaves = own_rank(), list[Any]()
        with alone(), contextlib.redirect_stdout(io.StringIO()) if rank else contextlib.nullcontext():
            form = take_apart(dict(function(messages))[rank], answer_leaves)
        wanting = [
            i for i, leaf in enumerate(answer_leaves) if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        own = [answer_leaves[i] for i in wanting]
        if len(wholes) < world_size():
            exchange(message_of(own))
        for i, tensor in zip(wanting, self.own_copies(own), strict=True):
            answer_leaves[i] = tensor
        return put_together(form, answer_leaves)

    def whole_leaves(self, messages: Sequence[Any], own: Sequence[torch.Tensor]) -> dict[int, list[Any]]:
        """What is in the messages of all replicas, by their numbers."""
        sent = {rank: each for rank, each in enumerate(messages) if isinstance(each, Message)}
        forms = [form for each in sent.values() for form in each.forms]
        pieces = {}
        for kind in dict.fromkeys(form.kind for form in forms):
            alike = [form for form in forms if form.kind == kind]
            counts = {
                rank: sum(form.shape.numel() for form in each.forms if form.kind == kind)
                for rank, each in sent.items()
            }
            sizes = tuple(counts.get(rank, 0) for rank in range(world_size()))
            nothing = torch.empty(0, device=kind[0], dtype=kind[1])
            flat = torch.cat([nothing, *(tensor.reshape(-1) for tensor in own if kind_of(tensor) == kind)])
            whole = self.whole(flat, sizes, any(form.needs_gradient for form in alike))
            parts = whole.split([form.shape.numel() for form in alike])
            pieces[kind] = iter(
                [part.clone().view(form.shape) for part, form in zip(parts, alike, strict=True)]
            )
        return {
            rank: [next(pieces[leaf.kind]) if isinstance(leaf, TensorForm) else leaf for leaf in each.leaves]
            for rank, each in sent.items()
        }

    def whole(self, flat: torch.Tensor, sizes: tuple[int, ...], needs_gradient: bool) -> torch.Tensor:
        """The ranks' vectors one behind the other."""
        if not needs_gradient:
            return concatenate_ranks(flat, sizes)
        with torch.enable_grad():  # as the replicas have it
            return plain(GatherFromRanks.apply(((0, sizes),), self.link.to(flat.device), flat)[0])

    def own_copies(self, answers: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """This rank's copies of what all ranks have, whose gradients add up over the ranks."""
        if not answers:
            return []
        with torch.enable_grad():
            link, *own = ScatterToRanks.apply(tuple(None for _ in answers), *answers)
            self.link = self.link.to(link.device) + link
        return own


def message_of(leaves: Sequence[Any]) -> Message:
    """A message as the other ranks may see it."""
    return Message(
        tuple(
            TensorForm(leaf.shape, kind_of(leaf), leaf.requires_grad and torch.is_grad_enabled())
            if isinstance(leaf, torch.Tensor)
            else leaf
            for leaf in leaves
        )
    )


def kind_of(tensor: torch.Tensor) -> tuple[str, torch.dtype]:
    """Tensors of a kind travel together."""
    return tensor.device.type, tensor.dtype


@called_data_parallel
class SyncedOnRanks(DataParallelOnRanks):
    """nn.DataParallel over the ranks, of modules whose replicas exchange messages while they run."""

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if world_size() == 1:  # one device: nobody to talk with
            return GraphDDP.forward(self, *inputs, **kwargs)
        return super().forward(*inputs, **kwargs)

    def parallel_apply(self, replicas: Sequence[Any], inputs: Sequence[Any], kwargs: Any) -> list[Any]:
        return synced_apply_on_ranks(replicas, inputs, kwargs)


def synced_apply_on_ranks(
    modules: Sequence[Any], inputs: Sequence[Any], kwargs_tup: Any = None, devices: Any = None
) -> list[Any]:
    """torch.nn.parallel.parallel_apply over the ranks, of replicas that exchange messages while they run."""
    if world_size() == 1 and len(modules) > 1:
        raise RuntimeError(f"{len(modules)} replicas on 1 rank: start one rank for each device")
    return SyncedRun(modules).outputs_of(*as_calls(modules, inputs, kwargs_tup))
