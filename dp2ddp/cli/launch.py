"""`dp2ddp launch`: start a converted script, here or on a cluster, or write the file that starts it."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from click.core import ParameterSource

from dp2ddp.cli import ScriptCommand, warn
from dp2ddp.cli._options import options
from dp2ddp.doctor.torch_answers import may_have_gpus
from dp2ddp.errors import OptionError, RunError, SourceError
from dp2ddp.launch.job import Job, command_line, local_file, nodes_file, torchrun_words, with_port
from dp2ddp.launch.kubernetes import train_job
from dp2ddp.launch.slurm import sbatch_file, time_limit
from dp2ddp.masks import masked
from dp2ddp.options import Arguments, Script, option, refuse_no_name

if TYPE_CHECKING:
    from dp2ddp.codemod.readiness import Readiness

DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Target:
    """What there is to know of one place, `--on`."""

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


@dataclass(frozen=True, kw_only=True)
class LaunchOptions(Arguments, Script):
    """What to start, and where; the last four are of one place alone. Raises OptionError for what does not fit."""

    on: str = option(
        "local",
        "Where: this machine, several by torchrun, or a cluster.",
        choices=tuple(TARGETS),
        typed="says where something is started",
    )
    gpus: int | None = option(
        None,
        "GPUs of a node, a rank for each [default here: as many as torchrun counts].",
        "-n",
        "--gpus",
        least=1,
    )
    nodes: int = option(1, "Nodes.", "-N", "--nodes", least=1)
    output: str | None = option(
        None,
        "Write the launch file (- is stdout), and start nothing.",
        "-o",
        "--output",
        metavar="FILE",
        typed="says where to write",
    )
    force: bool = option(False, "Overwrite FILE.", typed="overwrites files")
    restarts: int = option(
        0,
        "Start the ranks again, so many times, when one has failed: for a script that goes on from its own checkpoint.",
        least=0,
    )
    rendezvous: str | None = option(
        None,
        "torchrun: the node at which all meet.",
        metavar="HOST[:PORT]",
        typed="says what is connected to",
    )
    time: str = option("24:00:00", "slurm: the time limit.", metavar="LIMIT")
    cpus: int = option(8, "slurm: CPUs of a rank and its loader's workers.", least=1)
    image: str | None = option(None, "kubernetes: the image, with the script and what it needs in it.")

    @property
    def place(self) -> Target:
        return TARGETS[self.on]

    def __post_init__(self) -> None:
        refuse_no_name(self.output)
        for name, meaning in (("time", time_limit), ("rendezvous", with_port)):
            value = getattr(self, name)
            try:
                _ = value is None or meaning(value)
            except ValueError as error:
                raise OptionError(f"--{name} {error}") from error
        if self.on == "local" and self.nodes > 1:
            raise OptionError(
                "several nodes need --on torchrun (the same command on each of them), slurm or kubernetes"
            )
        if self.place.is_cluster and self.gpus is None:
            raise OptionError(f"--on {self.on} needs -n: how many GPUs to ask for on each node")
        if self.on == "kubernetes" and not self.image:
            raise OptionError(
                "--on kubernetes needs --image: the container image with the script and what it needs in it"
            )
        if self.on == "torchrun" and self.nodes > 1 and not self.output and self.rendezvous is None:
            raise OptionError(
                "several nodes need --rendezvous HOST: one of them, by a name that all of them know; the same on each"
            )


@click.command(cls=ScriptCommand)
@options(LaunchOptions)
def command(options: LaunchOptions) -> None:
    """Start the converted SCRIPT with a rank on each GPU; with -o only write the file that starts it.

    A script that still uses DataParallel is refused: `dp2ddp convert` it first.

    What is started takes dp2ddp's place: its output, its signals and its exit code are its own.
    Arguments for the script go behind --.
    Ends with 2 for options that do not fit, with 3 if nothing could be started.
    """
    _refuse_options_of_others(options.on)
    place, job = options.place, _job(options)
    if options.output:
        _write(place.text(job), options.output, options, Path(job.script))
    elif place.takes_file:
        _hand_over(place.takes_file, place.text(job))
    else:
        _become(job, torchrun_words(job))


def _refuse_options_of_others(target: str) -> None:
    """A usage error for what would do nothing; a default of pyproject.toml holds for all places."""
    source = click.get_current_context().get_parameter_source
    for owner, place in TARGETS.items():
        for name in place.options:
            if owner != target and source(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{name} is of --on {owner}, not of --on {target}")


def _job(options: LaunchOptions) -> Job:
    """What to start; a SourceError for what must be converted first."""
    from dp2ddp.codemod.readiness import readiness
    from dp2ddp.source.projects import read_project
    from dp2ddp.trial.scripts import module_of, script_file

    path = script_file(options.script, options.as_module)
    if path.suffix == ".ipynb":
        raise SourceError(
            f"{path}: torchrun starts scripts; `dp2ddp convert {shlex.quote(str(path))}` makes one of it"
        )
    ready = readiness(read_project(path, options.as_module))
    settings = {
        name: value
        for name, value in ready.settings.items()
        if not options.place.is_cluster or name != DEVICES
    }
    words, module = tuple(options.arguments), module_of(path, options.as_module)
    own = {name: getattr(options, name) for name in options.place.options}
    job = Job(str(path), module, words, options.gpus, options.nodes, options.restarts, settings, **own)
    for remark in _remarks(path, ready, job, options.place):
        warn(f"{path}: {remark}")
    if job.world != 1 and not ready.joins and ready.still_wrapped:
        raise SourceError(
            f"{ready.still_wrapped}: still DataParallel, so each rank would train alone on all GPUs; "
            f"`dp2ddp convert {shlex.quote(job.script)}` first, then launch what it writes"
        )
    return job


def _remarks(path: Path, ready: Readiness, job: Job, place: Target) -> Iterator[str]:
    """What the script's owner should know before it starts."""
    from dp2ddp.trial.scripts import starts_its_ranks

    if ready.visible_devices and place.is_cluster:
        yield f"sets {DEVICES}={ready.visible_devices}; a cluster gives out GPUs itself: take that line out"
    if job.restarts and not ready.reads_checkpoints:
        yield "nothing in it was found to read a checkpoint; a restart would train from the beginning"
    if starts_its_ranks(path):
        yield "seems to start its ranks itself; then `python` starts it, and torchrun W times W of them"
    if job.world != 1 and ready.joins and ready.still_wrapped:
        yield f"DataParallel, too ({ready.still_wrapped}); start it with arguments that choose its own process group"
    if job.world != 1 and ready.around:
        yield (
            f"{ready.around} trains it by DDP as it is, and every rank runs the lines around that; "
            f"`dp2ddp convert {shlex.quote(job.script)} --diff` shows what makes them rank 0's"
        )
    if job.world != 1 and not ready.joins and not ready.still_wrapped:
        yield "nothing in it was found to join a process group; if nothing does, each rank trains alone"


def _write(text: str, output: str, options: LaunchOptions, script: Path) -> None:
    from dp2ddp.source.writing import refuse_to_overwrite, write_atomically

    if output == "-":
        click.echo(text, nl=False)
        return
    path = Path(output)
    if path.is_dir():
        raise SourceError(f"{path}: a folder; name a file with -o")
    if path.exists() and path.samefile(script):  # --force overwrites no script that it is to start
        raise SourceError(f"{path}: is the script itself; name another file with -o")
    refuse_to_overwrite(path, text.encode(), force=options.force)
    write_atomically(path, text.encode())
    click.echo(f"written: {output}; {options.place.started_by} {shlex.quote(output)}", err=True)


def _become(job: Job, words: list[str]) -> NoReturn:
    """Be torchrun: nothing stands between it and the terminal."""
    if importlib.util.find_spec("torch") is None:
        raise RunError(
            f"torch is not installed for {sys.executable}: pip install torch; -o writes the launch file"
        )
    if job.gpus is None and not may_have_gpus():
        raise RunError("no GPU here: -n says how many ranks to start, which then train on the CPU")
    click.echo(f"starting {command_line(masked(words), job.settings)}", err=True)
    sys.stdout.flush()
    sys.stderr.flush()
    # torchrun's own number of threads, without its four lines about it
    own = [sys.executable, "-m", "torch.distributed.run", *words[1:]]
    os.execve(sys.executable, own, {"OMP_NUM_THREADS": "1", **os.environ, **job.settings})


def _hand_over(words: Sequence[str], text: str) -> None:
    """Give the file to the cluster's own command."""
    if shutil.which(words[0]) is None:
        raise RunError(
            f"{words[0]}: there is none here; -o FILE writes what it takes, to hand it in elsewhere"
        )
    code = subprocess.run(words, input=text, text=True, check=False).returncode
    if code:
        raise RunError(f"{words[0]} refused it, and ended with {code}; -o FILE writes what it was given")
