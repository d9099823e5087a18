"""What is told of a trial: its verdicts, what became of the script, and where it ran."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from dp2ddp.comparison.verdict import Verdict
from dp2ddp.errors import RunError
from dp2ddp.report.comparison import Report
from dp2ddp.report.conversion_json import accepted_data
from dp2ddp.report.script_changes import ScriptChange, changes_of
from dp2ddp.report.surroundings import surroundings
from dp2ddp.source.read_source import read_source
from dp2ddp.trial.prepare import SEED
from dp2ddp.trial.subject import Subject


def report_on(
    subject: Subject, script: str, verdicts: Sequence[Verdict], seconds: float, failure: RunError | None
) -> Report:
    """`script` as the user named it; `failure` is why there is no further verdict."""
    made = subject.version.conversion
    return Report(
        script=script,
        verdicts=tuple(verdicts),
        launch=subject.version.launch,
        convert=subject.convert,
        seconds=seconds,
        port=str(subject.port or ""),
        changes=changes_of(made) if made else (_by_hand(subject),),
        accepted=_accepted(subject),
        surroundings=surroundings_of(subject),
        failure=str(failure or ""),
        failed=failure.details if failure else None,
    )


def _by_hand(subject: Subject) -> ScriptChange:
    """A version of the user's own: what differs, without reasons."""
    after = subject.version.data.decode("utf-8", "replace")
    return ScriptChange(subject.name, subject.version.name, read_source(subject.script).text, after)


def surroundings_of(subject: Subject) -> tuple[tuple[str, str], ...]:
    """Where and how it was verified, as (name, value); with the hazards that were accepted."""
    files = [(subject.name, subject.script.read_bytes()), (subject.version.name, subject.version.data)]
    accepted = "; ".join(str(answer["text"]) for answer in _accepted(subject))
    return *surroundings(sys.argv, SEED, files), *((("accepted hazards", accepted),) if accepted else ())


def _accepted(subject: Subject) -> tuple[Mapping[str, object], ...]:
    """The hazards of our conversion that a person has answered."""
    made = subject.version.conversion
    return tuple(accepted_data(made, answer) for answer in made.accepted) if made else ()
