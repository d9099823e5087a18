"""All trials of a script: on each number of devices, one after the other, and the report about them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dp2ddp.errors import RunError
from dp2ddp.report.comparison import Report
from dp2ddp.runtime.server import Server
from dp2ddp.trial.launches import try_as_asked
from dp2ddp.trial.runs import environment
from dp2ddp.trial.subject import subject_of
from dp2ddp.trial.told import report_on
from dp2ddp.trial.wanted import Wanted

_NOTHING = (
    "nothing was compared: neither version takes an optimizer step, calls backward, prints a line or leaves a file; "
    "give verify arguments with which they do"
)
See = Callable[[str], None]


def silent(text: str) -> None:
    """For those who want to be told nothing on the way."""


def verify(wanted: Wanted, see: See = silent, warn: See = silent) -> tuple[Report, RunError | None]:
    """What was found, and why it was not more. `see` is told of each run that ends, `warn` of what had to be mended."""
    started = time.monotonic()
    with Server(environment()) as server, tempfile.TemporaryDirectory(prefix="dp2ddp-") as scratch:
        subject = subject_of(wanted, warn)
        verdicts, failure = [], None
        for number in wanted.devices or (subject.world or 2,):
            try:
                subject, verdict = try_as_asked(subject, number, server, Path(scratch).resolve(), see)
                verdicts.append(verdict)
                if verdicts[-1].compared_nothing:
                    raise RunError(f"{wanted.script}: {_NOTHING}")
            except RunError as error:
                failure = error
                break
    seconds = time.monotonic() - started
    return report_on(subject, str(wanted.script), verdicts, seconds, failure), failure
