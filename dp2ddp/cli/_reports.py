"""The reports of convert, verify and bench: where they are written, and showing one in a browser."""

from __future__ import annotations

import os
import sys
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dp2ddp.cli import warn
from dp2ddp.options import option

if TYPE_CHECKING:
    from dp2ddp.costs.figures import Benchmark
    from dp2ddp.report.comparison import Report
    from dp2ddp.report.conversion_report import ConversionReport


@dataclass(frozen=True, kw_only=True)
class Results:
    """How the command line gives what was found."""

    as_json: bool = option(False, "The result as JSON (docs/json.md).", "--json")
    targets: Sequence[Path] = option(
        (),
        "Write a report: .html to read, .md for a pull request; may be given several times.",
        "--report",
        metavar="FILE",
        typed="writes a file",
    )
    opens: bool = option(
        False,
        "Open the report in the browser; without --report FILE.html it lies in a temporary folder.",
        "--open",
        typed="starts a browser",
    )

    def check_targets(self) -> None:
        """Before anything runs: a SourceError if a report cannot be written where it is asked for."""
        if self.targets:
            from dp2ddp.report.report_files import check_target

            for target in self.targets:
                check_target(target)

    def write_reports(self, result: ConversionReport | Report | Benchmark, command: str) -> None:
        """Write what is asked for, say where it lies, and open the page."""
        if not self.targets and not self.opens:
            return
        from dp2ddp.report.report_files import PAGES, write_report

        pages = [target for target in self.targets if target.suffix.lower() in PAGES]
        if self.opens and not pages:
            pages = [Path(tempfile.mkdtemp(prefix="dp2ddp-")) / f"{command}.html"]
        for target in dict.fromkeys([*self.targets, *pages]):
            write_report(result, target)
            click.echo(f"report: {target}", err=True)
        if self.opens:
            open_page(pages[0], os.environ)


def open_page(page: Path, variables: Mapping[str, str]) -> None:
    """Open it in the browser; where there is none, say so: whoever sits far away opens it at home."""
    address = page.resolve().as_uri()
    if not (has_screen(variables) and _opened(address, "BROWSER" in variables)):
        warn(f"no browser to open here; open it yourself: {address}")


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
