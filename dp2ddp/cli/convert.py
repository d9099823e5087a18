"""`dp2ddp convert`: read a script, convert it, write the result beside it, and say what was done and why."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dp2ddp.cli._options import options
from dp2ddp.cli._progress import shown
from dp2ddp.cli._reports import Results
from dp2ddp.errors import OptionError, SourceError
from dp2ddp.options import ConvertOptions, Helpers, Writing, option
from dp2ddp.styles import EXACT

if TYPE_CHECKING:
    from dp2ddp.codemod.conversion import Conversion
    from dp2ddp.report.conversion_report import ConversionReport


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What stands on the command line alone: what is printed, and where the helpers are."""

    diff: bool = option(False, "Print the difference and write nothing.")
    check: bool = option(False, "Write nothing; exit with 1 if SCRIPT would change or a hazard is open.")
    one_file: bool = option(False, "Paste the helpers into the script, instead of ddp_helpers.py beside it.")
    imports: bool = option(
        False, "Import the helpers from dp2ddp.helpers instead of writing them out.", "--import"
    )

    def __post_init__(self) -> None:
        if self.one_file and self.imports:
            raise OptionError("--one-file pastes the helpers, --import imports them: take one")


@click.command("convert")
@options(ConvertOptions)
@options(Writing)
@options(Shown)
@options(Results)
def command(requested: ConvertOptions, writing: Writing, shows: Shown, results: Results) -> None:
    """Rewrite the DataParallel script or notebook SCRIPT (- is stdin) as a DistributedDataParallel script.

    Local modules that SCRIPT imports are converted with it.
    """
    # Imported here: `dp2ddp --help` needs none of it.
    from dp2ddp.api import convert, write_conversion
    from dp2ddp.codemod.result_files import others
    from dp2ddp.source.writing import alone_in

    output = requested.output
    to_stdout = output == "-" or requested.script == "-" and not output
    results.check_targets()
    place: Helpers = "package" if shows.imports else "beside"
    if shows.one_file or to_stdout and not shows.imports and requested.style == EXACT:
        place = "in the script"  # stdout takes one file; only the exact style has helpers
    writes = not shows.diff and not shows.check
    if results.as_json and (shows.diff or to_stdout and writes):
        other = "--diff" if shows.diff else "the script (-o FILE)"
        raise click.UsageError(f"stdout takes one document, --json or {other}: take one")
    # scripts of a folder share their helpers
    turn = alone_in(Path(requested.script).parent) if writes else nullcontext()
    with shown() as progress, turn:
        how = {"helpers": place, "renew_helpers": writing.force, "progress": progress}
        conversion = convert(**{**vars(requested), **how, "output": None if to_stdout else output})
        if shows.one_file and conversion.is_project:
            raise SourceError(
                f"{requested.script}: {others(conversion)}, and needs the helpers; leave --one-file out"
            )
        written = None
        if writes and (writing.in_place or not to_stdout):
            progress.begin("writing")
            written = write_conversion(conversion, output, **vars(writing), remark=progress.say)
    if to_stdout and writes:
        _print(conversion)
    from dp2ddp.report.conversion_report import conversion_report

    report = conversion_report(conversion, written, requested=bool(requested.select or requested.ignore))
    _print_report(report, shows.diff, results.as_json, to_stdout)
    results.write_reports(report)
    sys.exit(1 if conversion.hazards or shows.check and conversion.changed else 0)


def _print(conversion: Conversion) -> None:
    """Write the script to stdout."""
    from dp2ddp.codemod.result_files import others

    if conversion.is_project:
        raise SourceError(
            f"{conversion.before.name}: {others(conversion)}; stdout takes one file: use -o FOLDER"
        )
    if sys.stdout is None:
        raise SourceError("<stdout>: closed; name a file with -o")
    click.echo(conversion.entry.data, nl=False)


def _print_report(report: ConversionReport, show_diff: bool, as_json: bool, to_stdout: bool) -> None:
    """Results go to stdout, remarks to stderr: with --diff, or a script on stdout, the report is a remark."""
    from dp2ddp.report.conversion_report import conversion_document, conversion_json
    from dp2ddp.report.text_form import print_document

    if show_diff:
        click.echo(_shown(report.conversion), nl=False)
    if as_json:
        click.echo(conversion_json(report.conversion, report.written), nl=False)
    else:
        print_document(conversion_document(report), sys.stderr if to_stdout or show_diff else sys.stdout)


def _shown(conversion: Conversion) -> str | bytes:
    """The difference: for eyes on a terminal, in colours (NO_COLOR is honoured); elsewhere whole, byte for byte."""
    if sys.stdout is None or not sys.stdout.isatty():
        diff: bytes = conversion.diff_bytes()
        return diff
    lines = conversion.diff().splitlines(keepends=True)
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return "".join(lines)
    colours = {"+": "green", "-": "red", "@": "cyan"}
    return "".join(click.style(line, fg=colours[line[0]]) if line[0] in colours else line for line in lines)
