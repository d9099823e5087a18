"""A conversion in words: for a terminal, and as JSON (schema version 1, docs/json.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from dp2ddp.codemod.convert import Conversion
from dp2ddp.codemod.edits import Hazard
from dp2ddp.codemod.facts.script import HELPERS_END, HELPERS_START
from dp2ddp.codemod.plan import Planned
from dp2ddp.codemod.strategy import Choice

VERSION = 1

_HELPERS = re.compile(
    rf"^\+{re.escape(HELPERS_START)}.*\n(?:\+.*\n)*?\+{re.escape(HELPERS_END)}.*\n", re.MULTILINE
)


def conversion_text(conversion: Conversion, written: str | None) -> str:
    """The whole report."""
    return "\n".join(_lines(conversion, written)) + "\n"


def _lines(conversion: Conversion, written: str | None) -> Iterator[str]:
    yield verdict(conversion, written)
    strategy = conversion.strategy
    if strategy and conversion.changed:
        yield ""
        yield from (
            _choice(kind, one)
            for kind, one in (
                ("data", strategy.data),
                ("join", strategy.join),
                ("gradients", strategy.gradients),
            )
        )
        yield ""
        yield from (f"  {_place(one)}  {one.because} ({one.code})" for one in _merged(conversion.edits))
    if conversion.notes:
        yield ""
        yield from (f"note    {_place(one)}  {one.because} ({one.code})" for one in conversion.notes)
    if conversion.missing:
        yield ""
        yield f"not found, so not looked at: {', '.join(conversion.missing)}"
    if conversion.used_by:
        yield ""
        yield from _used_by(conversion)
    if conversion.unread:
        yield ""
        yield from (f"not read, so not looked at: {one}" for one in conversion.unread)
    if conversion.hazards:
        yield ""
        yield from (line for one in conversion.hazards for line in _hazard(conversion, one))
    if conversion.changed and (written or not conversion.hazards):
        yield ""
        yield _start(conversion, written)


def _start(conversion: Conversion, written: str | None) -> str:
    launch = f"start it with: {conversion.launch_of(written)}"
    return (
        launch + " (the last cell does, when all cells run)" if (written or "").endswith(".ipynb") else launch
    )


def _used_by(conversion: Conversion) -> Iterator[str]:
    """Which other scripts get changed files, and what becomes of them."""
    for one in conversion.used_by:
        uses = ", ".join(map(str, one.uses[:3])) + (", ..." if len(one.uses) > 3 else "")
        yield f"used by {one.path}, too: {uses}"
    yield "        started with python, they run as before, on one device; to run one on several, convert the project"
    yield "        as it was for that one: dp2ddp convert SCRIPT -o FOLDER"


def verdict(conversion: Conversion, written: str | None) -> str:
    """One line that says how it went."""
    name, open_ones = conversion.before.name, len(conversion.hazards)
    if not conversion.changed and not open_ones:
        return f"{name}: nothing to convert" + (" (see the notes)" if conversion.notes else "")
    hazards = f"{open_ones} hazard{'s' if open_ones > 1 else ''} open" if open_ones else ""
    if not conversion.changed:
        return f"{name}: not converted, {hazards}"
    count = len(conversion.edits)
    into = f" -> {written}" if written else ""
    return f"{name}{into}: {count} edit{'s' if count > 1 else ''}" + (f", {hazards}" if hazards else "")


def _choice(kind: str, choice: Choice) -> str:
    return f"  {kind}: {choice.value}, because {choice.because}"


def _place(planned: Planned) -> str:
    return f"{planned.file}:{planned.line}" if planned.file else f"{planned.place}:"


def _merged(edits: tuple[Planned, ...]) -> list[Planned]:
    """One line where a rule does several small things to one line of the script."""
    return list({(one.code, one.line, one.because): one for one in edits}.values())


def _hazard(conversion: Conversion, planned: Planned) -> Iterator[str]:
    finding = planned.finding
    assert isinstance(finding, Hazard)
    file = planned.file or conversion.before.name
    yield f"hazard  {planned.place.in_file(file, planned.column)}: {finding.message} ({planned.code})"
    yield f"        {finding.advice}"


def folded(diff: str) -> str:
    """A difference with the copied helpers, hundreds of lines, as one."""
    return _HELPERS.sub(
        lambda match: f"+ ... {match[0].count(chr(10))} lines of helpers copied from dp2ddp.templates\n", diff
    )


def conversion_json(conversion: Conversion, written: str | None) -> str:
    """The same as JSON."""
    strategy = conversion.strategy
    choices = (
        {"data": strategy.data, "join": strategy.join, "gradients": strategy.gradients} if strategy else {}
    )
    document = {
        "version": VERSION,
        "file": conversion.before.name,
        "written": written,
        "changed": conversion.changed,
        "world": conversion.world,
        "launch": conversion.launch_of(written) if conversion.changed else None,
        "strategy": {kind: {"value": one.value, "because": one.because} for kind, one in choices.items()},
        "edits": [_as_data(one) for one in conversion.edits],
        "notes": [_as_data(one) for one in conversion.notes],
        "used_by": [
            {"file": str(one.path), "uses": [str(use) for use in one.uses]} for one in conversion.used_by
        ],
        "missing": list(conversion.missing),
        "unread": list(conversion.unread),
        "hazards": [{**_as_data(one), "advice": _advice(one)} for one in conversion.hazards],
    }
    return json.dumps(document, indent=2) + "\n"


def _as_data(planned: Planned) -> dict[str, object]:
    return {
        "code": planned.code,
        "file": planned.file,
        "cell": planned.place.cell,
        "line": planned.place.line,
        "column": planned.column,
        "because": planned.because,
    }


def _advice(planned: Planned) -> str:
    return planned.finding.advice if isinstance(planned.finding, Hazard) else ""
