"""An sbatch file: one agent (torchrun) a node, which starts the node's ranks.

What goes wrong in files that are handed around, and does not here: `|| echo localhost` behind scontrol makes each node
a world of its own; `hostname --ip-address` says 127.0.0.1 on many systems; a fixed port collides with a second job on
the node; since Slurm 22.05 srun does not take --cpus-per-task over from sbatch; a task for each GPU starts an agent
for each of them.
"""

from __future__ import annotations

import re

from dp2ddp.launch.job import Job, Raw, agent, command, comment, exports

_TORCHRUN_ENDS = 30  # seconds that torchrun gives ranks between SIGTERM and SIGKILL (its --shutdown-timeout)


def time_limit(text: str) -> str:
    """A limit as sbatch takes it; a ValueError for what is none."""
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}|unlimited|infinite", text, re.IGNORECASE):
        raise ValueError(f"{text!r}: minutes, hours:minutes:seconds, days-hours, or UNLIMITED")
    return text


def sbatch_file(job: Job) -> str:
    """A file for sbatch."""
    gpus = job.gpus or 1
    step = command(
        ["srun", "--cpus-per-task", Raw('"$SLURM_CPUS_PER_TASK"'), "--kill-on-bad-exit=1"],
        *agent(job, Raw('"$SLURM_NNODES"'), Raw('"$SLURM_JOB_ID"'), Raw('"$head:$port"')),
    )
    return f"""\
#!/bin/bash
# {comment(job.shown)} on {job.machines}.
# Submit it with sbatch, in the folder from which the script is started and with its environment active.
# Account and partition: sbatch's -A and -p, or SBATCH_ACCOUNT and SBATCH_PARTITION.
#SBATCH --job-name={job.name}
#SBATCH --nodes={job.nodes}
#SBATCH --ntasks-per-node=1  # one torchrun a node: it starts the ranks
#SBATCH --gpus-per-node={gpus}
#SBATCH --cpus-per-task={job.cpus * gpus}  # for all ranks of a node, and the workers of their loaders
#SBATCH --time={job.time}
#SBATCH --output=%x-%j.out
{_requeue_lines(job)}
set -euo pipefail

nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${{nodes%%$'\\n'*}}  # all agents meet at the first node of the list
port=$((10000 + SLURM_JOB_ID % 20000))  # two jobs on one node do not meet
{exports(job.settings)}export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / {gpus}))
# export NCCL_SOCKET_IFNAME=ib0 GLOO_SOCKET_IFNAME=ib0  # where ranks do not meet over the first network

{step} &
step=$!

{_ending(job)}"""


def _requeue_lines(job: Job) -> str:
    if not job.restarts:
        return "#SBATCH --no-requeue  # a second start would train from the beginning (dp2ddp launch --restarts)\n"
    return """\
#SBATCH --requeue  # after a node has failed; the script goes on from its own checkpoint
#SBATCH --open-mode=append  # and writes on in the same output
#SBATCH --signal=B:USR1@120  # two minutes before the time limit, to this shell
"""


def _ending(job: Job) -> str:
    requeue, again = "", ""
    if job.restarts:
        requeue = """\
again=
trap 'again=yes; scancel --signal=TERM "$SLURM_JOB_ID"' USR1  # time is up: end the ranks, and wait for another turn
"""
        again = f"""\
if [ -n "$again" ] && [ "$code" -ne 0 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {job.restarts} ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
"""
    return f"""\
# At SIGTERM ranks have {_TORCHRUN_ENDS} seconds for a last checkpoint. It comes to them by scancel;
# a signal to srun would kill them at once.
{requeue}trap : TERM  # the job is cancelled: Slurm has told the ranks, and this shell waits for them
code=0
wait "$step" || code=$?
while kill -0 "$step" 2>/dev/null; do  # a signal ends `wait`, not the step
    code=0
    wait "$step" || code=$?
done
{again}exit "$code"
"""
