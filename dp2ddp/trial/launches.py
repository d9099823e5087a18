"""Ports that get their rank from an argument, or from the variables of another launcher than torchrun.

torchrun tells each rank by variables (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). A port that fails when
it is started so, or whose ranks never meet, is read for what it asks: `--local_rank`, as torch.distributed.launch gave
it; the arguments of ImageNet's example; SLURM's variables, or Open MPI's. It is said, with what to verify it with.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dp2ddp.comparison.verdict import Verdict
from dp2ddp.errors import Dp2DdpError, RunError
from dp2ddp.progress import Progress
from dp2ddp.runtime.process.launch_command import SET_BY_TORCHRUN
from dp2ddp.runtime.process.server import Server
from dp2ddp.source.parsing import parse_leniently
from dp2ddp.source.projects import read_project
from dp2ddp.trial.subject import Subject
from dp2ddp.trial.trial import run_trial

_FLAGS = ("multiprocessing_distributed", "distributed", "ddp", "use_ddp", "dist")
_RANKS = {  # started by torchrun: option, with hyphens as underscores -> its value
    "local_rank": "{local_rank}",
    "local_world_size": "{world}",  # of the one node
    "rank": "{rank}",
    "world_size": "{world}",
    "nprocs": "{world}",
}
_STARTER = {  # of a script that starts its ranks itself: it counts nodes
    "world_size": "1",
    "rank": "0",
    "node_rank": "0",
    "nodes": "1",
    "num_nodes": "1",
    "gpus": "{world}",
    "ngpus": "{world}",
    "num_gpus": "{world}",
    "nproc_per_node": "{world}",
}
_ADDRESSES = ("dist_url", "init_method")
_ADDRESS = "tcp://127.0.0.1:23456"  # each run has a port of its own in its place (runtime/process/meeting.py)
_LAUNCHERS = ("SLURM_", "OMPI_COMM_WORLD_")  # what names of their variables begin with
_OF_TORCHRUN = {  # a variable of another launcher -> which of torchrun's says the same, on the one node
    "SLURM_PROCID": "RANK",
    "SLURM_LOCALID": "LOCAL_RANK",
    "SLURM_NTASKS": "WORLD_SIZE",
    "SLURM_NPROCS": "WORLD_SIZE",
    "SLURM_NTASKS_PER_NODE": "WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK": "RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK": "LOCAL_RANK",
    "OMPI_COMM_WORLD_SIZE": "WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "WORLD_SIZE",
}


def run_with_advice(
    subject: Subject, world: int, server: Server, scratch: Path, progress: Progress
) -> Verdict:
    """`run_trial`; of a port that fails, or whose ranks never meet, what its text asks for that it was not given."""
    try:
        verdict = run_trial(subject, world, server, scratch, progress)
    except RunError as failure:
        details = failure.details or {}
        # another start helps neither the original nor a machine that has too little
        its_own = details.get("mode") == "ddp" and details.get("kind") != "memory"
        if not (its_own and (message := _advice(subject))):
            raise
        raise RunError(f"{failure}\n  {message}", failure.details) from None
    if verdict.met or world == 1 or subject.port is None:
        return verdict
    remark = ": ".join(filter(None, (_ALONE, _advice(subject))))
    return replace(verdict, remarks=(remark, *verdict.remarks))


_ALONE = "its ranks never meet in a process group: each trains by itself"


def _advice(subject: Subject) -> str:
    """ "" for a conversion of ours, and for a port that asks for nothing."""
    if subject.port is None:
        return ""
    try:
        project = read_project(subject.port)
    except Dp2DdpError:
        return ""
    trees = [tree for tree in map(parse_leniently, project.texts) if tree is not None]
    given = subject.arguments_of_converted
    return advice(trees, given, subject.version.starts_ranks, str(subject.port))


def advice(trees: Sequence[ast.Module], given: Sequence[str], starts_ranks: bool, port: str) -> str:
    """Which options and variables in the text of a port say which rank it is, and it was not given; and what to do.

    trees: of the port and its local modules; given: its arguments; starts_ranks: whether it starts its ranks itself;
    port: its path.
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    arguments = missing_arguments(dict(_options(nodes)), given, starts_ranks)
    texts = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    variables = [] if starts_ranks else sorted({text for text in texts if text.startswith(_LAUNCHERS)})
    names = [*(each for each in arguments if each.startswith("-")), *variables]
    if not names:
        return ""
    message = (
        f"it asks for {', '.join(names)}; torchrun sets {', '.join(SET_BY_TORCHRUN)} for each rank instead"
    )
    if arguments:
        words = " ".join([*map(shlex.quote, given), *arguments])
        return f'{message}; to verify it with them: --converted-arguments "{words}"'
    if {*variables} <= {*_OF_TORCHRUN}:
        return f"{message}; to verify it: --converted with a file of these lines\n{_starter(variables, port)}"
    return message


def _starter(variables: Sequence[str], port: str) -> str:
    """A script that torchrun starts in a port's place: it sets what the port asks for, and runs it."""
    values = ", ".join(f'{name}=os.environ["{_OF_TORCHRUN[name]}"]' for name in variables)
    lines = (
        "import os, runpy",
        f"os.environ.update({values})",
        f'runpy.run_path({port!r}, run_name="__main__")',
    )
    return "\n".join(f"    {line}" for line in lines)


def missing_arguments(options: dict[str, bool], given: Sequence[str], starts_ranks: bool) -> list[str]:
    """Those of these options (and whether each is a flag) that say which rank it is, with their values."""
    names = {_plain(name): name for name in options}
    known = {_plain(each.partition("=")[0]) for each in given if each.startswith("--")}
    values = _STARTER if starts_ranks else _RANKS
    missing = [key for key in values if key in names and not options[names[key]]]
    if starts_ranks and not ({*missing} & {"rank", "node_rank"}):
        missing = [key for key in missing if key != "world_size"]  # counts ranks, or devices: nobody can tell
    flags = [key for key in _FLAGS if key in names and options[names[key]]][:1]
    arguments = [names[key] for key in flags if key not in known]
    arguments += [word for key in missing if key not in known for word in (names[key], values[key])]
    if starts_ranks and arguments:
        addresses = [key for key in _ADDRESSES if key in names and key not in known]
        arguments += [word for key in addresses for word in (names[key], _ADDRESS)]
    return arguments


def _options(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, bool]]:
    """Long options of argparse, and whether they take no value."""
    for node in nodes:
        match node:
            case ast.Call(ast.Attribute(attr="add_argument"), names, keywords):
                actions = [each.value for each in keywords if each.arg == "action"]
                is_flag = any(
                    isinstance(each, ast.Constant) and each.value == "store_true" for each in actions
                )
                texts = (each.value for each in names if isinstance(each, ast.Constant))
                yield from ((str(text), is_flag) for text in texts if str(text).startswith("--"))


def _plain(option: str) -> str:
    return option.lstrip("-").replace("-", "_")
