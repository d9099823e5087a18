"""torch has renamed this, or taken it away.

Finds names of torch.distributed and torch.cuda.amp that current versions warn of, or no longer have; and
`torch.distributed.launch` where code starts it.

`reduce_op`, `_all_gather_base` and `torch.cuda.amp.autocast` warn in every run; `DistributedDataParallelCPU` and the
`*_multigpu` collectives are gone: AttributeError. `torch.distributed.launch` warns, and since torch 2.0 it passes
`--local-rank` and no longer `--local_rank`.

`--fix` writes `ReduceOp` for `reduce_op`, which is the same object by another name since torch 1.0. The others need
newer versions of torch, or other arguments, and are left to you: each name once in a file. Silent where `try` chooses
among old and new names, or the file names the new one as well; functions that are named and not called warn nobody,
and neither do help, messages and comments.

https://github.com/pytorch/tutorials/pull/720, https://github.com/pytorch/pytorch/issues/130659,
https://github.com/facebookresearch/fairseq/pull/804, https://github.com/pytorch/pytorch/pull/64764.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Replace
from dp2ddp.codemod.model.nodes import IMPORTS
from dp2ddp.review.check_rule import CheckWarning, DDPScript, Found, corrected, literal, mended

_GONE, _WARNS = "is gone from torch", "is deprecated, and warns in every run"
REDUCE_OP, LAUNCH = "torch.distributed.reduce_op", "torch.distributed.launch"
# What a name became; verified with torch 2.15
NOW = {
    REDUCE_OP: (_WARNS, "torch.distributed.ReduceOp"),
    "torch.distributed._all_gather_base": (_WARNS, "torch.distributed.all_gather_into_tensor"),
    "torch.distributed._reduce_scatter_base": (_WARNS, "torch.distributed.reduce_scatter_tensor"),
    "torch.cuda.amp.autocast": (_WARNS, 'torch.amp.autocast("cuda")'),
    "torch.cuda.amp.GradScaler": (_WARNS, 'torch.amp.GradScaler("cuda")'),
    "torch.nn.parallel.DistributedDataParallelCPU": (_GONE, "DistributedDataParallel"),
    "torch.distributed.deprecated": (_GONE, "torch.distributed"),
} | {
    f"torch.distributed.{name}_multigpu": (_GONE, f"torch.distributed.{name}, with a process for each device")
    for name in ("all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter")
}


class RenamedInTorch(CheckWarning):
    fixes = True
    shown_once = True
    message = "{name} {what}"
    advice = "use {new}"
    examples = (
        mended("""
            - dist.all_reduce(x, op=dist.reduce_op.SUM)
            + dist.all_reduce(x, op=dist.ReduceOp.SUM)
        """),
        *corrected("""
            # torch.amp.autocast
            - with torch.cuda.amp.autocast():
            + with torch.amp.autocast("cuda"):
                  model(x)
        """),
        *corrected("""
            # torchrun
              import os
              print("start it with python -m torch.distributed.launch")
            - os.system("python -m torch.distributed.launch --nproc_per_node=2 train.py")
            + os.system("torchrun --nproc-per-node 2 train.py")
        """),
    )

    def find(self, script: DDPScript) -> Found:
        for node in _launches(script):
            yield self.problem(
                node, name=LAUNCH, what=_WARNS, new="torchrun, and read LOCAL_RANK from the environment"
            )
        if not (script.groups or script.wraps or script.file.names_module("torch.distributed")):
            return
        mentions = [*script.module.all(ast.Name), *script.module.all(ast.Attribute)]
        said: set[str] = set()
        for node in sorted(mentions, key=lambda node: (node.lineno, node.col_offset)):
            name = script.module.name(node)
            if name not in NOW or not _is_used(script, node, name) or _is_chosen(script, node, name):
                continue
            fix: tuple[Replace, ...] = ()
            if name == REDUCE_OP and isinstance(node, ast.Attribute):
                fix = (Replace(node, f"{script.module.text(node.value)}.ReduceOp", "torch has renamed it"),)
            if name not in said or fix:
                yield self.problem(node, fix, name=name, what=NOW[name][0], new=NOW[name][1])
            said.add(name)


def _launches(script: DDPScript) -> Iterator[ast.AST]:
    """Where `torch.distributed.launch` is part of a command: behind "-m", or in a call that runs it."""
    for node in script.module.all(ast.Constant):
        if isinstance(node.value, str) and LAUNCH in node.value:
            parts = getattr(script.module.parents[node], "elts", ())
            runners = (script.module.name(call.func) or "" for call in script.file.around(node, ast.Call))
            is_run = any(each.startswith(("os.system", "subprocess.")) for each in runners)
            if is_run or node.value == LAUNCH and "-m" in map(literal, parts):
                yield node


def _is_used(script: DDPScript, node: ast.AST, name: str) -> bool:
    """Whether a mention fails or warns: what is gone always does, a function where it is called."""
    parent = script.module.parents[node]
    is_called = isinstance(parent, ast.Call) and parent.func is node
    warns = NOW[name][0] == _GONE or is_called or isinstance(parent, ast.Attribute)
    return warns and isinstance(getattr(node, "ctx", None), ast.Load)


def _is_chosen(script: DDPScript, node: ast.AST, name: str) -> bool:
    """Whether the script takes the old name for old versions only: `try` says so, or the new name in the same file."""
    new = NOW[name][1].partition("(")[0]
    if new.startswith("torch.amp") and any(script.file.calls_of(new)):
        return True
    word = getattr(node, "id", None)
    imports = [
        statement
        for statement in script.module.nodes(*IMPORTS)
        if any((alias.asname or alias.name) == word for alias in getattr(statement, "names", ()))
    ]
    tried = (each for place in (node, *imports) for each in script.file.around(place, ast.Try))
    return len(imports) > 1 or any(each.handlers for each in tried)
