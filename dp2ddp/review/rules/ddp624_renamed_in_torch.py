"""DDP624: a name that torch has renamed or taken away."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Replace
from dp2ddp.codemod.rule import Flags, Rewrites, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level

_GONE, _WARNS = "is gone from torch", "is deprecated, and warns in every run"
# What a name became; verified with torch 2.15
NOW = {
    "torch.distributed.reduce_op": (_WARNS, "torch.distributed.ReduceOp"),
    "torch.distributed._all_gather_base": (_WARNS, "torch.distributed.all_gather_into_tensor"),
    "torch.distributed._reduce_scatter_base": (_WARNS, "torch.distributed.reduce_scatter_tensor"),
    "torch.cuda.amp.autocast": (_WARNS, 'torch.amp.autocast("cuda")'),
    "torch.cuda.amp.GradScaler": (_WARNS, 'torch.amp.GradScaler("cuda")'),
    "torch.nn.parallel.DistributedDataParallelCPU": (_GONE, "DistributedDataParallel"),
    "torch.distributed.deprecated": (_GONE, "torch.distributed"),
    **{
        f"torch.distributed.{name}_multigpu": (
            _GONE,
            f"torch.distributed.{name}, with a process for each device",
        )
        for name in ("all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter")
    },
}


class RenamedInTorch(CheckRule):
    """torch has renamed this, or taken it away.

    ## What it does
    Finds names of torch.distributed and torch.cuda.amp that current versions warn of, or no longer have.

    ## Why
    `reduce_op`, `_all_gather_base` and `torch.cuda.amp.autocast` warn in every run;
    `DistributedDataParallelCPU` and the `*_multigpu` collectives are gone: AttributeError.

    ## Safety
    `--fix` writes `ReduceOp` for `reduce_op`, which is the same object by another name since torch 1.0. The
    others need newer versions of torch, or other arguments, and are left to you: each name once in a file. Silent
    where `try` chooses among old and new names, or the file names the new one as well; functions that are named
    and not called warn nobody.

    ## References
    https://github.com/pytorch/tutorials/pull/720, https://github.com/pytorch/pytorch/issues/130659,
    https://github.com/facebookresearch/fairseq/pull/804.
    """

    code = "DDP624"
    name = "renamed-in-torch"
    level = Level.WARNING
    fixes = True
    shown_once = True
    examples = (
        Rewrites(
            before="""
                import torch.distributed as dist
                dist.all_reduce(x, op=dist.reduce_op.SUM)
            """,
            after="""
                import torch.distributed as dist
                dist.all_reduce(x, op=dist.ReduceOp.SUM)
            """,
        ),
        Flags(
            before="""
                import torch
                import torch.distributed as dist
                dist.init_process_group("nccl")
                with torch.cuda.amp.autocast():
                    model(x)
            """,
            message="torch.amp.autocast",
        ),
        Untouched("""
                import torch
                import torch.distributed as dist
                dist.all_reduce(x, op=dist.ReduceOp.SUM)
                with torch.amp.autocast("cuda"):
                    model(x)
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if not (script.groups or script.wraps or script.names_module("torch.distributed")):
            return
        said: set[str] = set()
        for node in sorted(script.module.nodes(ast.Name, ast.Attribute), key=_place):
            name = script.module.name(node)
            if name in NOW and _is_used(script, node, name) and not _is_chosen(script, node, name):
                fix: tuple[Replace, ...] = ()
                if name == "torch.distributed.reduce_op" and isinstance(node, ast.Attribute):
                    code = f"{script.module.text(node.value)}.ReduceOp"
                    fix = (Replace(node, code, "torch has renamed it"),)
                if name not in said or fix:
                    yield Problem(node, f"{name} {NOW[name][0]}", f"use {NOW[name][1]}", fix)
                said.add(name)


def _place(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _is_used(script: DDPScript, node: ast.AST, name: str) -> bool:
    """Whether a mention fails or warns: what is gone always does, a function where it is called."""
    if not isinstance(getattr(node, "ctx", None), ast.Load):
        return False
    parent = script.module.parents[node]
    is_called = isinstance(parent, ast.Call) and parent.func is node
    return NOW[name][0] == _GONE or is_called or isinstance(parent, ast.Attribute)


def _is_chosen(script: DDPScript, node: ast.AST, name: str) -> bool:
    """Whether the script takes the old name for old versions only: `try` says so, or the new name in the same file."""
    if NOW[name][1].startswith("torch.amp"):
        new = NOW[name][1].partition("(")[0]
        if any(call.name == new for call in script.module.calls):
            return True
    imports = [
        statement
        for statement in script.module.nodes(ast.Import, ast.ImportFrom)
        if isinstance(statement, (ast.Import, ast.ImportFrom))
        and any(getattr(node, "id", None) == (alias.asname or alias.name) for alias in statement.names)
    ]
    around = (parent for place in (node, *imports) for parent in script.module.around(place))
    return len(imports) > 1 or any(isinstance(parent, ast.Try) and parent.handlers for parent in around)
