"""`dp2ddp convert`: read a script, convert it, write the result beside it, and say what was done and why."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from dp2ddp.errors import SourceError

CHOICES = {"data": ("replicate", "shard"), "join": ("batch", "outputs"), "gradients": ("graph", "reducer")}


def _codes(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(code.strip().upper() for code in (value or "").split(",") if code.strip())


@click.command("convert")
@click.argument("src")
@click.option(
    "-o", "--output", help="Where to write the result (default: NAME_ddp.py beside SRC; - is stdout)."
)
@click.option("--diff", "show_diff", is_flag=True, help="Print the difference and write nothing.")
@click.option(
    "--check", is_flag=True, help="Write nothing; exit with 1 if SRC would change or a hazard is open."
)
@click.option("--force", is_flag=True, help="Overwrite an output file that is there already.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option(
    "--data", type=click.Choice(CHOICES["data"]), help="Who loads what (default: the fastest that is proven)."
)
@click.option("--join", type=click.Choice(CHOICES["join"]), help="Where the ranks come together.")
@click.option("--gradients", type=click.Choice(CHOICES["gradients"]), help="How gradients are summed.")
@click.option("--select", callback=_codes, help="Use only these rules (codes or families: DDP5,DDP201).")
@click.option("--ignore", callback=_codes, help="Leave these rules out.")
@click.option(
    "--import", "imports", is_flag=True, help="Import the helpers from dp2ddp instead of copying them."
)
def command(
    src: str, output: str | None, show_diff: bool, check: bool, force: bool, as_json: bool, **asked: object
) -> None:
    """Rewrite the DataParallel script SRC (- is stdin) as a DistributedDataParallel script."""
    # Imported here: `dp2ddp --help` needs none of it (TOOLS.md section 4).
    from dp2ddp.codemod.convert import Options, convert
    from dp2ddp.codemod.rule import UnknownRuleError
    from dp2ddp.source.projects import read_project

    project = read_project(src)
    try:
        conversion = convert(project, Options(**asked))  # type: ignore[arg-type]  # the options of the same names
    except UnknownRuleError as error:
        raise click.UsageError(str(error)) from error
    target = None if show_diff or check else _target(src, output)
    written = _write(conversion, target, force) if conversion.changed or target == "-" else None
    _tell(conversion, written, show_diff, as_json, to_stdout=target == "-")
    sys.exit(1 if conversion.hazards or check and conversion.changed else 0)


def _target(src: str, output: str | None) -> str:
    if output:
        return output
    path = Path(src)
    return "-" if src == "-" else str(path.with_name(f"{path.stem}_ddp{path.suffix}"))


def _write(conversion, target: str | None, force: bool) -> str | None:  # type: ignore[no-untyped-def]  # imported late
    """Write the result; returns where to."""
    from dp2ddp.source.files import write_atomically

    if target is None:
        return None
    data = conversion.before.encoded(conversion.after)
    if target == "-":
        if sys.stdout is None:
            raise SourceError("<stdout>: closed; name a file with -o")
        click.echo(data, nl=False)
        return None
    path = Path(target)
    if path.is_file() and path.read_bytes() == data:
        click.echo(f"{target}: up to date", err=True)
        return target
    if path.exists() and not force:
        raise SourceError(f"{target}: exists already; use --force to overwrite it, or -o to write elsewhere")
    write_atomically(path, data)
    return target


def _tell(conversion, written: str | None, show_diff: bool, as_json: bool, to_stdout: bool) -> None:  # type: ignore[no-untyped-def]
    """Results go to stdout, remarks to stderr: with --diff, or a script on stdout, the report is a remark."""
    from dp2ddp.report.conversion import conversion_json, conversion_text

    if show_diff:
        click.echo(_shown(conversion), nl=False)
    report = conversion_json(conversion, written) if as_json else conversion_text(conversion, written)
    click.echo(report, nl=False, err=to_stdout or show_diff and not as_json)


def _shown(conversion) -> str | bytes:  # type: ignore[no-untyped-def]
    """The difference: for eyes on a terminal, in colours (NO_COLOR is honoured); elsewhere whole, byte for byte."""
    from dp2ddp.report.conversion import folded

    if sys.stdout is None or not sys.stdout.isatty():
        diff: bytes = conversion.diff_bytes()
        return diff
    lines = folded(conversion.diff()).splitlines(keepends=True)
    if os.environ.get("NO_COLOR"):
        return "".join(lines)
    colours = {"+": "green", "-": "red", "@": "cyan"}
    return "".join(click.style(line, fg=colours[line[0]]) if line[0] in colours else line for line in lines)
