"""The reports of convert, verify and bench: where they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

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

    def check_targets(self) -> None:
        """Before anything runs: a SourceError if a report cannot be written where it is asked for."""
        if self.targets:
            from dp2ddp.report.report_files import check_target

            for target in self.targets:
                check_target(target)

    def write_reports(self, result: ConversionReport | Report | Benchmark) -> None:
        """Write what is asked for, and say where it lies."""
        if self.targets:
            from dp2ddp.report.report_files import write_report

            for target in dict.fromkeys(self.targets):
                write_report(result, target)
                click.echo(f"report: {target}", err=True)
