"""DDP622: a --local_rank argument, which torchrun does not pass."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.edits import Replace
from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.rule import Flags, Rewrites, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.own_file import literal
from dp2ddp.review.problems import Level

LOCAL_RANK = re.compile("LOCAL_RANK")


class LocalRankArgument(CheckRule):
    """`--local_rank` is an argument, which torchrun does not pass.

    ## What it does
    Finds `add_argument("--local_rank")` in a file that uses it and never reads LOCAL_RANK from the environment.

    ## Why
    torchrun says the local rank by LOCAL_RANK only, so the argument keeps its default, on every rank.
    `torch.distributed.launch` passes it as `--local-rank` since torch 2.0, which `--local_rank` does not
    accept.

    ## Safety
    `--fix` takes the default from LOCAL_RANK where there is one, and the old default elsewhere: what is passed
    still counts. Silent where something else sets the value, a function of another file sets ranks up, or the
    argument is spelled both ways, for both versions of `torch.distributed.launch`.

    ## References
    https://github.com/XPixelGroup/BasicSR/issues/626, https://github.com/skycrapers/TecoGAN-PyTorch/issues/31.
    """

    code = "DDP622"
    name = "local-rank-argument"
    level = Level.ERROR
    fixes = True
    examples = (
        Rewrites(
            before="""
                import argparse
                import os
                import torch
                parser = argparse.ArgumentParser()
                parser.add_argument("--local_rank", type=int, default=-1)
                args = parser.parse_args()
                torch.cuda.set_device(args.local_rank)
                torch.distributed.init_process_group("nccl")
            """,
            after="""
                import argparse
                import os
                import torch
                parser = argparse.ArgumentParser()
                parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", -1)))
                args = parser.parse_args()
                torch.cuda.set_device(args.local_rank)
                torch.distributed.init_process_group("nccl")
            """,
        ),
        Flags(
            before="""
                import argparse
                import torch
                parser = argparse.ArgumentParser()
                parser.add_argument("--local_rank", type=int)
                args = parser.parse_args()
                torch.cuda.set_device(args.local_rank)
                torch.distributed.init_process_group("nccl")
            """,
            message="LOCAL_RANK",
        ),
        Untouched("""
                import argparse
                import os
                import torch
                parser = argparse.ArgumentParser()
                parser.add_argument("--local_rank", type=int)
                args = parser.parse_args()
                args.local_rank = int(os.environ["LOCAL_RANK"])
                torch.cuda.set_device(args.local_rank)
                torch.distributed.init_process_group("nccl")
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if script.has_framework or script.has_word(LOCAL_RANK) or not (script.groups or script.wraps):
            return
        if script.is_converted:  # its own way of starting ranks is to stay out
            return
        uses = script.module.by_word.get("local_rank", ())
        if not uses or any(isinstance(use.ctx, ast.Store) for use in uses):
            return
        for call in script.module.calls:
            names = list(map(literal, call.node.args)) if call.method == "add_argument" else []
            if "--local_rank" in names and "--local-rank" not in names:
                yield Problem(
                    call.node,
                    "torchrun passes no --local_rank: the value stays at its default on every rank",
                    'take it from the environment: int(os.environ["LOCAL_RANK"])',
                    _fix(script, call),
                )


def _fix(script: DDPScript, call: Call) -> tuple[Replace, ...]:
    default, kind = call.keyword("default"), call.keyword("type")
    is_int = kind is not None and script.module.name(kind.value) == "builtins.int"
    if default is None or not is_int or type(literal(default.value)) is not int:
        return ()
    if {each.dotted for each in script.module.top.bindings.get("os", ())} != {"os"}:
        return ()
    code = f'int(os.environ.get("LOCAL_RANK", {script.module.text(default.value)}))'
    return (Replace(default.value, code, "torchrun says the local rank by the environment"),)
