"""Where a job can run: one entry for each `--on`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dp2ddp.launch.job import (
    Job,
    agent_words,
    command_line,
    local_file,
    nodes_file,
    standalone_words,
    with_port,
)
from dp2ddp.launch.kubernetes import train_job
from dp2ddp.launch.ray import ray_driver
from dp2ddp.launch.slurm import sbatch_file
from dp2ddp.masks import masked

Given = Mapping[str, str | int | None]  # the options that are of one target alone


@dataclass(frozen=True)
class Starter:
    """A process of this machine that starts the ranks."""

    words: list[str]
    shown: str  # the same for a person
    package: str  # what must be installed


@dataclass(frozen=True)
class Target:
    """What there is to know of one place."""

    text: Callable[[Job, Given], str]  # the launch file
    started_by: str  # what one types before its name
    start: Callable[[Job, Given], Starter] | None = None  # None: the cluster's own command takes the file
    takes_file: tuple[str, ...] = ()  # that command; it reads from stdin
    options: tuple[str, ...] = ()  # of this target alone
    is_cluster: bool = False  # it gives out GPUs, and must know how many


def _torchrun(job: Job, words: list[str]) -> Starter:
    own = [sys.executable, "-m", "torch.distributed.run", *words[1:]]
    return Starter(own, command_line(masked(words), job.settings), "torch")


def _agent(job: Job, given: Given) -> Starter:
    endpoint = _endpoint(given)
    return _torchrun(job, agent_words(job, endpoint) if endpoint else standalone_words(job))


def _endpoint(given: Given) -> str | None:
    host = given.get("rendezvous")
    return with_port(str(host)) if host else None


def _ray(job: Job, given: Given) -> Starter:
    shown = f"{job.shown} on {job.world} workers of Ray"
    return Starter([sys.executable, "-c", ray_driver(job)], shown, "ray[train]")


TARGETS = {
    "local": Target(
        text=lambda job, given: local_file(job),
        started_by="bash",
        start=lambda job, given: _torchrun(job, standalone_words(job)),
    ),
    "torchrun": Target(
        text=lambda job, given: nodes_file(job, _endpoint(given)),
        started_by="on every node: bash",
        start=_agent,
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
        text=lambda job, given: train_job(job, str(given["image"])),
        started_by="kubectl create -f",
        takes_file=("kubectl", "create", "-f", "-"),
        options=("image",),
        is_cluster=True,
    ),
    "ray": Target(text=lambda job, given: ray_driver(job), started_by="python", start=_ray, is_cluster=True),
}
