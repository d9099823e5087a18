"""`dp2ddp run`: run a script as it is, in either mode."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dp2ddp.cli import ScriptCommand
from dp2ddp.cli._progress import is_terminal
from dp2ddp.cli._scripts import accept
from dp2ddp.errors import RunError

if TYPE_CHECKING:
    from dp2ddp.codemod.plans.acceptance import AcceptOption
    from dp2ddp.runtime.stage import Mode


@click.command(cls=ScriptCommand)
@click.argument("script", type=click.Path(path_type=Path))
@click.option(
    "-m", "as_module", is_flag=True, help="SCRIPT is a module, package.train, as `python -m` takes it."
)
@click.option(
    "--mode", type=click.Choice(["dp", "ddp"]), required=True, help="One process, or one for each device."
)
@click.option(
    "-n",
    "--devices",
    type=click.IntRange(min=1),
    help="Number of devices [default: as many as device_ids names, or 2].",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path, file_okay=False),
    help="Record every optimizer step in this folder.",
)
@click.option(
    "--steps", type=click.IntRange(min=1), help="End the script after so many optimizer steps (with --trace)."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    help="Give up after so many seconds without progress.",
)
@accept
@click.option("--virtual", is_flag=True, help="Virtual devices on the CPU, even where there are real ones.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    script: Path, as_module: bool, mode: Mode, devices: int | None, trace: Path | None, steps: int | None,
    timeout: float | None, accept: tuple[AcceptOption, ...], virtual: bool, arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Run SCRIPT as it is, in the current folder (a notebook: in its own), on real or virtual devices.

    In ddp mode a script that still uses DataParallel is converted on the way, with its local modules; no file of
    yours changes.
    Arguments for the script go behind --. Ends with 0, or 3 if the script failed or --trace could not record it,
    1 if it could not be converted.
    """
    from dp2ddp.trial.scripts import folder_of, module_of, ready_to_run

    script = ready_to_run("run", script, as_module)
    from dp2ddp.cli._scripts import devices_named, runnable, warn
    from dp2ddp.runtime.run import run_here
    from dp2ddp.trace.record_folder import refuse_others

    module = module_of(script, as_module)
    if steps and not trace:
        raise click.UsageError("--steps needs --trace: the recorder counts the steps")
    what = runnable(script, mode, as_module, accept)
    world = devices or devices_named(script, as_module) or 2
    ranks = range(world if mode == "ddp" else 1)
    if trace:
        refuse_others(trace, ranks)
    if is_terminal():  # what comes then is the script's own
        warn(
            f"{script} begins in {mode} mode on {world} device{'' if world == 1 else 's'}; torch is being imported"
        )
    run = run_here(
        script=script, name=str(script), mode=mode, world=world,
        module=module, replaced=what.files, settings=what.settings, folder=folder_of(script),
        arguments=arguments, trace=trace, steps=steps, timeout=timeout, real=not virtual,
    )  # fmt: skip
    if run.failure:
        from dp2ddp.report.failure_text import failure_text

        raise RunError(failure_text(run))
    missing = _missing(trace, ranks) if trace else ""
    if missing:
        raise RunError(f"{script}: it ran to its end, but its record in {trace} is not whole: {missing}")
    sys.exit(0)


def _missing(trace: Path, ranks: range) -> str:
    from dp2ddp.trace.records import gaps

    return "; ".join(gaps(trace, ranks))
