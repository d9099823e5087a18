"""`dp2ddp launch`: start a converted script, here or on a cluster, or write the file that starts it."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from click.core import ParameterSource

from dp2ddp.cli import ScriptCommand
from dp2ddp.cli._scripts import warn
from dp2ddp.doctor.torch_answers import may_have_gpus
from dp2ddp.errors import RunError, SourceError
from dp2ddp.launch.job import Job
from dp2ddp.launch.targets import TARGETS, Given, Launcher, Target

if TYPE_CHECKING:
    from dp2ddp.codemod.readiness import Readiness

DEVICES = "CUDA_VISIBLE_DEVICES"


@click.command(cls=ScriptCommand)
@click.argument("script", type=click.Path(path_type=Path))
@click.option(
    "-m", "as_module", is_flag=True, help="SCRIPT is a module, package.train, as `python -m` takes it."
)
@click.option("--on", "target", type=click.Choice(tuple(TARGETS)), default="local", show_default=True,
              help="Where: this machine, several by torchrun, or a cluster.")  # fmt: skip
@click.option("-n", "--gpus", type=click.IntRange(min=1),
              help="GPUs of a node, a rank for each [default here: as many as torchrun counts].")  # fmt: skip
@click.option("-N", "--nodes", type=click.IntRange(min=1), default=1, show_default=True,
              help="Nodes.")  # fmt: skip
@click.option(
    "-o", "--output", metavar="FILE", help="Write the launch file (- is stdout), and start nothing."
)
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@click.option("--restarts", type=click.IntRange(min=0), default=0, show_default=True,
              help="Start the ranks again, so many times, when one has failed: for a script that goes on from its own "
              "checkpoint.")  # fmt: skip
@click.option("--rendezvous", metavar="HOST[:PORT]", help="torchrun: the node at which all meet.")
@click.option("--time", metavar="LIMIT", help="slurm: the time limit [default: 24:00:00].")
@click.option(
    "--cpus", type=click.IntRange(min=1), help="slurm: CPUs of a rank and its loader's workers [default: 8]."
)
@click.option("--image", help="kubernetes: the image, with the script and what it needs in it.")
@click.option("--operator", type=click.Choice(("v2", "v1")),
              help="kubernetes: a TrainJob (Kubeflow Trainer) or the older PyTorchJob [default: v2].")  # fmt: skip
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    script: Path, as_module: bool, target: str, gpus: int | None, nodes: int, output: str | None, force: bool,
    restarts: int, arguments: tuple[str, ...], **of_target: str | int | None,
) -> None:  # fmt: skip
    """Start the converted SCRIPT with a rank on each GPU; with -o only write the file that starts it.

    A script that still uses DataParallel is converted on the way where it is started by torchrun, with its local
    modules; no file of yours changes. With -o the conversion is written beside it, for the file to start.

    What is started takes dp2ddp's place: its output, its signals and its exit code are its own.
    Arguments for the script go behind --.
    Ends with 2 for options that do not fit, with 1 if SCRIPT could not be converted, with 3 if nothing could be
    started.
    """
    place = TARGETS[target]
    given = {
        name: value
        for name, value in of_target.items()
        if value is not None and (name in place.options or _is_typed(name))
    }
    _check_options(target, gpus, nodes, given, output)
    job, wrapped = _job(script, as_module, arguments, gpus, nodes, restarts, place)
    if output and output != "-":
        _check_place(Path(output), Path(job.script))  # before a conversion is written for nothing
    if wrapped and output not in (None, "-"):
        job = _converted_beside(job, as_module, wrapped, force)
    elif wrapped and (output or not place.launcher):
        raise _unconverted(job, wrapped)
    if output:
        _write(place.text(job, given), output, force, place, Path(job.script))
    elif place.launcher:
        _become(job, given, place.launcher, _converted(job, as_module, wrapped) if wrapped else job)
    else:
        _hand_over(list(place.takes_file), place.text(job, given))


def _is_typed(option: str) -> bool:
    """Whether it stands on the command line, and is no default of pyproject.toml, which holds for all places."""
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


def _check_options(target: str, gpus: int | None, nodes: int, given: Given, output: str | None) -> None:
    """Usage errors: what is missing, and what would do nothing."""
    for name in given:
        if name not in TARGETS[target].options:
            owner = next(other for other, place in TARGETS.items() if name in place.options)
            raise click.UsageError(f"--{name} is of --on {owner}, not of --on {target}")
    if target == "local" and nodes > 1:
        raise click.UsageError(
            "several nodes need --on torchrun (the same command on each of them), slurm, kubernetes or ray"
        )
    if TARGETS[target].is_cluster and gpus is None:
        raise click.UsageError(f"--on {target} needs -n: how many GPUs to ask for on each node")
    if target == "kubernetes" and "image" not in given:
        raise click.UsageError(
            "--on kubernetes needs --image: the container image with the script and what it needs in it"
        )
    if target == "torchrun" and nodes > 1 and not output and "rendezvous" not in given:
        raise click.UsageError(
            "several nodes need --rendezvous HOST: one of them, by a name that all of them know; the same on each"
        )


def _job(
    script: Path, as_module: bool, arguments: tuple[str, ...], gpus: int | None, nodes: int, restarts: int,
    place: Target,
) -> tuple[Job, str | None]:  # fmt: skip
    """What to start, and the place where it must be converted first, if any."""
    from dp2ddp.codemod.readiness import readiness
    from dp2ddp.source.projects import read_project
    from dp2ddp.trial.scripts import module_of, script_file

    path = script_file(script, as_module)
    if path.suffix == ".ipynb":
        raise SourceError(
            f"{path}: torchrun starts scripts; `dp2ddp convert {shlex.quote(str(path))}` makes one of it"
        )
    ready = readiness(read_project(path, as_module))
    module = module_of(path if as_module else script, as_module)
    settings = {
        name: value for name, value in ready.settings.items() if not place.is_cluster or name != DEVICES
    }
    job = Job(str(path), module, arguments, gpus, nodes, restarts, settings)
    for remark in _remarks(path, ready, job, place):
        warn(f"{path}: {remark}")
    return job, None if job.world == 1 or ready.joins else ready.still_wrapped


def _unconverted(job: Job, wrapped: str) -> SourceError:
    return SourceError(
        f"{wrapped}: still DataParallel, so each rank would train alone on all GPUs; "
        f"`dp2ddp convert {shlex.quote(job.script)}` first, then launch what it writes"
    )


def _converted(job: Job, as_module: bool, wrapped: str) -> Job:
    """What starts the conversion in the script's place; a HazardError if its owner must answer something first."""
    from dp2ddp.codemod.helpers import HelperPlace
    from dp2ddp.runtime.process.on_the_way import start_words
    from dp2ddp.runtime.process.scratch import lasting_folder
    from dp2ddp.source.projects import read_project
    from dp2ddp.trial.scripts import conversion_of

    conversion = conversion_of(read_project(Path(job.script), as_module), HelperPlace.PACKAGE)
    if not conversion.changed:
        raise _unconverted(job, wrapped)
    warn(
        f"{job.script}: converted on the way, no file of yours changes; "
        f"`dp2ddp convert {shlex.quote(job.script)} --diff` shows it"
    )
    started, start = start_words(lasting_folder(), job.script, job.module, conversion.written_files)
    return replace(job, script=started, module=None, arguments=(start, *job.arguments))


def _converted_beside(job: Job, as_module: bool, wrapped: str, force: bool) -> Job:
    """The same with the conversion in its place, which is written as `dp2ddp convert` writes it."""
    from dp2ddp.codemod.result_files import write
    from dp2ddp.source.projects import read_project
    from dp2ddp.trial.scripts import conversion_of

    conversion = conversion_of(read_project(Path(job.script), as_module), renews_helpers=force)
    script = write(conversion, None, force=force, remark=warn)
    if script is None:
        raise _unconverted(job, wrapped)
    warn(f"{job.script}: converted into {script}, which the launch file starts")
    return replace(job, script=script, module=None)


def _remarks(path: Path, ready: Readiness, job: Job, place: Target) -> Iterator[str]:
    """What the script's owner should know before it starts."""
    from dp2ddp.trial.launcher import starts_its_ranks

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


def _write(text: str, output: str, force: bool, place: Target, script: Path) -> None:
    from dp2ddp.source.writing import refuse_to_overwrite, write_atomically

    if output == "-":
        click.echo(text, nl=False)
        return
    path = Path(output)
    _check_place(path, script)
    refuse_to_overwrite(path, text.encode(), force=force)
    write_atomically(path, text.encode())
    click.echo(f"written: {output}; {place.started_by} {shlex.quote(output)}", err=True)


def _check_place(path: Path, script: Path) -> None:
    """Whether a launch file may lie there; --force overwrites no script that it is to start."""
    if path.is_dir():
        raise SourceError(f"{path}: a folder; name a file with -o")
    if not path.parent.is_dir():
        raise SourceError(f"{path}: cannot be written (there is no folder {path.parent})")
    if path.exists() and path.samefile(script):
        raise SourceError(f"{path}: is the script itself; name another file with -o")


def _become(job: Job, given: Given, launcher: Launcher, started: Job) -> NoReturn:
    """Be the launcher of what is started for a job: nothing stands between it and the terminal."""
    if importlib.util.find_spec(launcher.module) is None:
        raise RunError(
            f"{launcher.module} is not installed for {sys.executable}: {launcher.install}; -o writes the launch file"
        )
    if job.gpus is None and not may_have_gpus():
        raise RunError("no GPU here: -n says how many ranks to start, which then train on the CPU")
    click.echo(f"starting {launcher.shown(job, given)}", err=True)
    sys.stdout.flush()
    sys.stderr.flush()
    words = launcher.command(started, given)
    # torchrun's own number of threads, without its four lines about it
    os.execve(words[0], words, {"OMP_NUM_THREADS": "1", **os.environ, **job.settings})


def _hand_over(words: list[str], text: str) -> None:
    """Give the file to the cluster's own command."""
    if shutil.which(words[0]) is None:
        raise RunError(
            f"{words[0]}: there is none here; -o FILE writes what it takes, to hand it in elsewhere"
        )
    code = subprocess.run(words, input=text, text=True, check=False).returncode
    if code:
        raise RunError(f"{words[0]} refused it, and ended with {code}; -o FILE writes what it was given")
