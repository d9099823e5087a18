"""The mutation suite as a table: `python -m tests.mutations [BASE or NAME ...]`."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutations.faults import FAULTS
from tests.mutations.harmless import HARMLESS
from tests.mutations.results import Result
from tests.mutations.suite import Change, Suite


def main(words: Sequence[str]) -> int:
    faults = [fault for fault in FAULTS if _wanted(fault.change, words)]
    variants = [change for change in HARMLESS if _wanted(change, words)]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dp2ddp-") as scratch, Suite(Path(scratch)) as suite:
        verdicts = suite.judge_all([fault.change for fault in faults])
        results = [Result(fault, verdict) for fault, verdict in zip(faults, verdicts, strict=True)]
        for result in results:
            print(result.line)
        alarms = [
            change.name
            for change, verdict in zip(variants, suite.judge_all(variants), strict=True)
            if isinstance(verdict, str) or not verdict.same
        ]
    for name in alarms:
        print(f"FALSE ALARM {name}")
    found, right = (sum(getattr(each, key) for each in results) for key in ("is_detected", "is_right"))
    print(f"{len(results)} faults: {found} found at their step, {right} with the right first cause")
    print(
        f"{len(variants)} harmless variants: {len(alarms)} false alarms; {time.monotonic() - started:.0f} s"
    )
    return int(found < len(results) or bool(alarms))


def _wanted(change: Change, words: Sequence[str]) -> bool:
    return not words or any(word == change.base or word in change.name for word in words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
