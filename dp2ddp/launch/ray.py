"""A driver for Ray Train: its TorchTrainer gives out machines and ranks, the script runs unchanged."""

from __future__ import annotations

from dp2ddp.launch.job import Job, comment


def ray_driver(job: Job) -> str:
    """A Python file that starts the script on the workers of a Ray cluster."""
    words = "".join(f"    {word!r},\n" for word in job.started)
    settings = "".join(f"        {name!r}: {value!r},\n" for name, value in job.settings.items())
    failures = (
        f"    run_config=RunConfig(failure_config=FailureConfig(max_failures={job.restarts})),\n"
        if job.restarts
        else ""
    )
    names = "FailureConfig, RunConfig, ScalingConfig" if job.restarts else "ScalingConfig"
    return f'''\
# {comment(job.shown)} on {job.world} workers of a Ray cluster, with a GPU each.
# Start this file in the folder from which the script is started; all nodes see that folder under the same path.

import ctypes
import os
import signal
import subprocess
import sys

import torch.distributed as dist
from ray.train import {names}
from ray.train.torch import TorchConfig, TorchTrainer

FOLDER = os.getcwd()
COMMAND = [
{words}]


def run_rank() -> None:
    """Run the script as one rank, in a process of its own: Ray's worker calls this in a thread."""
    # The ranks meet at a store of their own: in Ray's they would find the addresses of Ray's process group.
    store = dist.TCPStore(os.environ["MASTER_ADDR"], 0, is_master=True) if dist.get_rank() == 0 else None
    port = [store.port if store else None]
    dist.broadcast_object_list(port)
    variables = {{
        **os.environ,  # Ray has set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ...
        "MASTER_PORT": str(port[0]),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # rank 0 need not open the store: it is open
        "TORCHELASTIC_RESTART_COUNT": "0",
{settings}    }}
    libc = ctypes.CDLL(None)
    subprocess.run(
        [sys.executable, *COMMAND],
        cwd=FOLDER,
        env=variables,
        check=True,
        preexec_fn=lambda: libc.prctl(1, signal.SIGKILL),  # Linux: it ends with its worker
    )


TorchTrainer(
    run_rank,
    scaling_config=ScalingConfig(num_workers={job.world}, use_gpu=True),
    torch_config=TorchConfig(backend="gloo"),  # Ray's own group; the script makes one for its devices
{failures}).fit()
'''
