"""DDP902: several devices, driven by the script itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.looked_up import lookups
from dp2ddp.codemod.facts.models import (
    copies_by_hand,
    foreign_callbacks,
    foreign_wraps,
    parts_handed_on,
)
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy


class HandMadeParallel(Rule):
    """Say where a script drives several devices in a way that has no counterpart over the ranks.

    ## What it does
    A hazard for copies between devices (torch.cuda.comm), for wrappers whose source is not there, for parts of
    DataParallel that are handed on uncalled, and for classes that are looked up by a name (`getattr(nn, name)`) where
    a text of the project, or a file of settings beside it, names DataParallel as a value.

    ## Why
    One process drives several devices there. A rank has one device, and what such code does with the others is
    its own affair.

    ## Safety
    Nothing is changed. Subclasses of DataParallel (DDP203), its parts (DDP204), and batch norm that is synchronised
    between the replicas (DDP207) are converted.

    ## References
    torch/nn/parallel/comm.py.
    """

    code = "DDP902"
    name = "hand-made-parallel"
    nodes = ("Call", "Name", "Subscript")
    examples = (
        Flags(
            before="""
                import torch.cuda.comm as comm
                parts = comm.scatter(x, [0, 1])
            """,
            message="scatter() copies between devices",
        ),
        Flags(
            before="""
                from encoding.parallel import DataParallelModel
                net = DataParallelModel(net)
            """,
            message="DataParallelModel cannot be read",
        ),
        Flags(
            before="""
                import torch
                from sync_batchnorm import patch_replication_callback
                net = torch.nn.DataParallel(net)
                patch_replication_callback(net)
            """,
            message="patch_replication_callback cannot be read",
        ),
        Flags(
            before="""
                import torch.nn as nn
                parser.add_argument("--parallel", default="DataParallel")
                net = getattr(nn, args.parallel)(net)
            """,
            message="by its name",
        ),
        Flags(
            before="""
                import json
                import torch.nn as nn
                config = json.loads('{"parallel": "DataParallel"}')
                net = vars(nn)[config["parallel"]](net)
            """,
            message="`config['parallel']`, and line 3 names it",
        ),
        Flags(
            before="""
                import torch.nn as nn
                exec("net = nn.DataParallel(net)")
            """,
            message="runs a text that names DataParallel",
        ),
        Flags(
            before="""
                from torchpack.parallel import make_data_parallel
                net = make_data_parallel(net)
            """,
            message="make_data_parallel cannot be read",
        ),
        Untouched(
            """
                from typing import Optional, Union
                import torch.nn as nn
                def save(model: Union[nn.Module, nn.DataParallel]) -> nn.DataParallel:
                    found: Optional[nn.DataParallel] = None
            """
        ),
        Flags(
            before="""
                from torch.nn.parallel import parallel_apply
                run(net, parallel_apply)
            """,
            message="handed on",
        ),
        Untouched("import torch\nnet = torch.nn.DataParallel(net)\nrows = scatter(rows)"),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted:
            return
        for call in foreign_wraps(facts.script, facts.modules):
            name = ast.unparse(call.node.func)
            yield Hazard(call.node, f"{name} cannot be read: its source is not among the files here", _PLAIN)
        for call in copies_by_hand(facts.script):
            part = (call.name or "").removesuffix(".apply").rpartition(".")[2]
            yield Hazard(call.node, f"{part}() copies between devices, and a rank has one", _PLAIN)
        for node in foreign_callbacks(facts.script, facts.modules):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ast.unparse(node)
            yield Hazard(node, f"{name} cannot be read: its source is not among the files here", _SOURCE)
        for lookup in lookups(facts.script, facts.modules):
            yield Hazard(lookup.node, f"this {lookup.because}", _NAME)
        for reference in parts_handed_on(facts.script):
            yield Hazard(
                reference,
                f"{ast.unparse(reference)} is handed on, and its calls cannot be seen",
                _CALL,
            )


_SOURCE = "put its package beside the script (batch norm between replicas is converted), then convert again"
_NAME = (
    "write nn.DataParallel where it is meant (`nn.DataParallel if name == ... else ...`), then convert again"
)
_CALL = "call it here by its name, then convert again"
_PLAIN = "wrap the model in nn.DataParallel instead if its plain behaviour will do, then convert again"
