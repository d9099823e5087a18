"""The reports of convert, verify and bench: where they are written, and showing one in a browser."""

from __future__ import annotations

import os
import sys
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dp2ddp.costs.result import Benchmark
    from dp2ddp.report.comparison import Report
    from dp2ddp.report.conversion_report import ConversionReport

json_option = click.option("--json", "as_json", is_flag=True, help="The result as JSON (docs/json.md).")
report_option = click.option(
    "--report",
    "targets",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Write a report: .html to read, .md for a pull request; may be given several times.",
)
open_option = click.option(
    "--open",
    "opens",
    is_flag=True,
    help="Open the report in the browser; without --report FILE.html it lies in a temporary folder.",
)


def check_targets(targets: Sequence[Path]) -> None:
    """Before anything runs: a SourceError if a report cannot be written where it is asked for."""
    if targets:
        from dp2ddp.report.report_files import check_target

        for target in targets:
            check_target(target)


def write_reports(
    result: ConversionReport | Report | Benchmark, targets: Sequence[Path], opens: bool, command: str
) -> None:
    """Write what is asked for, say where it lies, and open the page."""
    if not targets and not opens:
        return
    from dp2ddp.report.report_files import PAGES, write_report

    pages = [target for target in targets if target.suffix.lower() in PAGES]
    if opens and not pages:
        pages = [Path(tempfile.mkdtemp(prefix="dp2ddp-")) / f"{command}.html"]
    for target in dict.fromkeys([*targets, *pages]):
        write_report(result, target)
        click.echo(f"report: {target}", err=True)
    if opens:
        open_page(pages[0], os.environ)


def open_page(page: Path, variables: Mapping[str, str]) -> None:
    """Open it in the browser; where there is none, say so: whoever sits far away opens it at home."""
    address = page.resolve().as_uri()
    if not (has_screen(variables) and _opened(address, "BROWSER" in variables)):
        click.echo(f"dp2ddp: no browser to open here; open it yourself: {address}", err=True)


def has_screen(variables: Mapping[str, str], system: str = sys.platform) -> bool:
    """Whether a browser would be seen by who asks for it; $BROWSER knows better than anybody (VS Code sets it)."""
    if variables.get("BROWSER"):
        return True
    if system in ("darwin", "win32"):
        return "SSH_CONNECTION" not in variables
    return bool(variables.get("DISPLAY") or variables.get("WAYLAND_DISPLAY"))


def _opened(address: str, chosen: bool) -> bool:
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    if type(browser) is webbrowser.GenericBrowser and not chosen:
        return False  # a browser of text, which would take this terminal
    return browser.open(address)
