"""The script starts its ranks with `torch.distributed.launch`, which is going away.

Finds `torch.distributed.launch` where code starts it: in the list or the line of a command that is run, or imported.

It is deprecated since torch 1.9 and says so in every run; since torch 2.0 it passes `--local-rank` and no longer
`--local_rank`.

Text is no start: help, messages, documentation and comments are left alone.

https://github.com/pytorch/pytorch/pull/64764, https://github.com/pytorch/pytorch/issues/73319.
"""

import ast
from collections.abc import Iterator

from dp2ddp.review.check_rule import CheckWarning, DDPScript, Found, corrected

LAUNCH = "torch.distributed.launch"


class LaunchModule(CheckWarning):
    message = "torch.distributed.launch is deprecated, and passes --local-rank, which scripts for torchrun do not take"
    advice = (
        "start it with torchrun (python -m torch.distributed.run), and read LOCAL_RANK from the environment"
    )
    examples = corrected("""
        # torchrun
          import os
          print("start it with python -m torch.distributed.launch")
        - os.system("python -m torch.distributed.launch --nproc_per_node=2 train.py")
        + os.system("torchrun --nproc-per-node 2 train.py")
    """)

    def find(self, script: DDPScript) -> Found:
        for node in (*_commands(script), *_imports(script)):
            yield self.problem(node)


def _imports(script: DDPScript) -> Iterator[ast.AST]:
    yield from (node for node in script.module.all(ast.ImportFrom) if node.module == LAUNCH)
    yield from (
        node for node in script.module.all(ast.Import) if LAUNCH in [each.name for each in node.names]
    )


def _commands(script: DDPScript) -> Iterator[ast.AST]:
    """Texts that are part of a command: an element of a list behind "-m", or in a call that runs commands."""
    for node in script.module.all(ast.Constant):
        if not isinstance(node.value, str) or LAUNCH not in node.value:
            continue
        parent = script.module.parents[node]
        names = (script.module.name(call.func) or "" for call in script.file.around(node, ast.Call))
        is_run = any(name == "os.system" or name.startswith("subprocess.") for name in names)
        if isinstance(parent, (ast.List, ast.Tuple)) and node.value == LAUNCH:
            is_run = any(isinstance(each, ast.Constant) and each.value == "-m" for each in parent.elts)
        if is_run:
            yield node
