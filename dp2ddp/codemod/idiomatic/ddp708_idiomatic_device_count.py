"""DDP708: the number of devices."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.models import WrapKind
from dp2ddp.codemod.idiomatic.process_names import ProcessNames
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.rules.ddp103_device_count import asks_for_any, holds
from dp2ddp.codemod.strategy import Strategy


class WorldSize(Rule):
    """Ask how many ranks there are where the script asks how many GPUs.

    ## What it does
    `torch.cuda.device_count()` becomes `world_size`, in conditions, prints and batch-size arithmetic.

    ## Why
    DataParallel used all GPUs of the machine; the number it used is the number of ranks now.

    ## Safety
    A question whether there is any GPU (`device_count() >= 1`) is not touched.

    ## References
    docs/semantics.md#device-count; docs/idiomatic.md.
    """

    code = "DDP708"
    name = "idiomatic-device-count"
    nodes = ("Call",)
    examples = (
        Rewrites(
            before="""
                import torch
                if torch.cuda.device_count() > 1:
                    net = torch.nn.DataParallel(net)
            """,
            after="""
                import torch
                if world_size > 1:
                    net = torch.nn.DataParallel(net)
            """,
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nassert torch.cuda.device_count() >= 1"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        words = ProcessNames(facts)
        for call in facts.script.calls_of("torch.cuda.device_count"):
            ids = (wrap.device_ids for wrap in facts.wraps if wrap.kind is WrapKind.WRAP)
            if any(
                ids_given is not None and holds(facts, ids_given, call.node) for ids_given in ids
            ) or asks_for_any(facts, call.node):
                continue
            because = "as many ranks as DataParallel had devices"
            yield Replace(call.node, words.world, because)
            yield from words.imports(because)
