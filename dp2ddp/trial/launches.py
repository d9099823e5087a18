"""Ports that get their rank from an argument, or from the variables of another launcher than torchrun.

torchrun tells each rank by variables (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). A port that fails when
it is started so, or whose ranks never meet, is read for what it asks: `--local_rank`, as torch.distributed.launch gave
it; the arguments of ImageNet's example; SLURM's variables, or Open MPI's. Then it is tried with those.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
_LAUNCHERS = {  # whose -> value: variables
    "SLURM": {
        "{rank}": "SLURM_PROCID",
        "{local_rank}": "SLURM_LOCALID",
        "{world}": "SLURM_NTASKS SLURM_NPROCS SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE SLURM_GPUS_ON_NODE",
        "1": "SLURM_NNODES SLURM_JOB_NUM_NODES SLURM_JOB_ID SLURM_JOBID SLURM_CPUS_PER_TASK",
        "0": "SLURM_NODEID",
        "localhost": "SLURM_NODELIST SLURM_JOB_NODELIST",
        "127.0.0.1": "SLURM_LAUNCH_NODE_IPADDR",
    },
    "Open MPI": {
        "{rank}": "OMPI_COMM_WORLD_RANK",
        "{local_rank}": "OMPI_COMM_WORLD_LOCAL_RANK",
        "{world}": "OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_SIZE",
    },
}


@dataclass(frozen=True)
class Launch:
    """Arguments and variables that a port asks for, beyond those it was given."""

    arguments: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()
    launcher: str = ""  # whose variables they are

    @property
    def words(self) -> str:
        """The arguments and variables in a sentence."""
        arguments = " ".join(self.arguments)
        parts = [f'--converted-arguments "{arguments}"'] if arguments else []
        return " and ".join([*parts, *[f"the variables of {self.launcher}"] * bool(self.variables)])

    @property
    def advice(self) -> str:
        """What the port asks for, and what torchrun sets instead."""
        names = [each for each in self.arguments if each.startswith("-")] + [
            name for name, _ in self.variables
        ]
        return f"it asks for {', '.join(names)}; torchrun sets {', '.join(SET_BY_TORCHRUN)} for each rank instead"


def try_with_launch(
    subject: Subject, world: int, server: Server, scratch: Path, progress: Progress
) -> tuple[Subject, Verdict]:
    """`run_trial`; a port that fails, or whose ranks never meet, is run once more as its text asks to be started.

    Returns the subject as it was started in the end, for a next number of devices, and the verdict. Raises RunError
    if it fails either way.
    """
    verdict, failure = _tried(subject, world, server, scratch, progress)
    alone = verdict is not None and world > 1 and subject.port is not None and not verdict.met
    remark = _ALONE if alone else ""
    details = (failure and failure.details) or {}
    # another start helps neither the original nor a machine that has too little
    its_own = details.get("mode") == "ddp" and details.get("kind") != "memory"
    launch = _launch_of_port(subject) if subject.port and (alone or its_own) else None
    if launch:
        first = str(failure).splitlines()[0] if failure else f"{subject.port}: {_ALONE}"
        progress.say(f"{first}; once more with {launch.words}")
        asking = replace(
            subject,
            requested=(*subject.requested, *launch.arguments),
            variables=launch.variables,
            version=replace(subject.version, launch=" ".join([subject.version.launch, *launch.arguments])),
        )
        again, failed = _tried(asking, world, server, scratch / "as asked", progress)
        if again:
            subject, verdict, remark = asking, again, f"started with {launch.words}: {launch.advice}"
        else:
            text = f"{launch.advice}; with {launch.words}: {str(failed).splitlines()[0]}"
            remark = f"{_ALONE}: {text}"
            failure = failure and RunError(f"{failure}\n  {text}", failure.details)
    if verdict is None:
        assert failure is not None
        raise failure
    return subject, replace(verdict, remarks=(*[remark] * bool(remark), *verdict.remarks))


def _tried(
    subject: Subject, world: int, server: Server, scratch: Path, progress: Progress
) -> tuple[Verdict | None, RunError | None]:
    """The verdict, or why there is none."""
    verdict = failure = None
    try:
        verdict = run_trial(subject, world, server, scratch, progress)
    except RunError as error:
        failure = error
    return verdict, failure


_ALONE = "its ranks never meet in a process group: each trains by itself"


def _launch_of_port(subject: Subject) -> Launch | None:
    assert subject.port is not None
    try:
        project = read_project(subject.port)
    except Dp2DdpError:
        return None
    trees = [tree for tree in map(parse_leniently, project.texts) if tree is not None]
    return find_launch(trees, subject.arguments_of_converted, subject.version.starts_ranks)


def find_launch(trees: Sequence[ast.Module], given: Sequence[str], starts_ranks: bool) -> Launch | None:
    """Options and variables in the text of a port that say which rank it is, and that it was not given; None if none.

    trees: of the port and its local modules; given: its arguments; starts_ranks: whether it starts its ranks itself.
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    options = {_plain(name): (name, is_flag) for name, is_flag in _options(nodes)}
    named = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    known = {_plain(each.partition("=")[0]) for each in given if each.startswith("--")}
    values = _STARTER if starts_ranks else _RANKS
    missing = {key: values[key] for key in values if key in options and not options[key][1]}
    if starts_ranks and not (missing.keys() & {"rank", "node_rank"}):
        missing.pop("world_size", None)  # counts ranks, or devices: nobody can tell
    flags = [key for key in _FLAGS if key in options and options[key][1]][:1]
    arguments = [
        *(options[key][0] for key in flags if key not in known),
        *(word for key, value in missing.items() if key not in known for word in (options[key][0], value)),
    ]
    if starts_ranks and arguments:
        arguments += [
            word
            for key in _ADDRESSES
            if key in options and key not in known
            for word in (options[key][0], _ADDRESS)
        ]
    sets = {
        each: [(name, value) for value, names in table.items() for name in names.split()]
        for each, table in _LAUNCHERS.items()
    }
    launcher = next((each for each, pairs in sets.items() if dict(pairs).keys() & named), "")
    variables = () if not launcher or starts_ranks else tuple(sets[launcher])
    return Launch(tuple(arguments), variables, launcher) if arguments or variables else None


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
