"""What differs from process to process: clocks, process ids, fresh names; and where it matters.

A clock that only measures (differences that are printed) may differ between ranks. One that makes a name, a seed or a
decision may not: clock_course.py follows it.
"""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.facts.clock_course import Course
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.script import CallSite, Script
from dp2ddp.codemod.facts.tables import of

CLOCKS = {
    *of("time", "time perf_counter monotonic process_time time_ns clock perf_counter_ns"),
    *("timeit.default_timer", "datetime.datetime.now", "datetime.datetime.utcnow"),
}
CALENDAR = {  # what makes a date, and where it takes a time that is given
    **{"time.strftime": 1, "time.ctime": 0, "time.asctime": 0, "time.localtime": 0, "time.gmtime": 0},
    **{"datetime.date.today": 9},
}
IDENTITIES = ("uuid.uuid1", "uuid.uuid4", "os.getpid")  # always another in another process


def shared_clocks(script: Script, modules: Modules) -> Iterator[CallSite]:
    """The calls whose result every rank must have alike."""
    for call in script.calls:
        is_identity = call.name in IDENTITIES
        is_clock = call.name in CLOCKS or call.name in CALENDAR and not _has_time_argument(call)
        if is_identity or is_clock and Course(modules).matters(script, call.node):
            yield call


def _has_time_argument(call: CallSite) -> bool:
    """`strftime(format, t)` formats a time that is given: nothing of its own comes in."""
    position = CALENDAR.get(call.name or "")
    return position is not None and len(call.node.args) > position
