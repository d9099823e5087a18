"""`dp2ddp verify`: convert, run both, compare every optimizer step, say what was found."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dp2ddp.cli import ScriptCommand
from dp2ddp.cli._progress import shown
from dp2ddp.cli._reports import check_targets, open_option, report_option, write_reports
from dp2ddp.cli._scripts import accept
from dp2ddp.errors import OptionError

if TYPE_CHECKING:
    from dp2ddp.codemod.plans.acceptance import AcceptOption

    _Numbers = click.ParamType[tuple[int, ...]]
    _Words = click.ParamType[tuple[str, ...]]
else:
    _Numbers = _Words = click.ParamType  # which click 8.1 does not let anybody subscript


class Worlds(_Numbers):
    """`2` or `2,3,4`."""

    name = "N[,N...]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        parts = str(value).split(",")
        if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
            self.fail(f"{value!r}: numbers of devices from 1 up, like 2 or 2,3,4", param, ctx)
        return tuple(int(part) for part in parts)


class Words(_Words):
    """As a shell takes them: `--distributed --name 'a b'`."""

    name = "TEXT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        try:
            return tuple(shlex.split(str(value)))
        except ValueError as error:
            self.fail(f"{value!r}: {str(error).lower()}", param, ctx)


@click.command(cls=ScriptCommand)
@click.argument("script", type=click.Path(path_type=Path))
@click.option(
    "-m", "as_module", is_flag=True, help="SCRIPT is a module, package.train, as `python -m` takes it."
)
@click.option(
    "--converted",
    type=click.Path(path_type=Path),
    help="A converted version; without it SCRIPT is converted.",
)
@click.option("--converted-arguments", metavar="TEXT", type=Words(),
              help="Its arguments, where they are others: '--distributed --local_rank {local_rank}'.")  # fmt: skip
@click.option(
    "-n", "--devices", type=Worlds(), help="Numbers of devices [default: as many as device_ids names, or 2]."
)
@click.option("--aligned", is_flag=True,
              help="Give both the same batches and dropout, and judge that (with --converted).")  # fmt: skip
@click.option("--steps", type=click.IntRange(min=1), help="End both after so many optimizer steps.")
@click.option(
    "--every",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Keep the tensors of each N-th step only [default: of all].",
)
@click.option("--only-gradients", is_flag=True,
              help="Judge gradients and parameters; show what is printed, left behind, returned.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=120.0, show_default=True,
              help="Give up after so many seconds without progress.")  # fmt: skip
@click.option("--launcher", type=click.Choice(("torchrun", "python")),
              help="What starts the --converted version [default: python if it starts its ranks itself].")  # fmt: skip
@accept
@click.option("--json", "as_json", is_flag=True, help="The result as JSON (docs/json.md).")
@report_option
@open_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    script: Path, as_module: bool, converted: Path | None, converted_arguments: tuple[str, ...] | None,
    devices: tuple[int, ...] | None, aligned: bool, steps: int | None, every: int,
    only_gradients: bool, timeout: float,
    launcher: str | None, accept: tuple[AcceptOption, ...], as_json: bool,
    targets: tuple[Path, ...], opens: bool, arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Train SCRIPT with DataParallel and its conversion under torchrun, and compare every optimizer step.

    Both run on virtual devices, in scratch copies of the current folder: nothing of yours is changed.
    Arguments for both scripts go behind --.
    Ends with 0 if both are the same, 1 if they differ, 3 if they could not run.
    """
    from dp2ddp.trial.scripts import ready_to_run

    check_targets(targets)  # not after a month
    ready_to_run("verify", script, as_module, converted)
    from dp2ddp.api import VerificationError, verify
    from dp2ddp.report.comparison import print_report
    from dp2ddp.report.comparison_json import as_document

    failure = None
    with shown() as progress:
        try:
            report = verify(
                script, converted=converted, devices=devices or (), arguments=arguments,
                converted_arguments=converted_arguments, steps=steps, every=every, only_gradients=only_gradients,
                aligned=aligned, launcher=launcher, accept=tuple(option.text for option in accept), timeout=timeout,
                as_module=as_module, progress=progress,
            )  # fmt: skip
        except VerificationError as error:
            report, failure = error.report, error
        except OptionError as error:
            raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(as_document(report))
    elif report.verdicts:  # what was found before a failure is worth knowing
        print_report(report)
    write_reports(report, targets, opens, "verify")
    if failure:
        raise failure
    sys.exit(0 if report.same else 1)
