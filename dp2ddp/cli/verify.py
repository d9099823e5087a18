"""`dp2ddp verify`: convert, run both, compare every optimizer step, say what was found."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

from dp2ddp.cli import ScriptCommand
from dp2ddp.cli._options import options
from dp2ddp.cli._progress import shown
from dp2ddp.cli._reports import Results
from dp2ddp.options import VerifyOptions


@click.command(cls=ScriptCommand)
@options(VerifyOptions)
@options(Results)
def command(options: VerifyOptions, results: Results) -> None:
    """Train SCRIPT with DataParallel and its conversion under torchrun, and compare every optimizer step.

    Both run on virtual devices, in scratch copies of the current folder: nothing of yours is changed.
    Arguments for both scripts go behind --.
    Ends with 0 if both are the same, 1 if they differ, 3 if they could not run.
    """
    from dp2ddp.trial.scripts import ready_to_run

    results.check_targets()  # not after a month
    ready_to_run("verify", options.script, options.as_module, options.port)
    from dp2ddp.report.comparison import print_report
    from dp2ddp.report.json_form import as_text
    from dp2ddp.trial.all_trials import verify

    with shown() as progress:
        report, failure = verify(replace(options, progress=progress))
    if results.as_json:
        click.echo(as_text(report))
    elif report.verdicts:  # what was found before a failure is worth knowing
        print_report(report)
    results.write_reports(report)
    if failure:
        raise failure
    sys.exit(0 if report.same else 1)
