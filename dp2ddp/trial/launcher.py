"""How a version of the user's own is started: by torchrun, or by python because it starts its ranks itself."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path

from dp2ddp.source.parsing import parse
from dp2ddp.source.read_source import read_source

_STARTS = {"spawn", "start_processes", "notebook_launcher"}  # of torch.multiprocessing, of Accelerate


def starts_its_ranks(script: Path) -> bool:
    """Whether it calls one of those functions; or makes processes that join a group, and asks nobody for its rank."""
    tree = parse(read_source(script))
    called = {_name(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    variables = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)} & {
        "RANK",
        "LOCAL_RANK",
    }
    return bool(called & _STARTS) or ({"Process", "init_process_group"} <= called and not variables)


def launch_line(script: Path, starts_ranks: bool) -> str:
    """The command that starts a version of the user's own."""
    name = shlex.quote(str(script))
    return f"python {name}" if starts_ranks else f"torchrun --standalone --nproc-per-node N {name}"


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
