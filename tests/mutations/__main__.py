"""The mutation suite as a table: `python -m tests.mutations [--world W] [BASE or NAME ...]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from dp2ddp.runtime.process.server import Server
from dp2ddp.trial.runs import environment
from tests.mutations.faults import FAULTS
from tests.mutations.harmless import HARMLESS
from tests.mutations.results import Result, alarm
from tests.mutations.suite import Change, Suite


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    faults = [fault for fault in FAULTS if _wanted(fault.change, options.words)]
    variants = [change for change in HARMLESS if _wanted(change, options.words)]
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="dp2ddp-") as scratch,
        Server(environment()) as server,
        Suite(server, Path(scratch), options.world) as suite,
    ):
        found = {each.name: alarm(v) for each, v in zip(variants, suite.judge_all(variants), strict=True)}
        alarms = {name: what for name, what in found.items() if what}
        for name, what in alarms.items():
            print(f"FALSE ALARM {name}: {what}", flush=True)
        results = [
            Result(fault, verdict)
            for fault, verdict in zip(
                faults, suite.judge_all([fault.change for fault in faults]), strict=True
            )
        ]
    for result in results:
        print(result.line)
    detected, right = (sum(getattr(each, key) for each in results) for key in ("is_detected", "is_right"))
    print(f"{len(variants)} harmless variants: {len(alarms)} false alarms")
    print(f"{len(results)} faults: {detected} found at their step, {right} with the right first cause")
    print(f"{options.world} devices, {time.monotonic() - started:.0f} s")
    return int(detected < len(results) or bool(alarms))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument(
        "words", nargs="*", metavar="BASE or NAME", help="only these bases, or names with this in them"
    )
    parser.add_argument("--world", type=int, default=2, metavar="W", help="number of devices (default: 2)")
    return parser


def _wanted(change: Change, words: Sequence[str]) -> bool:
    return not words or any(word == change.base or word in change.name for word in words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
