"""DDP603: a total batch size that each rank takes whole."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.own_file import literal
from dp2ddp.review.problems import Level

TOTAL = re.compile(
    r"\b(total|global|overall|effective)\b|\b(all|across)\b.{0,12}\b(gpu|device|rank)", re.IGNORECASE
)


class TotalBatchOnEachRank(CheckRule):
    """The argument promises a total batch size, and each rank takes all of it.

    ## What it does
    Finds a command line argument whose help speaks of the total or global batch, or that of all GPUs, and a
    loader with a `DistributedSampler` that gets it undivided.

    ## Why
    With W ranks the batch is W times what was asked for, and the learning rate no longer fits it.

    ## Safety
    Silent where the argument is assigned to or divided anywhere in the file, and where a function of another file
    may do that.

    ## References
    https://github.com/pytorch/examples/issues/640, https://github.com/pytorch/examples/issues/771.
    """

    code = "DDP603"
    name = "total-batch-on-each-rank"
    level = Level.WARNING

    examples = (
        Flags(
            before="""
                import argparse
                from torch.utils.data import DataLoader, DistributedSampler
                parser = argparse.ArgumentParser()
                parser.add_argument("--batch-size", type=int, help="total batch size of all GPUs")
                args = parser.parse_args()
                loader = DataLoader(data, batch_size=args.batch_size, sampler=DistributedSampler(data))
            """,
            message="W times",
        ),
        Untouched("""
                import argparse
                from torch.utils.data import DataLoader, DistributedSampler
                parser = argparse.ArgumentParser()
                parser.add_argument("--batch-size", type=int, help="total batch size of all GPUs")
                args = parser.parse_args()
                loader = DataLoader(data, batch_size=args.batch_size // world_size, sampler=DistributedSampler(data))
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if script.sets_up_elsewhere:
            return
        total = {
            _name_of(call)
            for call in script.module.calls
            if call.method == "add_argument" and _is_total(call)
        }
        for loader in script.loaders:
            size = loader.argument(1, "batch_size")
            if (
                loader.node not in script.sampler_of
                or not isinstance(size, ast.Attribute)
                or size.attr not in total
            ):
                continue
            uses = script.module.by_word[size.attr]
            if not any(isinstance(use.ctx, ast.Store) or _is_divided(script, use) for use in uses):
                yield Problem(
                    size,
                    f"`{size.attr}` is the total batch by its help, but each of W ranks takes all of it: W times it",
                    "divide it by the number of ranks",
                )


def _is_total(call: Call) -> bool:
    text = literal(call.argument(None, "help"))
    return isinstance(text, str) and "batch" in text and TOTAL.search(text) is not None


def _name_of(call: Call) -> str:
    """What argparse calls the value."""
    given = literal(call.argument(None, "dest"))
    options = [value for value in map(literal, call.node.args) if isinstance(value, str)]
    long = next((option for option in options if option.startswith("--")), options[0] if options else "")
    return given if isinstance(given, str) else long.lstrip("-").replace("-", "_")


def _is_divided(script: DDPScript, use: ast.AST) -> bool:
    parents = list(script.module.around(use))[:3]  # also `int(args.batch_size / n)`, `args.batch_size /= n`
    return any(isinstance(parent, (ast.BinOp, ast.AugAssign)) for parent in parents)
