"""`dp2ddp check`: what stands in the way of DistributedDataParallel, and what is wrong where it is used already."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import click

from dp2ddp.cli._options import options
from dp2ddp.cli._progress import shown
from dp2ddp.options import CheckOptions, option

FORMATS = ("text", "json", "sarif", "github")


@dataclass(frozen=True, kw_only=True)
class Form:
    """What is read and written other than by `dp2ddp.check`."""

    format: str = option("text", "Of the output.", choices=FORMATS)
    stdin_filename: str | None = option(
        None,
        "Read the script from stdin (PATHS is - then), and take this for its name: for editors.",
        metavar="FILE",
        typed="says what is read",
    )


@click.command("check")
@options(CheckOptions)
@options(Form)
def command(options: CheckOptions, form: Form) -> None:
    """Look through files, folders and notebooks (default: the current folder) without running or importing them.

    Reports what stands in the way of DistributedDataParallel in DataParallel code, and what is wrong in code that uses
    it already. A comment `# dp2ddp: ignore[CODE]` at the end of a line leaves a rule out there. Exits with 1 if
    anything but notes was found, or a file could not be read.
    """
    from dp2ddp.api import check
    from dp2ddp.report.check_formats import check_github, check_json, check_sarif, check_text
    from dp2ddp.source.read_source import read_source

    paths, name = options.names, form.stdin_filename
    if ("-" in paths) != (name is not None) or ("-" in paths and len(paths) > 1):
        raise click.UsageError("a script from stdin is `-` and nothing else, with its --stdin-filename")
    text = read_source("-").text if name else None
    with shown() as progress:
        requested = replace(options, paths=name or paths or ".", text=text, progress=progress)
        result = check(**vars(requested))
    writers = {"json": check_json, "sarif": check_sarif, "github": check_github}
    click.echo(writers.get(form.format, check_text)(result), nl=False)
    sys.exit(1 if result.fails else 0)
