"""`dp2ddp check`: what stands in the way of DistributedDataParallel, and what is wrong where it is used already."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from dp2ddp.cli._options import options
from dp2ddp.cli._progress import shown
from dp2ddp.errors import OptionError
from dp2ddp.options import CheckOptions

if TYPE_CHECKING:
    from dp2ddp.review.checking import CheckResult

FORMATS = ("text", "json", "sarif", "github", "gitlab")


@click.command("check")
@options(CheckOptions)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="Of the output."
)
@click.option(
    "--stdin-filename",
    metavar="FILE",
    help="Read the script from stdin (PATHS is - then), and take this for its name: for editors.",
)
@click.option("--all", "each", is_flag=True, help="List what text tells once, with a count (DDP620, DDP624).")
def command(options: CheckOptions, form: str, stdin_filename: str | None, each: bool) -> None:
    """Look through files, folders and notebooks (default: the current folder) without running or importing them.

    Reports what stands in the way of DistributedDataParallel in DataParallel code, and what is wrong in code that uses
    it already. A comment `# dp2ddp: ignore[CODE]` at the end of a line leaves a rule out there. Exits with 1 if
    anything but notes was found, or a file could not be read.
    """
    from dp2ddp.api import check

    paths = options.names
    if ("-" in paths) != (stdin_filename is not None) or ("-" in paths and len(paths) > 1):
        raise click.UsageError("a script from stdin is `-` and nothing else, with its --stdin-filename")
    text = _stdin() if stdin_filename else None
    with shown() as progress:
        requested = replace(options, paths=stdin_filename or paths or ".", text=text, progress=progress)
        try:
            result = check(**vars(requested))
        except OptionError as error:
            raise click.UsageError(str(error)) from error
    if options.diff:
        click.echo(b"".join(file.diff_bytes() for file in result.mended), nl=False)
    else:
        click.echo(_writer(form, each)(result), nl=False)
    sys.exit(1 if result.fails else 0)


def _stdin() -> str:
    from dp2ddp.source.read_source import read_source

    return read_source("-").text


def _writer(form: str, each: bool) -> Callable[[CheckResult], str]:
    if form == "text":
        from dp2ddp.report.check_text import check_text

        return partial(check_text, each=each)
    from dp2ddp.report import check_formats

    writers = {
        "json": check_formats.check_json,
        "sarif": check_formats.check_sarif,
        "github": check_formats.check_github,
        "gitlab": check_formats.check_gitlab,
    }
    return writers[form]
