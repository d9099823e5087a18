"""`dp2ddp bench`: run both versions with the same batches, and say what a step takes, moves, sends and holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dp2ddp.cli import ScriptCommand
from dp2ddp.cli._progress import shown
from dp2ddp.cli._reports import check_targets, open_option, report_option, write_reports
from dp2ddp.cli._scripts import accept
from dp2ddp.cli.verify import Words, Worlds
from dp2ddp.errors import OptionError

if TYPE_CHECKING:
    from dp2ddp.codemod.plans.acceptance import AcceptOption


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
@click.option("--steps", type=click.IntRange(min=2), default=25, show_default=True, metavar="K",
              help="End each run after so many optimizer steps.")  # fmt: skip
@click.option("--warm-up", type=click.IntRange(min=1), default=5, show_default=True, metavar="K",
              help="Drop so many of them, the first ones.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(min=1), default=2, show_default=True, metavar="R",
              help="Time each version so many times, in turn.")  # fmt: skip
@click.option("--compare", "compared", type=click.IntRange(min=0), default=4, show_default=True, metavar="K",
              help="Compare so many steps of both first, in runs of their own; 0: do not.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=120.0, show_default=True,
              help="Give up after so many seconds without progress.")  # fmt: skip
@click.option("--launcher", type=click.Choice(("torchrun", "python")),
              help="What starts the --converted version [default: python if it starts its ranks itself].")  # fmt: skip
@accept
@click.option("--virtual", is_flag=True, help="Virtual devices on the CPU, even where there are real ones.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON (docs/json.md).")
@report_option
@open_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    script: Path, as_module: bool, converted: Path | None, converted_arguments: tuple[str, ...] | None,
    devices: tuple[int, ...] | None, steps: int, warm_up: int, rounds: int, compared: int, timeout: float,
    launcher: str | None, accept: tuple[AcceptOption, ...], virtual: bool, as_json: bool,
    targets: tuple[Path, ...], opens: bool, arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Time SCRIPT under DataParallel and its conversion under torchrun, with the same batches.

    Tells what a step takes, moves, sends and holds in both, and whether both train the same.
    Runs are made one after the other, in scratch copies of the current folder, on GPUs where there are enough of
    them, else on virtual devices.
    Arguments for both scripts go behind --.
    Ends with 0, or 3 if they could not run.
    """
    from dp2ddp.trial.scripts import ready_to_run

    check_targets(targets)  # not after an hour
    ready_to_run("bench", script, as_module, converted)
    from dp2ddp.api import BenchmarkError, bench
    from dp2ddp.report.bench_json import as_document
    from dp2ddp.report.bench_report import bench_document
    from dp2ddp.report.text_form import print_document

    failure = None
    with shown() as progress:
        try:
            benchmark = bench(
                script, converted=converted, devices=devices or (), arguments=arguments,
                converted_arguments=converted_arguments, steps=steps, warm_up=warm_up, rounds=rounds,
                compared=compared, virtual=virtual, launcher=launcher,
                accept=tuple(option.text for option in accept), timeout=timeout, as_module=as_module,
                progress=progress,
            )  # fmt: skip
        except BenchmarkError as error:
            benchmark, failure = error.benchmark, error
        except OptionError as error:
            raise click.UsageError(str(error)) from error
    if as_json:
        click.echo(as_document(benchmark))
    elif benchmark.measured:  # what was found before a failure is worth knowing
        print_document(bench_document(benchmark, whole=False))
    write_reports(benchmark, targets, opens, "bench")
    if failure:
        raise failure
