"""Gradients of the replicas, added up over the ranks while backward runs, and given to the parameters at its end.

To sum inside the autograd graph is right for whatever autograd can do, but there each sum holds up all that comes
behind it. Where a backward pass does nothing with a sum but to add it to .grad, it need not wait: large sums set out as
soon as their gradients are there, small ones go together at the end. Added are the same numbers in the same order.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed

from .whole import GatherFromRanks, add_gradients, group_by_kind

EARLY_BYTES = 2**20  # sums of so many bytes set out at once: what a collective costs is little beside them
BUCKET_BYTES = 25 * 2**20  # of parameters whose gradients are summed together, as torch's reducer has it
TOO_LATE = (
    "A hook came to a parameter between a forward pass and its backward pass, when the ranks had settled how its "
    "gradient is summed. Register it before the forward pass."
)
SOON = 2**62  # a sequence number above all that autograd gives: such a node runs as soon as it can


class SumsOfModel:
    """What is known of how one model's gradients are summed."""

    def __init__(self) -> None:
        self.at_once = False  # all ranks have agreed that nothing waits
        # Of this rank: something looks at gradients on their way into .grad, or adds to them there.
        self.met_others = False
        # Of this rank: backward passes so far, and whether reentrant checkpoints brought gradients apart from the rest.
        self.passes = 0
        self.met_reentrant = False

    @property
    def may_set_out(self) -> bool:
        """Whether this rank saw backward passes in which all gradients of a layer came together."""
        return self.passes > 0 and not self.met_reentrant


class Crossing:
    """One forward pass of a model, from the parameters that all ranks hold to this rank's replica."""

    def __init__(self, model: SumsOfModel) -> None:
        self.model = model
        self.nodes: list[Any] = []  # those of CopiesForReplica
        self.sets_out = False  # all ranks have agreed that large sums begin as soon as they can

    def settle(self, at_once: bool, sets_out: bool) -> None:
        """All ranks have told of their forward passes."""
        self.model.at_once |= at_once
        self.sets_out = sets_out and not self.model.at_once
        for node in self.nodes if self.sets_out else ():
            node._set_sequence_nr(SOON)
        self.nodes.clear()


class CopiesForReplica(torch.autograd.Function):
    """ScatterToRanks of parameters: what all ranks hold alike becomes this rank's copies, whose gradients add up.

    The first output is the link (see ScatterToRanks). The last parameters of a module are the first to have their
    gradients, so their node is made last: links go from one to the next, and sums set out in the same order on all
    ranks.
    """

    @staticmethod
    def forward(
        ctx: Any, crossing: Crossing, link: torch.Tensor, *parameters: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.crossing, ctx.parameters = crossing, parameters
        ctx.set_materialize_grads(False)
        ctx.replica_is_done, ctx.early, ctx.sum = False, [], None
        own = (link.clone(), *(parameter.view_as(parameter) for parameter in parameters))
        ctx.forms = [(tensor.shape, tensor.dtype, tensor.device) for tensor in own]
        ctx.save_for_backward(own[0])
        return own

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        if gradients[0] is None and ctx.replica_is_done:  # a reentrant checkpoint: see ScatterToRanks
            ctx.crossing.model.met_reentrant = True
            if ctx.sum is None:
                ctx.early.append(gradients)
            else:
                ctx.sum.add_later(gradients[1:])
            return (None,) * (2 + len(ctx.parameters))
        each = zip(*ctx.early, gradients, strict=True)
        link_gradient, *own = (
            add_gradients(gradients, *form) for gradients, form in zip(each, ctx.forms, strict=True)
        )
        ctx.early = []
        if torch.is_grad_enabled():  # there will be gradients of gradients
            (link,) = ctx.saved_tensors
            link_gradient = link + link_gradient
        ways = destinations(ctx)
        if ways == {"nowhere"}:  # asked for is the gradient of something else, of the inputs say
            return (None, link_gradient, *(None for _ in own))
        if ways == {"grad"} and not ctx.crossing.model.at_once and not torch.is_grad_enabled():
            if has_hooks(ctx.parameters):
                raise RuntimeError(TOO_LATE)
            LateSums.of_this_backward().add(ctx, own)
            return (None, link_gradient, *(None for _ in own))
        return (None, link_gradient, *GatherFromRanks.apply(tuple(None for _ in own), link_gradient, *own))


def copies_for_replica(
    crossing: Crossing, link: torch.Tensor, parameters: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The link, and copies of parameters for this rank's replica."""
    copies: list[torch.Tensor] = []
    for bucket in buckets_of(parameters):
        link, *some = CopiesForReplica.apply(crossing, link, *bucket)
        crossing.nodes.append(link.grad_fn)
        copies += some
    return link, copies


def buckets_of(parameters: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Parameters in their order, cut into as few parts as hold BUCKET_BYTES each."""
    buckets: list[list[torch.Tensor]] = []
    room = 0
    for parameter in parameters:
        size = parameter.nbytes
        if not buckets or size > room:
            buckets.append([])
            room = BUCKET_BYTES
        buckets[-1].append(parameter)
        room -= size
    return buckets


def destinations(ctx: Any) -> "set[str]":
    """Where the gradients of this node go in this backward pass: "grad", "nowhere", and "elsewhere" (autograd.grad)."""
    kinds = set()
    for node, _ in ctx.next_functions[1:]:
        if node is None:  # frozen since the wrap
            continue
        try:
            kinds.add("grad" if torch._C._will_engine_execute_node(node) else "nowhere")
        except RuntimeError:  # what torch answers where autograd.grad asks for a parameter's gradient
            kinds.add("elsewhere")
    return kinds


def has_hooks(parameters: Sequence[torch.Tensor]) -> bool:
    """Whether something looks at gradients of these parameters before, or when, they have come into .grad."""
    return any(
        parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None)
        for parameter in parameters
    )


class LateSum:
    """Gradients by one node of CopiesForReplica, which add up over the ranks in one backward pass."""

    def __init__(self, ctx: Any, gradients: Sequence[torch.Tensor]) -> None:
        self.node, self.crossing = ctx, ctx.crossing
        self.parameters: Sequence[torch.Tensor] = ctx.parameters
        self.before = [state_of_gradient(parameter) for parameter in ctx.parameters]
        self.gradients = [*gradients]
        self.flats: list[
            tuple[list[int], torch.Tensor]
        ] = []  # gradients of a kind in a row, and their places
        self.works: list[Any] = []  # once it has set out
        self.rest: list[LateSum] = []  # what came when it had set out

    def add_later(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Gradients that came by themselves, when the others had been here."""
        given = [
            torch.zeros_like(p) if gradient is None else gradient
            for p, gradient in zip(self.parameters, gradients, strict=True)
        ]
        if self.works:
            self.rest.append(LateSum(self.node, given))
        else:
            self.gradients = [more + before for more, before in zip(given, self.gradients, strict=True)]

    def flatten(self) -> None:
        """Lay the gradients in rows."""
        self.flats = [
            (places, torch.cat([self.gradients[i].reshape(-1) for i in places]))
            for places in group_by_kind(self.gradients)
        ]
        self.gradients = []

    def totals(self) -> list[torch.Tensor]:
        """The sums, one for each parameter."""
        gradients = [*self.parameters]
        for places, flat in self.flats:
            parts = flat.split([self.parameters[i].numel() for i in places])
            for i, part in zip(places, parts, strict=True):
                gradients[i] = part.view(self.parameters[i].shape)
        return gradients


class LateSums:
    """All sums of one backward pass, in the order in which its gradients came."""

    passes: "dict[int, LateSums]" = {}  # by the number that autograd has for it

    def __init__(self) -> None:
        self.sums: list[LateSum] = []

    @classmethod
    def of_this_backward(cls) -> "LateSums":
        """Those of the backward pass that this runs in."""
        number = torch._C._current_graph_task_id()
        if number not in cls.passes:
            sums = cls.passes[number] = LateSums()
            torch.autograd.Variable._execution_engine.queue_callback(lambda: sums.finish(number))
        return cls.passes[number]

    @classmethod
    def forget(cls) -> None:
        """Outside of any backward pass: one that raised has left its sums, and they are nobody's."""
        if cls.passes and torch._C._current_graph_task_id() == -1:
            cls.passes.clear()

    def add(self, ctx: Any, gradients: Sequence[torch.Tensor]) -> None:
        """Add up a node's gradients over the ranks by the end of the backward pass."""
        late = ctx.sum = LateSum(ctx, gradients)
        self.sums.append(late)
        if ctx.crossing.sets_out and sum(gradient.nbytes for gradient in gradients) >= EARLY_BYTES:
            late.flatten()
            late.works = [start_sum(flat) for _, flat in late.flats]

    def finish(self, number: int) -> None:
        """The backward pass is over: let all gradients be whole."""
        del self.passes[number]
        for late in self.sums:
            late.node.sum = late.node = None
        every = [each for late in self.sums for each in (late, *late.rest)]
        for model in {id(late.crossing.model): late.crossing.model for late in every}.values():
            model.passes += 1
        sum_together([late for late in every if not late.works])
        for late in every:
            for work in late.works:
                work.wait()
        with torch.no_grad():
            give_sums(every)


def sum_together(sums: Sequence[LateSum]) -> None:
    """Begin sums that have not set out, with one collective for all gradients of a kind."""
    for late in sums:
        late.flatten()
    rows = [(late, i) for late in sums for i in range(len(late.flats))]
    for group in group_by_kind([late.flats[i][1] for late, i in rows]):
        some = [rows[place] for place in group]
        flats = [late.flats[i][1] for late, i in some]
        whole = flats[0] if len(flats) == 1 else torch.cat(flats)
        work = start_sum(whole)
        for (late, i), part in zip(some, whole.split([flat.numel() for flat in flats]), strict=True):
            late.flats[i] = late.flats[i][0], part
            late.works.append(work)


def give_sums(sums: Sequence[LateSum]) -> None:
    """Add sums to .grad: what came from several forward passes adds up first, as in autograd's buffers."""
    totals: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for late in sums:
        for p, before, total in zip(late.parameters, late.before, late.totals(), strict=True):
            if id(p) in totals:
                total = totals[id(p)][1] + total
            elif state_of_gradient(p) != before:
                late.crossing.model.met_others = True
            totals[id(p)] = p, total
    wanting = [pair for pair in totals.values() if pair[0].requires_grad]
    have = [(p.grad, total) for p, total in wanting if p.grad is not None]
    for p, total in wanting:
        if p.grad is None:
            p.grad = total if p.is_contiguous() else torch.empty_like(p).copy_(total)
    if have:
        torch._foreach_add_([grad for grad, _ in have], [total for _, total in have])


def state_of_gradient(parameter: torch.Tensor) -> tuple[Any, int]:
    """Which tensor .grad is, and a number that grows when something is added to it."""
    gradient = parameter.grad
    return (None, 0) if gradient is None else (id(gradient), gradient._version)


def start_sum(flat: torch.Tensor) -> Any:
    """Begin to add up a tensor over the ranks, in place."""
    real = torch.view_as_real(flat) if flat.is_complex() else flat
    return torch.distributed.all_reduce(real, async_op=True)
