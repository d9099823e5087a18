"""Manifests for Kubeflow: a TrainJob (Trainer, v2), and a PyTorchJob (Training Operator, v1).

Both operators say where ranks meet by torchrun's own variables (PET_NNODES, PET_MASTER_ADDR, ...). Trainer refuses
a job that sets one of them itself, so the command is a plain `torchrun SCRIPT`.
Sources: kubeflow/trainer, pkg/runtime/framework/plugins/torch/torch.go and manifests/base/crds; kubeflow-training 1.9.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from dp2ddp.launch.job import Job, comment

# Where /dev/shm is not made larger, a container has 64 MB of it, and workers of a DataLoader die of SIGBUS.
_SHM = "workers of loaders hand batches over in /dev/shm; a container's own has 64 MB"


def train_job(job: Job, image: str) -> str:
    """A TrainJob of Kubeflow Trainer v2, on its runtime torch-distributed."""
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
    image: {_text(image)}
    # no rendezvous, no number of nodes: Trainer gives them to torchrun (PET_...), and refuses a job that does, too
    command: ["torchrun"]
    args:
{_list(_arguments(job), 6)}\
    numNodes: {job.nodes}
    numProcPerNode: {job.gpus or 1}
    resourcesPerNode:
      limits:
        nvidia.com/gpu: {job.gpus or 1}
{_environment(job, 4)}\
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


def pytorch_job(job: Job, image: str) -> str:
    """A PyTorchJob of Kubeflow's Training Operator (v1), which Trainer (v2) follows."""
    others = f"    Worker:\n      replicas: {job.nodes - 1}\n{_replica(job, image)}" if job.nodes > 1 else ""
    return f"""\
# {comment(job.shown)} on {job.machines}.
# Start it with kubectl create -f; each start gets a name of its own. The image holds the script, and what it needs.
# For Kubeflow Training Operator 1.7 or newer.
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  generateName: {job.name}-
spec:
  nprocPerNode: {_text(str(job.gpus or 1))}
  runPolicy:
    backoffLimit: {job.restarts}
    cleanPodPolicy: Running
  pytorchReplicaSpecs:
    Master:
      replicas: 1
{_replica(job, image)}{others}"""


def _replica(job: Job, image: str) -> str:
    return f"""\
      restartPolicy: {"OnFailure" if job.restarts else "Never"}
      template:
        spec:
          containers:
            - name: pytorch  # by this name the operator finds it
              image: {_text(image)}
              # no rendezvous, no number of nodes: the operator gives them to torchrun (PET_...)
              command: ["torchrun"]
              args:
{_list(_arguments(job), 16)}\
{_environment(job, 14)}\
              resources:
                limits:
                  nvidia.com/gpu: {job.gpus or 1}
              volumeMounts:
                - name: shm  # {_SHM}
                  mountPath: /dev/shm
          volumes:
            - name: shm
              emptyDir:
                medium: Memory
"""


def _arguments(job: Job) -> list[str]:
    return [*job.restart_words, *job.started]


def _environment(job: Job, indent: int) -> str:
    variables = {"OMP_NUM_THREADS": "1", **job.settings}
    margin = " " * indent
    entries = (
        f"{margin}  - name: {name}\n{margin}    value: {_unexpanded(value)}\n"
        for name, value in variables.items()
    )
    return f"{margin}env:\n{''.join(entries)}"


def _list(words: Sequence[str], indent: int) -> str:
    return "".join(f"{' ' * indent}- {_unexpanded(word)}\n" for word in words)


def _text(value: str) -> str:
    """A string in YAML: JSON's are YAML's, and nothing in them means anything else."""
    return json.dumps(value)


def _unexpanded(value: str) -> str:
    """As Kubernetes takes it in arguments and variables, where $(NAME) is a variable's value and $$ a $."""
    return _text(value.replace("$", "$$"))
