"""`dp2ddp bench`: run both versions with the same batches, and say what a step takes, moves, sends and holds."""

from __future__ import annotations

from dataclasses import replace

import click

from dp2ddp.cli import ScriptCommand
from dp2ddp.cli._options import options
from dp2ddp.cli._progress import shown
from dp2ddp.cli._reports import Results
from dp2ddp.options import BenchOptions


@click.command(cls=ScriptCommand)
@options(BenchOptions)
@options(Results)
def command(options: BenchOptions, results: Results) -> None:
    """Time SCRIPT under DataParallel and its conversion under torchrun, with the same batches.

    Tells what a step takes, moves, sends and holds in both, and whether both train the same.
    Runs are made one after the other, in scratch copies of the current folder, on GPUs where there are enough of
    them, else on virtual devices.
    Arguments for both scripts go behind --.
    Ends with 0, or 3 if they could not run.
    """
    from dp2ddp.trial.scripts import ready_to_run

    results.check_targets()  # not after an hour
    ready_to_run("bench", options.script, options.as_module, options.port)
    from dp2ddp.report.bench_report import bench_document
    from dp2ddp.report.json_form import as_text
    from dp2ddp.report.text_form import print_document
    from dp2ddp.trial.timing import bench

    with shown() as progress:
        benchmark, failure = bench(replace(options, progress=progress))
    if results.as_json:
        click.echo(as_text(benchmark))
    elif benchmark.measured:  # what was found before a failure is worth knowing
        print_document(bench_document(benchmark))
    results.write_reports(benchmark)
    if failure:
        raise failure
