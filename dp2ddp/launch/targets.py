"""Where a job can run: one entry for each `--on`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dp2ddp.launch.job import Job, agent, local_file, nodes_file, standalone, with_port, words_of
from dp2ddp.launch.kubernetes import train_job
from dp2ddp.launch.slurm import sbatch_file

Given = Mapping[str, str | int | None]  # the options that are of one target alone


@dataclass(frozen=True)
class Target:
    """What there is to know of one place."""

    text: Callable[[Job, Given], str]  # the launch file
    started_by: str  # what one types before its name
    takes_file: tuple[str, ...] = ()  # a cluster's own command; it reads from stdin
    options: tuple[str, ...] = ()  # of this target alone

    @property
    def is_cluster(self) -> bool:
        """Whether it gives out GPUs, and must know how many."""
        return bool(self.takes_file)


def torchrun_words(job: Job, given: Given) -> list[str]:
    """The command that starts the ranks of this machine."""
    endpoint = _endpoint(given)
    return words_of(agent(job, str(job.nodes), job.name, endpoint) if endpoint else standalone(job))


def _endpoint(given: Given) -> str | None:
    host = given.get("rendezvous")
    return with_port(str(host)) if host else None


TARGETS = {
    "local": Target(
        text=lambda job, given: local_file(job),
        started_by="bash",
    ),
    "torchrun": Target(
        text=lambda job, given: nodes_file(job, _endpoint(given)),
        started_by="on every node: bash",
        options=("rendezvous",),
    ),
    "slurm": Target(
        text=lambda job, given: sbatch_file(job, **given),  # type: ignore[arg-type]  # of the same names
        started_by="sbatch",
        takes_file=("sbatch",),
        options=("time", "cpus"),
    ),
    "kubernetes": Target(
        text=lambda job, given: train_job(job, str(given["image"])),
        started_by="kubectl create -f",
        takes_file=("kubectl", "create", "-f", "-"),
        options=("image",),
    ),
}
