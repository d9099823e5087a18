"""DDP401: autocast with a dtype, around a wrapped model."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Note
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.rule import Notes, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy

AUTOCAST = ("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast")


class AutocastDtype(Rule):
    """Say where the wrapped model computes in another precision than before.

    ## What it does
    A note at `torch.autocast(..., dtype=...)` outside of a forward.

    ## Why
    Under DataParallel the replicas run in threads, which know that autocast is on, but not its dtype: bfloat16 around a
    wrapped model is float16 inside it. The ranks have no such threads and compute in the dtype that was asked for.

    ## Safety
    Nothing is changed. `verify` judges in float64 and cannot see it; its float32 runs, which are shown, can.

    ## References
    docs/semantics.md#autocast-dtype.
    """

    code = "DDP401"
    name = "autocast-dtype"
    nodes = ("Call",)
    examples = (
        Notes(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    output = net(x)
            """,
            message="float16",
        ),
        Untouched('import torch\nnet = torch.nn.DataParallel(net)\nwith torch.autocast("cuda"):\n    net(x)'),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted:
            return
        for call in facts.script.calls_of(*AUTOCAST):
            dtype = call.argument(None, "dtype")
            if dtype is None or facts.script.scopes.name(dtype) == "torch.float16":
                continue
            if facts.places.of(call.node) is ExecutionPlace.MAIN:
                yield Note(
                    call.node,
                    "DataParallel's threads did not know this dtype and computed in float16; the ranks compute in it",
                )
