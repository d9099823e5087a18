"""`dp2ddp convert`: read a script, convert it, write the result beside it, and say what was done and why."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dp2ddp.cli._scripts import accept
from dp2ddp.errors import SourceError

if TYPE_CHECKING:
    from dp2ddp.codemod.convert import Conversion
    from dp2ddp.source.files import SourceFile

CHOICES = {
    "data": ("share", "shard", "replicate"),
    "join": ("rows", "outputs"),
    "gradients": ("graph", "reducer"),
}


def _codes(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(code.strip().upper() for code in (value or "").split(",") if code.strip())


@click.command("convert")
@click.argument("src")
@click.option(
    "-m", "as_module", is_flag=True, help="SRC is a module, package.train, as `python -m` takes it."
)
@click.option(
    "-o",
    "--output",
    help="Where to write the result (default: NAME_ddp.py beside SRC; - is stdout). "
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
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--data", type=click.Choice(CHOICES["data"]), help="Who loads what (default: the fastest that is proven)."
)
@click.option(
    "--join",
    type=click.Choice(CHOICES["join"]),
    help="What of the outputs each rank gets at once (default: rows; outputs: all of them, however large).",
)
@click.option("--gradients", type=click.Choice(CHOICES["gradients"]), help="How gradients are summed.")
@click.option("--select", callback=_codes, help="Use only these rules (codes or families: DDP5,DDP201).")
@click.option("--ignore", callback=_codes, help="Leave these rules out.")
@accept
@click.option(
    "--one-file", is_flag=True, help="Paste the helpers into the script, instead of ddp_helpers.py beside it."
)
@click.option(
    "--import", "imports", is_flag=True, help="Import the helpers from dp2ddp instead of writing them out."
)
def command(
    src: str, as_module: bool, output: str | None, show_diff: bool, check: bool, in_place: bool,
    notebook: bool, force: bool, as_json: bool, one_file: bool, imports: bool, **asked: object,
) -> None:  # fmt: skip
    """Rewrite the DataParallel script or notebook SRC (- is stdin) as a DistributedDataParallel script.

    Local modules that SRC imports are converted with it.
    """
    # Imported here: `dp2ddp --help` needs none of it.
    from dp2ddp.codemod.convert import Options, convert
    from dp2ddp.codemod.helpers import HelperPlace
    from dp2ddp.codemod.rule import UnknownRuleError
    from dp2ddp.source.entries import other_entries
    from dp2ddp.source.projects import module_file, read_project

    if one_file and imports:
        raise click.UsageError("--one-file pastes the helpers, --import imports them: take one")
    src = str(module_file(src)) if as_module else src
    project = read_project(src, as_module)
    to_stdout = output == "-" or src == "-" and not output
    if output and not to_stdout and _names_file(output, project.entry):
        project = project.written_to(Path(output))
    place = HelperPlace.PACKAGE if imports else HelperPlace.BESIDE
    if one_file or to_stdout and not imports:  # stdout takes one file
        place = HelperPlace.IN_SCRIPT
    try:
        options = Options(**asked, helpers=place, renew_helpers=force)  # type: ignore[arg-type]  # of the same names
        conversion = convert(project, options)
    except UnknownRuleError as error:
        raise click.UsageError(str(error)) from error
    if one_file and conversion.is_project:
        raise SourceError(f"{src}: {_others(conversion)}, and needs the helpers; leave --one-file out")
    if conversion.is_project:
        changed = (one.before.path for one in conversion.files if one.changed)
        conversion = replace(conversion, used_by=other_entries(project, [path for path in changed if path]))
    written = None
    if not show_diff and not check:
        write = _write_notebook if notebook else _write
        written = write(conversion, src, output, in_place, force)
    _tell(conversion, written, show_diff, as_json, to_stdout)
    sys.exit(1 if conversion.hazards or check and conversion.changed else 0)


def _write(conversion: Conversion, src: str, output: str | None, in_place: bool, force: bool) -> str | None:
    """Write the result; returns the script to start, or None if nothing was written to a file."""
    if in_place and (output or src == "-"):
        raise click.UsageError("--in-place writes SRC itself: no -o, and no SRC from stdin")
    if output and output.endswith(".ipynb"):
        raise click.UsageError("a script is written; --notebook writes a notebook")
    if in_place and conversion.before.cells:
        raise SourceError(
            f"{src}: torchrun starts scripts, so a notebook stays as it is; leave --in-place out for a script beside it"
        )
    if in_place:
        return _write_in_place(conversion, force)
    if output == "-" or src == "-" and not output:
        _print(conversion)
        return None
    if not conversion.changed:
        return None
    if conversion.is_project or output and not _names_file(output, conversion.before):
        return _write_project(conversion, output, force)
    target = output or str(conversion.before.beside)
    return _write_data(conversion.entry.data, target, force, conversion.helper_file)


def _names_file(output: str, source: SourceFile) -> bool:
    """Whether `-o` names a file for the script, and no folder for a copy of the project."""
    suffixes = {".py", source.path.suffix if source.path else ""}
    return Path(output).suffix in suffixes and not Path(output).is_dir() and not output.endswith(os.sep)


def _write_notebook(
    conversion: Conversion, src: str, output: str | None, in_place: bool, force: bool
) -> str | None:
    """Write a notebook that writes the script and starts it."""
    from dp2ddp.source.helper_module import FILE
    from dp2ddp.source.launching import launching_notebook

    if in_place or not conversion.before.cells:
        raise click.UsageError("--notebook makes a new notebook out of a notebook")
    if output and output != "-" and not output.endswith(".ipynb"):
        raise click.UsageError("--notebook writes a notebook: name a file that ends in .ipynb")
    if not conversion.changed:
        return None
    if conversion.is_project:
        raise SourceError(
            f"{src}: {_others(conversion)}; use -o FOLDER without --notebook for a converted copy of the whole project"
        )
    path = Path(src)
    target = Path(output) if output and output != "-" else path.with_name(f"{path.stem}_ddp.ipynb")
    name = f"{target.stem}.py"
    helpers = {FILE: conversion.helpers.after} if conversion.helpers else {}
    data = launching_notebook(
        path.read_bytes(), path, conversion.after, name, conversion.launch_with(name), helpers
    )
    if output == "-":
        click.echo(data, nl=False)
        return None
    return _write_data(data, str(target), force)


def _print(conversion: Conversion) -> None:
    if conversion.is_project:
        raise SourceError(
            f"{conversion.before.name}: {_others(conversion)}; stdout takes one file: use -o FOLDER"
        )
    if sys.stdout is None:
        raise SourceError("<stdout>: closed; name a file with -o")
    click.echo(conversion.entry.data, nl=False)


def _write_data(data: bytes, target: str, force: bool, helpers: Mapping[Path, bytes] | None = None) -> str:
    """A file that is there must be asked for to be overwritten; `helpers` are written with it, or nothing is."""
    from dp2ddp.source.writing import write_together

    path = Path(target)
    is_same = path.is_file() and path.read_bytes() == data
    if is_same and not helpers:
        click.echo(f"{target}: up to date", err=True)
        return target
    if not path.parent.is_dir():
        raise SourceError(f"{target}: cannot be written (there is no folder {path.parent})")
    if path.exists() and not force and not is_same:
        raise SourceError(f"{target}: exists already; use --force to overwrite it, or -o to write elsewhere")
    write_together({**(helpers or {}), path: data})
    return target


def _write_project(conversion: Conversion, output: str | None, force: bool) -> str:
    from dp2ddp.source.copies import copy_project

    if output is None:
        raise SourceError(
            f"{conversion.before.name}: {_others(conversion)}; use -o FOLDER for a converted copy of the whole "
            "project, or --in-place"
        )
    if _names_file(output, conversion.before):
        raise SourceError(
            f"{output}: {_others(conversion)}; name a folder with -o, for a copy of the whole project"
        )
    files = {one.before.output: one.data for one in conversion.changed_files if one.before.output}
    copy = copy_project(conversion.before.output, conversion.helper_file | files, Path(output), force)
    if copy.linked:
        shown = ", ".join(map(str, copy.linked[:3])) + (", ..." if len(copy.linked) > 3 else "")
        click.echo(f"links to the originals, so write nothing into them: {shown}", err=True)
    return str(copy.script)


def _write_in_place(conversion: Conversion, force: bool) -> str | None:
    from dp2ddp.source.folders import refuse_unkept, undo_commands
    from dp2ddp.source.writing import write_together

    files = conversion.written_files
    if not force:
        refuse_unkept([path for path in files if path.exists()])
    read = {one.before.path: one.before.data for one in conversion.files}
    if conversion.helpers:
        read[conversion.helpers.before.path] = conversion.helpers.before.data
    write_together(files, {path: data for path, data in read.items() if path and path.exists()})
    if files and not force:
        click.echo(f"undo it with: {' && '.join(undo_commands(list(files)))}", err=True)
    return str(conversion.before.path) if files else None


def _others(conversion: Conversion) -> str:
    names = [one.before.name for one in conversion.modules if one.changed]
    if not names:
        return "other modules import it, so it must keep its name"
    count = f"{len(names)} local module{'s' if len(names) > 1 else ''}"
    shown = ", ".join(os.path.relpath(name) for name in names[:4]) + (", ..." if len(names) > 4 else "")
    return f"{count} must change too ({shown})"


def _tell(
    conversion: Conversion, written: str | None, show_diff: bool, as_json: bool, to_stdout: bool
) -> None:
    """Results go to stdout, remarks to stderr: with --diff, or a script on stdout, the report is a remark."""
    from dp2ddp.report.conversion import conversion_json, conversion_text

    if show_diff:
        click.echo(_shown(conversion), nl=False)
    report = conversion_json(conversion, written) if as_json else conversion_text(conversion, written)
    click.echo(report, nl=False, err=to_stdout or show_diff and not as_json)


def _shown(conversion: Conversion) -> str | bytes:
    """The difference: for eyes on a terminal, in colours (NO_COLOR is honoured); elsewhere whole, byte for byte."""
    if sys.stdout is None or not sys.stdout.isatty():
        diff: bytes = conversion.diff_bytes()
        return diff
    lines = conversion.diff().splitlines(keepends=True)
    if os.environ.get("NO_COLOR"):
        return "".join(lines)
    colours = {"+": "green", "-": "red", "@": "cyan"}
    return "".join(click.style(line, fg=colours[line[0]]) if line[0] in colours else line for line in lines)
