"""`dp2ddp convert`: read a script, convert it, write the result beside it, and say what was done and why."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dp2ddp.cli._completion import conversion_codes, files
from dp2ddp.cli._options import accept_option
from dp2ddp.cli._progress import shown
from dp2ddp.cli._reports import check_targets, open_option, report_option, write_reports
from dp2ddp.codemod.choices import EXACT, STYLES
from dp2ddp.errors import OptionError, SourceError

if TYPE_CHECKING:
    from dp2ddp.api import Helpers
    from dp2ddp.codemod.conversion import Conversion
    from dp2ddp.report.conversion_report import ConversionReport


def _codes(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(code.strip().upper() for code in (value or "").split(",") if code.strip())


@click.command("convert")
@click.argument("src", shell_complete=files)
@click.option(
    "-m", "as_module", is_flag=True, help="SRC is a module, package.train, as `python -m` takes it."
)
@click.option(
    "-o",
    "--output",
    shell_complete=files,
    help="Where to write the result: a file that ends in .py (default: NAME_ddp.py beside SRC), or - for stdout. "
    "Where local modules change too: a folder for a copy of the whole project.",
)
@click.option("--diff", "show_diff", is_flag=True, help="Print the difference and write nothing.")
@click.option(
    "--check", is_flag=True, help="Write nothing; exit with 1 if SRC would change or a hazard is open."
)
@click.option("--in-place", is_flag=True, help="Change SRC and its local modules themselves.")
@click.option(
    "--notebook",
    is_flag=True,
    help="Write NAME_ddp.ipynb, whose cells write the script and start it, instead of a script.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Overwrite what is there already; change files in place that git does not keep.",
)
@click.option(
    "--link",
    multiple=True,
    metavar="NAME",
    help="With -o FOLDER: link what has this name or pattern, relative to the project, instead of copying it.",
)
@click.option(
    "--copy",
    multiple=True,
    metavar="NAME",
    help="With -o FOLDER: copy what has this name or pattern, whatever it takes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@report_option
@open_option
@click.option(
    "--style",
    type=click.Choice(STYLES),
    default=EXACT,
    show_default=True,
    help="exact trains the same; idiomatic is what a tutorial would write, and lists what is no longer the same.",
)
@click.option(
    "--select",
    callback=_codes,
    shell_complete=conversion_codes,
    help="Use only these rules (codes or families: DDP5,DDP201).",
)
@click.option("--ignore", callback=_codes, shell_complete=conversion_codes, help="Leave these rules out.")
@accept_option
@click.option(
    "--one-file", is_flag=True, help="Paste the helpers into the script, instead of ddp_helpers.py beside it."
)
@click.option(
    "--import",
    "imports",
    is_flag=True,
    help="Import the helpers from dp2ddp.helpers instead of writing them out.",
)
def command(
    src: str, as_module: bool, output: str | None, show_diff: bool, check: bool, in_place: bool,
    notebook: bool, force: bool, link: tuple[str, ...], copy: tuple[str, ...],
    as_json: bool, targets: tuple[Path, ...], opens: bool, style: str,
    select: tuple[str, ...], ignore: tuple[str, ...], accept: tuple[str, ...], one_file: bool, imports: bool,
) -> None:  # fmt: skip
    """Rewrite the DataParallel script or notebook SRC (- is stdin) as a DistributedDataParallel script.

    Local modules that SRC imports are converted with it.
    """
    # Imported here: `dp2ddp --help` needs none of it.
    from dp2ddp.api import convert, write_conversion
    from dp2ddp.codemod.result_files import others

    if one_file and imports:
        raise click.UsageError("--one-file pastes the helpers, --import imports them: take one")
    to_stdout = output == "-" or src == "-" and not output
    check_targets(targets)
    target = None if to_stdout else output
    place: Helpers = "package" if imports else "beside"
    if (
        one_file or to_stdout and not imports and style == EXACT
    ):  # stdout takes one file; only this style has helpers
        place = "in the script"
    with shown() as progress:
        try:
            conversion = convert(
                src, output=target, as_module=as_module, style=style, select=select, ignore=ignore,
                accept=accept, helpers=place, renew_helpers=force, progress=progress,
            )  # fmt: skip
            if one_file and conversion.is_project:
                raise SourceError(f"{src}: {others(conversion)}, and needs the helpers; leave --one-file out")
            written = None
            if not show_diff and not check and not (to_stdout and not in_place):
                progress.begin("writing")
                written = write_conversion(
                    conversion, output, in_place=in_place, notebook=notebook, force=force, link=link, copy=copy,
                    remark=progress.say,
                )  # fmt: skip
        except OptionError as error:
            raise click.UsageError(str(error)) from error
    if to_stdout and not show_diff and not check:
        _print(conversion, notebook)
    from dp2ddp.report.conversion_report import conversion_report

    report = conversion_report(conversion, written, requested=bool(select or ignore))
    _print_report(report, show_diff, as_json, to_stdout)
    write_reports(report, targets, opens, "convert")
    sys.exit(1 if conversion.hazards or check and conversion.changed else 0)


def _print(conversion: Conversion, notebook: bool) -> None:
    """Write the script, or the notebook that starts it, to stdout."""
    from dp2ddp.codemod.result_files import notebook_data, others

    if notebook and conversion.before.cells and not conversion.changed:
        return
    if notebook and conversion.before.cells:
        click.echo(notebook_data(conversion), nl=False)
        return
    if notebook:
        raise click.UsageError("--notebook makes a new notebook out of a notebook")
    if conversion.is_project:
        raise SourceError(
            f"{conversion.before.name}: {others(conversion)}; stdout takes one file: use -o FOLDER"
        )
    if sys.stdout is None:
        raise SourceError("<stdout>: closed; name a file with -o")
    click.echo(conversion.entry.data, nl=False)


def _print_report(report: ConversionReport, show_diff: bool, as_json: bool, to_stdout: bool) -> None:
    """Results go to stdout, remarks to stderr: with --diff, or a script on stdout, the report is a remark."""
    from dp2ddp.report.conversion_json import conversion_json
    from dp2ddp.report.conversion_report import conversion_document
    from dp2ddp.report.text_form import print_document

    if show_diff:
        click.echo(_shown(report.conversion), nl=False)
    if as_json:
        click.echo(conversion_json(report.conversion, report.written), nl=False, err=to_stdout)
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
