"""The result of `verify`: the verdict first, then how it was reached; for the terminal, and as JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from dp2ddp.verify.verdict import Verdict

SCHEMA = "dp2ddp.verify/1"


@dataclass(frozen=True)
class Report:
    """All verdicts about a script."""

    script: str
    verdicts: tuple[Verdict, ...]
    launch: str
    seconds: float

    @property
    def same(self) -> bool:
        return all(verdict.same for verdict in self.verdicts)


def as_document(report: Report) -> str:
    """JSON by the schema in docs/json.md."""
    fields: dict[str, Any] = {"schema": SCHEMA, "same": report.same, **dataclasses.asdict(report)}
    return json.dumps(fields, indent=2)


def print_report(report: Report) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for verdict in report.verdicts:
        console.print(dataclasses.asdict(verdict))
