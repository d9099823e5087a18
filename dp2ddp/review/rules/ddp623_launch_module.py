"""DDP623: the launcher that torchrun has replaced."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level


class LaunchModule(CheckRule):
    """The script starts its ranks with `torch.distributed.launch`, which is going away.

    ## What it does
    Finds `torch.distributed.launch` where code starts it: in the list or the line of a command that is run, or
    imported.

    ## Why
    It is deprecated since torch 1.9 and says so in every run; since torch 2.0 it passes `--local-rank` and no
    longer `--local_rank`.

    ## Safety
    Text is no start: help, messages, documentation and comments are left alone.

    ## References
    https://github.com/pytorch/pytorch/pull/64764, https://github.com/pytorch/pytorch/issues/73319.
    """

    code = "DDP623"
    name = "launch-module"
    level = Level.WARNING

    examples = (
        Flags(
            before="""
                import subprocess
                import sys
                subprocess.run([sys.executable, "-m", "torch.distributed.launch", "--nproc_per_node=2", "train.py"])
            """,
            message="torchrun",
        ),
        Flags(
            before="""
                import os
                os.system("python -m torch.distributed.launch --nproc_per_node=2 train.py")
            """,
            message="torchrun",
        ),
        Untouched("""
                import os
                print("start it with python -m torch.distributed.launch")
                os.system("torchrun --nproc-per-node 2 train.py")
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        for node in script.module.nodes(ast.Constant):
            assert isinstance(node, ast.Constant)
            text = node.value
            if (
                isinstance(text, str)
                and "torch.distributed.launch" in text
                and _is_started(script, node, text)
            ):
                yield _problem(node)
        for node in script.module.nodes(ast.Import, ast.ImportFrom):
            assert isinstance(node, (ast.Import, ast.ImportFrom))
            module = getattr(node, "module", None)
            if module == "torch.distributed.launch" or any(
                name.name == "torch.distributed.launch" for name in node.names
            ):
                yield _problem(node)


def _problem(node: ast.AST) -> Problem:
    return Problem(
        node,
        "torch.distributed.launch is deprecated, and passes --local-rank, which scripts for torchrun do not take",
        "start it with torchrun (python -m torch.distributed.run), and read LOCAL_RANK from the environment",
    )


def _is_started(script: DDPScript, node: ast.Constant, text: str) -> bool:
    """Whether a text is part of a command: an element of a list behind "-m", or in a call that runs commands."""
    parent = script.module.parents[node]
    if isinstance(parent, (ast.List, ast.Tuple)) and text == "torch.distributed.launch":
        return any(isinstance(element, ast.Constant) and element.value == "-m" for element in parent.elts)
    calls = (around for around in script.module.around(node) if isinstance(around, ast.Call))
    names = (script.module.name(call.func) or "" for call in calls)
    return any(name == "os.system" or name.startswith("subprocess.") for name in names)
