"""DDP201: the wrap itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import DropArgument, Finding, Hazard, Lift, Note, Replace, SetArgument
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.models import Wrap, WrapKind
from dp2ddp.codemod.facts.script import literal
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class DataParallel(Rule):
    """Wrap the model for one device a rank.

    ## What it does
    Puts another wrapper in the place of `DataParallel`, and drops `device_ids` and `output_device`: a rank has one
    device. `dim` stays. Which wrapper depends on the helpers that are enough for the script (`--tier`):

    - plain: `WholeBatchDDP`, torch's DistributedDataParallel with the batch cut before it and the outputs joined
      behind it; `WholeBatchDropoutDDP` for models that may draw random numbers;
    - lean: `WholeBatchParallel`, which sums gradients inside autograd; `OneStreamParallel` where the script draws on
      the device what its models draw there, too;
    - full: `ExactDDP` (DDP's reducer, where that is proven right), `GraphDDP` (gradients summed inside the graph) or
      `InTurnDDP` (replicas share random streams of the host, or what they fill).

    Where the forward is proven to do nothing but compute (it sets no attribute, prints nothing, draws nothing on the
    host), `pure_forward=True` of the full wrappers lets the module itself run, as in a port by hand; else a replica
    of it runs, from which nothing comes back, as from DataParallel's.

    ## Why
    DataParallel copies the weights to every GPU in every step and gathers everything on the first, in one process.

    ## Safety
    The new wrapper splits its input as DataParallel does, gathers the outputs, and sums the gradients: the code
    around it sees what it saw. Its `.module` and the `module.` in checkpoints stay. A wrap with one literal
    device id is a plain call and is left alone.

    ## References
    torch/nn/parallel/data_parallel.py; docs/semantics.md#chunks, docs/semantics.md#gather,
    docs/semantics.md#gradient-scale, docs/semantics.md#replicas, docs/semantics.md#module-called,
    docs/semantics.md#device-ids.
    """

    code = "DDP201"
    name = "data-parallel"
    nodes = ("Arg", "Attribute", "Name")
    examples = (
        Rewrites(
            before="""
                import torch.nn as nn
                net = nn.DataParallel(net, device_ids=[0, 1], output_device=0).cuda()
            """,
            after="""
                import torch.nn as nn
                net = GraphDDP(net).cuda()
            """,
        ),
        Rewrites(
            before="""
                from torch.nn.parallel import DataParallel as DP
                net = DP(net, dim=1)
            """,
            after="""
                from torch.nn.parallel import DataParallel as DP
                net = GraphDDP(net, dim=1)
            """,
        ),
        Rewrites(
            before="""
                import torch as ch
                net = ch.nn.DataParallel(net, **options)
            """,
            after="""
                import torch as ch
                net = DataParallelOnRanks(net, **options)
            """,
        ),
        Rewrites(
            before="""
                import torch
                class Net(torch.nn.Module):
                    def forward(self, x):
                        return x + torch.randn(x.size()).cuda()
                net = torch.nn.DataParallel(Net())
            """,
            after="""
                import torch
                class Net(torch.nn.Module):
                    def forward(self, x):
                        return x + torch.randn(x.size()).cuda()
                net = InTurnDDP(Net())
            """,
        ),
        Rewrites(
            before="""
                import torch
                class Net(torch.nn.Module):
                    def forward(self, x):
                        self.codebook.data[0].mul_(0.9).add_(x.mean(0))
                        return x - self.codebook[0]
                net = torch.nn.DataParallel(Net())
            """,
            after="""
                import torch
                class Net(torch.nn.Module):
                    def forward(self, x):
                        self.codebook.data[0].mul_(0.9).add_(x.mean(0))
                        return x - self.codebook[0]
                net = InTurnDDP(Net())
            """,
        ),
        Untouched("import torch.nn as nn\nnet = nn.DataParallel(net, device_ids=[args.gpu])"),
        Untouched(
            "from torch.nn.parallel import DistributedDataParallel\nnet = DistributedDataParallel(net)"
        ),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        for wrap in (wrap for wrap in facts.wraps if wrap.kind is WrapKind.WRAP):
            if facts.wraps_frozen_only:
                yield Note(wrap.call.node, _FROZEN)
            if wrap.is_single and any(not other.is_single for other in facts.all_wraps):
                yield Hazard(
                    wrap.call.node,
                    "this DataParallel has one device, beside others with more",
                    "take it away here if its `module.` is not needed, then convert again",
                )
            elif wrap.is_single:
                yield Note(
                    wrap.call.node, "one device: DataParallel is a plain call there, so it stays as it is"
                )
            elif facts.replication.changes_wrappers or not wrap.is_readable:
                because = (
                    "has DataParallel's parts, over the ranks: the script has some of its own"
                    if facts.replication.changes_wrappers
                    else "takes all arguments of DataParallel, as they cannot be read here"
                )
                yield Replace(wrap.call.node.func, facts.names.helper(facts.wrapper_with_parts), because)
                yield Lift(facts.wrapper_with_parts, because)
            else:
                yield from self._convert(facts, wrap, strategy)

    def _convert(self, facts: Facts, wrap: Wrap, strategy: Strategy) -> Iterator[Finding]:
        wrapper = "InTurnDDP" if facts.needs_rank_order else strategy.wrapper
        call, helper = wrap.call, facts.names.helper(wrapper)
        because = f"a rank runs its rows on its own device; gradients: {strategy.gradients.value}"
        yield Replace(call.node.func, helper, because)
        yield Lift(wrapper, because="takes DataParallel's place")
        yield from _unknown_world(facts, wrap)
        for position, argument in enumerate(call.node.args[1:3], start=1):
            yield DropArgument(argument, call.node, _REASONS[position])
        for position, keyword in enumerate(("device_ids", "output_device"), start=1):
            keyword_given = call.keyword(keyword)
            if keyword_given:
                yield DropArgument(keyword_given, call.node, _REASONS[position])
        # A dim given by position moves up to second place, which is where the new wrapper has it too.
        for option in strategy.wrapper_options:
            yield SetArgument(call.node, option, "True", because)


def _unknown_world(facts: Facts, wrap: Wrap) -> Iterator[Note]:
    """device_ids that cannot be read, unless they are all devices there are."""
    given = wrap.device_ids
    if given is None or wrap.count or literal(given) is None and isinstance(given, ast.Constant):
        return
    counts_all = any(
        isinstance(node, ast.Call) and facts.script.scopes.name(node.func) == "torch.cuda.device_count"
        for node in ast.walk(facts.script.scopes.value(given) or given)
    )
    if not counts_all:
        yield Note(
            given, "these device_ids cannot be read: start one rank for each of them (--nproc-per-node)"
        )


_FROZEN = (
    "only models that are not trained are wrapped: the one that is trained runs whole, on every rank, so several "
    "devices gain next to nothing; wrap that one, or take this DataParallel out and stay with one device"
)
_REASONS = {1: "torchrun starts one process a device", 2: "outputs are gathered on every rank"}
