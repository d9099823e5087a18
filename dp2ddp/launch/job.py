"""What is to be started, torchrun's words for it, and files that start torchrun: here, or the same on several nodes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dp2ddp.masks import masked

PORT = 29500  # where agents of several nodes meet, if nothing else is said; torch's own


@dataclass(frozen=True)
class Job:
    """A script, one rank on each GPU of each node."""

    script: str  # as it is named in the folder where it is started
    module: str | None = None  # "package.train", of a script that is started with -m
    arguments: tuple[str, ...] = ()  # its own
    gpus: int | None = None  # of a node; None: as many as torchrun counts there
    nodes: int = 1
    restarts: int = 0  # how often ranks are started again when one of them ended in error
    settings: Mapping[str, str] = field(default_factory=dict)  # environment variables that the script needs
    rendezvous: str | None = None  # HOST or HOST:PORT, where agents of several nodes meet
    time: str = ""  # of slurm: the limit
    cpus: int = 1  # of slurm: of a rank, with its loader's workers
    image: str = ""  # of Kubernetes

    @property
    def name(self) -> str:
        """What the job is called: letters of the script's name that every scheduler takes (RFC 1035)."""
        stem = (self.module or Path(self.script).stem).lower()
        name = re.sub(r"[^a-z0-9]+", "-", stem)[:40].strip("-")
        return name if name[:1].isalpha() else f"train-{name}".strip("-")

    @property
    def world(self) -> int | None:
        return self.gpus and self.gpus * self.nodes

    @property
    def endpoint(self) -> str | None:
        return with_port(self.rendezvous) if self.rendezvous else None

    @property
    def machines(self) -> str:
        """What it asks a cluster for, in words."""
        gpus = self.gpus or 1
        return f"{self.nodes} node{'s' * (self.nodes > 1)} with {gpus} GPU{'s' * (gpus > 1)} each"

    @property
    def started(self) -> list[str]:
        """What stands behind `torchrun` or `python` and its options."""
        return [*(["-m", self.module] if self.module else [self.script]), *self.arguments]

    @property
    def shown(self) -> str:
        """The script with its arguments, as one types them; for comments and messages, without secrets."""
        return shlex.join(masked(self.started))

    @property
    def restart_words(self) -> list[str]:
        return ["--max-restarts", str(self.restarts)] if self.restarts else []

    @property
    def rank_words(self) -> list[str]:
        """How many ranks a node has."""
        return ["--nproc-per-node", str(self.gpus or "gpu")]


# Commands are lists of parts: in a file each begins a line of its own where one line would be long.


def standalone(job: Job) -> list[list[str]]:
    """torchrun on one node: on a free port, so that two jobs on a machine never meet."""
    return [["torchrun", "--standalone", *job.rank_words, *job.restart_words], job.started]


def agent(job: Job, nodes: str, identity: str, endpoint: str) -> list[list[str]]:
    """torchrun on each of several nodes: the same words everywhere; ranks are given in the order of arrival.

    No --node-rank: the c10d rendezvous does not read it. `endpoint` is HOST:PORT of one of the nodes.
    """
    meeting = ["--rdzv-backend", "c10d", "--rdzv-id", identity, "--rdzv-endpoint", endpoint]
    return [["torchrun", "--nnodes", nodes, *job.rank_words], meeting, job.restart_words, job.started]


def torchrun_words(job: Job) -> list[str]:
    """The command that starts the ranks of this machine."""
    meets = job.endpoint
    parts = agent(job, str(job.nodes), job.name, meets) if meets else standalone(job)
    return [word for part in parts for word in part]


def command_line(words: Sequence[str], settings: Mapping[str, str]) -> str:
    """One line for a shell, with environment variables before it."""
    return " ".join(
        [*(f"{name}={shlex.quote(value)}" for name, value in settings.items()), shlex.join(words)]
    )


def with_port(host: str) -> str:
    """HOST:PORT of what may be a HOST alone; a ValueError for what is none of both."""
    match = re.fullmatch(r"(\w[\w.-]*|\[[\da-fA-F:.]+\])(?::(\d{1,5}))?", host)
    if not match or not 0 < int(match[2] or PORT) < 2**16:
        raise ValueError(
            f"{host!r}: HOST or HOST:PORT, with an IPv6 address in brackets, and a port from 1 to 65535"
        )
    return f"{match[1]}:{match[2] or PORT}"


# ---- what launch files for a shell have in common: quoting, long commands over several lines


WIDTH = 100


class Raw(str):
    """Words that the shell shall read as they stand: "$port"."""

    __slots__ = ()


def quoted(word: str) -> str:
    return str(word) if isinstance(word, Raw) else shlex.quote(word)


def command(*parts: Sequence[str]) -> str:
    """A command; each part begins a line of its own where one line would be long."""
    lines = [" ".join(map(quoted, part)) for part in parts if part]
    whole = " ".join(lines)
    return whole if len(whole) <= WIDTH else " \\\n    ".join(lines)


def exports(settings: Mapping[str, str]) -> str:
    """The lines that set environment variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())


def comment(text: str) -> str:
    """Text of a user's in a comment: whatever is in it, it ends with the line."""
    return " ".join(text.split())


# ---- a file that starts torchrun: on this machine, or the same on each of several

# torchrun sets it to 1 where nobody has, and says so at length; here it says why
THREADS = "export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}  # threads of a rank on the CPU; more only if cores are free\n"


NETWORK = """\
# export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0  # where a node has several networks, and ranks do not meet
"""


def local_file(job: Job) -> str:
    """A shell script for one machine."""
    head = f": {_ranks(job)}. Start it in the folder from which the script is started."
    return _shell_file(job, head, "", "", standalone(job))


def nodes_file(job: Job) -> str:
    """A shell script that is started on each node; the nodes meet at the job's endpoint, or at what it is told."""
    head = f"""\
: {_ranks(job)} on each of {job.nodes} nodes.
# Start it on every node, in the folder from which the script is started; they wait for each other."""
    asks = "host=${1:?which node do all meet at? give its name, the same one on every node}\n"
    argument = Raw(f'"$host:${{PORT:-{PORT}}}"')
    parts = agent(job, str(job.nodes), job.name, job.endpoint or argument)
    return _shell_file(job, head, "" if job.endpoint else asks, NETWORK, parts)


def _shell_file(job: Job, head: str, first: str, last: str, parts: Sequence[Sequence[str]]) -> str:
    return f"""\
#!/usr/bin/env bash
# {comment(job.shown)}{head}
set -euo pipefail

{first}{exports(job.settings)}{THREADS}{last}exec {command(*parts)}
"""


def _ranks(job: Job) -> str:
    return "a rank for each GPU" if job.gpus is None else f"{job.gpus} rank{'s' if job.gpus > 1 else ''}"
