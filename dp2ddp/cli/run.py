"""`dp2ddp run`: run a script as it is, in either mode."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dp2ddp.cli import ScriptCommand, refuse_to_write_to_nobody, warn
from dp2ddp.cli._options import options
from dp2ddp.cli._progress import is_terminal
from dp2ddp.errors import Dp2DdpError, RunError
from dp2ddp.options import RunOptions
from dp2ddp.words import counted

if TYPE_CHECKING:
    from dp2ddp.codemod.plans.acceptance import AcceptOption
    from dp2ddp.source.projects import Project


@click.command(cls=ScriptCommand)
@options(RunOptions)
def command(options: RunOptions) -> None:
    """Run SCRIPT as it is, in the current folder (a notebook: in its own), on real or virtual devices.

    In ddp mode a script that still uses DataParallel is converted on the way, with its local modules; no file of
    yours changes.
    Arguments for the script go behind --. Ends with 0, or 3 if the script failed or --trace could not record it,
    1 if it could not be converted.
    """
    from dp2ddp.trial.scripts import folder_of, module_of, ready_to_run

    script = ready_to_run("run", options.script, options.as_module)
    from dp2ddp.runtime.process.run import run_here
    from dp2ddp.runtime.stage import Stage
    from dp2ddp.source.projects import read_project
    from dp2ddp.trace.record_folder import refuse_others

    mode, trace = options.mode, options.trace
    project = read_project(script, options.as_module)
    files, settings = what_runs(project, mode, options.answers)
    world = options.devices or devices_named(project) or 2
    ranks = range(world if mode == "ddp" else 1)
    if trace:
        refuse_others(trace, ranks)
    if is_terminal():  # what comes then is the script's own
        warn(f"{script} begins in {mode} mode on {counted(world, 'device')}; torch is being imported")
    stage = Stage(
        script=str(script.absolute()), mode=mode, world=world, folder=str(folder_of(script)), run_folder="",
        name=str(script), module=module_of(script, options.as_module), arguments=tuple(options.arguments),
        trace=str(trace.absolute()) if trace else None, steps=options.steps, real=not options.virtual,
    )  # fmt: skip
    run = run_here(stage, files, settings, options.timeout)
    if run.failure:
        if run.failure.text.startswith("BrokenPipeError"):
            refuse_to_write_to_nobody()
        from dp2ddp.report.failure_text import failure_text

        raise RunError(failure_text(run))
    from dp2ddp.trace.records import gaps

    if trace and (missing := "; ".join(gaps(trace, ranks))):
        raise RunError(f"{script}: it ran to its end, but its record in {trace} is not whole: {missing}")
    sys.exit(0)


def devices_named(project: Project) -> int | None:
    """How many devices the script's own device_ids name, where that can be read off."""
    from dp2ddp.codemod.convert import convert

    if "device_ids" not in project.entry.text:
        return None
    with contextlib.suppress(Dp2DdpError):  # Python itself says better what is wrong with it, when it runs
        return convert(project).world
    return None


def what_runs(
    project: Project, mode: str, accept: tuple[AcceptOption, ...] = ()
) -> tuple[Mapping[Path, bytes], Mapping[str, str]]:
    """What runs in the place of the script's files, mended where they are too old, and under which variables."""
    from dp2ddp.codemod.helpers import HelperPlace
    from dp2ddp.trial.scripts import conversion_of, mended_files_of
    from dp2ddp.trial.subject import HASHES, chosen_hashes

    if mode == "dp":
        return mended_files_of(project, warn), {}
    # without a file of ours in the user's folder
    conversion = conversion_of(project, HelperPlace.PACKAGE, accept)
    files = conversion.written_files if conversion.changed else mended_files_of(project, warn)
    hashes = {HASHES: chosen_hashes()} if chosen_hashes() else {}  # they stay what the user has set
    return files, {**conversion.job.settings, **hashes}  # of one that is converted already, too
