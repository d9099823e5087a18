"""A file that starts torchrun: on this machine, or the same on each of several."""

from __future__ import annotations

from dp2ddp.launch.job import PORT, Job, Raw, command, comment, exports, rendezvous_words

# torchrun sets it to 1 where nobody has, and says so at length; here it says why
THREADS = "export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}  # threads of a rank on the CPU; more only if cores are free\n"


def local_file(job: Job) -> str:
    """A shell script for one machine."""
    line = command(["exec", "torchrun", "--standalone", *job.rank_words, *job.restart_words], job.started)
    return f"""\
#!/usr/bin/env bash
# {comment(job.shown)}: {ranks(job)}. Start it in the folder from which the script is started.
set -euo pipefail

{exports(job.settings)}{THREADS}{line}
"""


def nodes_file(job: Job, endpoint: str | None) -> str:
    """A shell script that is started on each node; the nodes meet at `endpoint`, or at what it is told."""
    if endpoint:
        where, meeting = "", [endpoint]
    else:
        where = "host=${1:?which node do all meet at? give its name, the same one on every node}\n"
        meeting = [Raw(f'"$host:${{PORT:-{PORT}}}"')]
    line = command(
        ["exec", "torchrun", "--nnodes", str(job.nodes), *job.rank_words],
        [*rendezvous_words(job.name, "")[:-1], *meeting],
        job.restart_words,
        job.started,
    )
    return f"""\
#!/usr/bin/env bash
# {comment(job.shown)}: {ranks(job)} on each of {job.nodes} nodes.
# Start it on every node, in the folder from which the script is started; they wait for each other.
set -euo pipefail

{where}{exports(job.settings)}{THREADS}\
# export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0  # where a node has several networks, and ranks do not meet
{line}
"""


def ranks(job: Job) -> str:
    return "a rank for each GPU" if job.gpus is None else f"{job.gpus} rank{'s' if job.gpus > 1 else ''}"
