"""Where a job can run: one entry for each `--on`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dp2ddp.launch.job import Job, local_file, nodes_file
from dp2ddp.launch.kubernetes import train_job
from dp2ddp.launch.slurm import sbatch_file


@dataclass(frozen=True)
class Target:
    """What there is to know of one place."""

    text: Callable[[Job], str]  # the launch file
    started_by: str  # what one types before its name
    takes_file: tuple[str, ...] = ()  # a cluster's own command; it reads from stdin
    options: tuple[str, ...] = ()  # of this target alone

    @property
    def is_cluster(self) -> bool:
        """Whether it gives out GPUs, and must know how many."""
        return bool(self.takes_file)


TARGETS = {
    "local": Target(local_file, "bash"),
    "torchrun": Target(nodes_file, "on every node: bash", options=("rendezvous",)),
    "slurm": Target(sbatch_file, "sbatch", ("sbatch",), ("time", "cpus")),
    "kubernetes": Target(train_job, "kubectl create -f", ("kubectl", "create", "-f", "-"), ("image",)),
}
