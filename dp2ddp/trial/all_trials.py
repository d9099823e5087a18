"""All trials of a script: on each number of devices, one after the other, and the report about them: verdicts, what
became of the script, where it ran."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import cast

from dp2ddp.comparison.verdict import Verdict
from dp2ddp.errors import RunError
from dp2ddp.options import VerifyOptions
from dp2ddp.progress import Within
from dp2ddp.report.comparison import Report
from dp2ddp.report.conversion_report import Accepted, accepted_data
from dp2ddp.report.failure_text import Failed
from dp2ddp.report.script_changes import ScriptChange, changes_of
from dp2ddp.report.surroundings import surroundings
from dp2ddp.runtime.process.scratch import remove_folder, scratch_folder
from dp2ddp.runtime.process.server import Server
from dp2ddp.source.read_source import read_source
from dp2ddp.trial.launches import run_with_advice
from dp2ddp.trial.prepare import SEED
from dp2ddp.trial.runs import environment
from dp2ddp.trial.subject import Subject, subject_of
from dp2ddp.words import counted

_LOST = (
    "nothing was compared: DataParallel's losses are NaN or infinite from the first step on, and so is all that "
    "follows; give verify data and arguments with which the script trains"
)
_NOTHING = (
    "nothing was compared: neither version takes an optimizer step, calls backward, prints a line or leaves a file; "
    "give verify arguments with which they do"
)
_FAILED = (
    "nothing was compared: both versions fail before the first optimizer step; give verify arguments with which they "
    "train"
)


def verify(options: VerifyOptions) -> tuple[Report, RunError | None]:
    """Run and compare a script's two versions on each number of devices, in scratch copies of the working folder.

    Returns the report, and the error after which nothing more could be tried (its verdicts are those before it).
    Raises HazardError if the script cannot be converted without its owner, SourceError if it cannot be read.
    """
    started, progress = time.monotonic(), options.progress
    with scratch_folder() as scratch, Server(environment()) as server:
        progress.begin(
            f"converting {options.script}" if options.converted is None else f"reading {options.script}"
        )
        subject = subject_of(options)
        verdicts, failure = [], None
        numbers = subject.worlds
        for place, number in enumerate(numbers, 1):
            of_several = f" ({place} of {len(numbers)})" * (len(numbers) > 1)
            here = Within(progress, counted(number, "device") + of_several)
            room = scratch / str(number)
            room.mkdir()
            try:
                verdict = run_with_advice(subject, number, server, room, here)
                verdicts.append(verdict)
                if verdict.compared_nothing:
                    why = _LOST if verdict.lost else _FAILED if verdict.codes[0] else _NOTHING
                    raise RunError(f"{options.script}: {why}{how_it_ended(verdict)}")
            except RunError as error:
                failure = error
                break
            remove_folder(room)  # hundreds of megabytes, of which the verdict needs nothing
    progress.begin("writing the report")
    seconds = time.monotonic() - started
    return report_on(subject, str(options.script), verdicts, seconds, failure), failure


def how_it_ended(verdict: Verdict) -> str:
    """A script that lacks an argument ends with 2, and says so on stderr."""
    words = "".join(f": {line.strip()}" for line in verdict.last_words[-1:])
    return f". It ends with exit code {verdict.codes[0]}{words}" if verdict.codes[0] else ""


def report_on(
    subject: Subject, script: str, verdicts: Sequence[Verdict], seconds: float, failure: RunError | None
) -> Report:
    """`script` as the user named it; `failure` is why there is no further verdict."""
    made = subject.version.conversion
    changes = changes_of(made) if made else ()
    if not made:  # a version of the user's own: what differs, without reasons
        after = subject.version.data.decode("utf-8", "replace")
        before = read_source(subject.script).text
        changes = (ScriptChange(subject.name, before, after),)
    return Report(
        script=script,
        verdicts=tuple(verdicts),
        launch=subject.version.launch,
        convert=subject.convert,
        seconds=seconds,
        port=str(subject.port or ""),
        changes=changes,
        accepted=_accepted(subject),
        surroundings=surroundings_of(subject),
        failure=str(failure or ""),
        failed=cast("Failed | None", failure.details) if failure else None,
    )


def surroundings_of(subject: Subject) -> Mapping[str, str]:
    """Where and how it was verified; with the hazards that were accepted."""
    name = subject.version.name  # in a project both have the script's
    files = [
        (subject.name, subject.script.read_bytes()),
        (f"{name} (converted)" if name == subject.name else name, subject.version.data),
    ]
    accepted = "; ".join(answer["text"] for answer in _accepted(subject))
    known = dict(surroundings(sys.argv, files, SEED))
    return {**known, "accepted hazards": accepted} if accepted else known


def _accepted(subject: Subject) -> tuple[Accepted, ...]:
    """The hazards of our conversion that a person has answered."""
    made = subject.version.conversion
    return tuple(accepted_data(made, answer) for answer in made.accepted) if made else ()
