"""A manifest for Kubeflow: a TrainJob (Trainer, v2).

The operator says where ranks meet by torchrun's own variables (PET_NNODES, PET_MASTER_ADDR, ...), and refuses a job
that sets one of them itself, so the command is a plain `torchrun SCRIPT`.
Sources: kubeflow/trainer, pkg/runtime/framework/plugins/torch/torch.go and manifests/base/crds.
"""

from __future__ import annotations

import json

from dp2ddp.launch.job import Job, comment

# Where /dev/shm is not made larger, a container has 64 MB of it, and workers of a DataLoader die of SIGBUS.
_SHM = "workers of loaders hand batches over in /dev/shm; a container's own has 64 MB"


def train_job(job: Job) -> str:
    """A TrainJob of Kubeflow Trainer v2, on its runtime torch-distributed."""
    arguments = "".join(f"      - {_unexpanded(word)}\n" for word in (*job.restart_words, *job.started))
    variables = "".join(
        f"      - name: {name}\n        value: {_unexpanded(value)}\n"
        for name, value in {"OMP_NUM_THREADS": "1", **job.settings}.items()
    )
    return f"""\
# {comment(job.shown)} on {job.machines}.
# Start it with kubectl create -f; each start gets a name of its own. The image holds the script, and what it needs.
# For Kubeflow Trainer 2.2 or newer, with its runtime torch-distributed.
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  generateName: {job.name}-
spec:
  runtimeRef:
    name: torch-distributed
  trainer:
    image: {_text(job.image)}
    # no rendezvous, no number of nodes: Trainer gives them to torchrun (PET_...), and refuses a job that does, too
    command: ["torchrun"]
    args:
{arguments}\
    numNodes: {job.nodes}
    numProcPerNode: {job.gpus or 1}
    resourcesPerNode:
      limits:
        nvidia.com/gpu: {job.gpus or 1}
    env:
{variables}\
  runtimePatches:
    - manager: dp2ddp.launch/shared-memory  # {_SHM}
      trainingRuntimeSpec:
        template:
          spec:
            replicatedJobs:
              - name: node
                template:
                  spec:
                    template:
                      spec:
                        volumes:
                          - name: shm
                            emptyDir:
                              medium: Memory
                        containers:
                          - name: node
                            volumeMounts:
                              - name: shm
                                mountPath: /dev/shm
"""


def _text(value: str) -> str:
    """A string in YAML: JSON's are YAML's, and nothing in them means anything else."""
    return json.dumps(value)


def _unexpanded(value: str) -> str:
    """As Kubernetes takes it in arguments and variables, where $(NAME) is a variable's value and $$ a $."""
    return _text(value.replace("$", "$$"))
