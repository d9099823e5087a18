"""Where a job can run: one entry for each `--on`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dp2ddp.launch.job import Job, agent_words, command_line, standalone_words, with_port
from dp2ddp.launch.kubernetes import pytorch_job, train_job
from dp2ddp.launch.ray import ray_driver
from dp2ddp.launch.slurm import sbatch_file
from dp2ddp.launch.torchrun import local_file, nodes_file
from dp2ddp.masks import masked

Given = Mapping[str, str | int | None]  # the options that are of one target alone


@dataclass(frozen=True)
class Launcher:
    """A process of this machine that starts the ranks."""

    command: Callable[[Job, Given], list[str]]
    shown: Callable[[Job, Given], str]  # the same for a person
    module: str  # what must be installed
    install: str


@dataclass(frozen=True)
class Target:
    """What there is to know of one place."""

    text: Callable[[Job, Given], str]  # the launch file
    started_by: str  # what one types before its name
    launcher: Launcher | None = None  # None: the cluster's own command takes the file
    takes_file: tuple[str, ...] = ()  # that command; it reads from stdin
    options: tuple[str, ...] = ()  # of this target alone
    is_cluster: bool = False  # it gives out GPUs, and must know how many


def _torchrun(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *words[1:]]


def _agent(job: Job, given: Given) -> list[str]:
    endpoint = _endpoint(given)
    return agent_words(job, endpoint) if endpoint else standalone_words(job)


def _endpoint(given: Given) -> str | None:
    host = given.get("rendezvous")
    return with_port(str(host)) if host else None


def _manifest(job: Job, given: Given) -> str:
    manifest = pytorch_job if given["operator"] == "v1" else train_job
    return manifest(job, str(given["image"]))


TARGETS = {
    "local": Target(
        text=lambda job, given: local_file(job),
        started_by="bash",
        launcher=Launcher(
            command=lambda job, given: _torchrun(standalone_words(job)),
            shown=lambda job, given: command_line(masked(standalone_words(job)), job.settings),
            module="torch",
            install="pip install torch",
        ),
    ),
    "torchrun": Target(
        text=lambda job, given: nodes_file(job, _endpoint(given)),
        started_by="on every node: bash",
        launcher=Launcher(
            command=lambda job, given: _torchrun(_agent(job, given)),
            shown=lambda job, given: command_line(masked(_agent(job, given)), job.settings),
            module="torch",
            install="pip install torch",
        ),
        options=("rendezvous",),
    ),
    "slurm": Target(
        text=lambda job, given: sbatch_file(job, **given),  # type: ignore[arg-type]  # of the same names
        started_by="sbatch",
        takes_file=("sbatch",),
        options=("time", "cpus"),
        is_cluster=True,
    ),
    "kubernetes": Target(
        text=_manifest,
        started_by="kubectl create -f",
        takes_file=("kubectl", "create", "-f", "-"),
        options=("image", "operator"),
        is_cluster=True,
    ),
    "ray": Target(
        text=lambda job, given: ray_driver(job),
        started_by="python",
        launcher=Launcher(
            command=lambda job, given: [sys.executable, "-c", ray_driver(job)],
            shown=lambda job, given: f"{job.shown} on {job.world} workers of Ray",
            module="ray",
            install="pip install 'ray[train]'",
        ),
        is_cluster=True,
    ),
}
