"""A conversion in words: for a terminal, and as JSON (schema version 1, docs/json.md)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

from dp2ddp.codemod.choices import EXACT
from dp2ddp.codemod.conversion import Conversion
from dp2ddp.codemod.edits import Hazard
from dp2ddp.codemod.helpers import HelperModule
from dp2ddp.codemod.plans.acceptance import option_text
from dp2ddp.codemod.plans.planned import Planned, listed

VERSION = 1
OF_MISSING = (
    "if that is code of your own, convert again with its folder in PYTHONPATH; a package need not be "
    "installed here"
)


def conversion_text(conversion: Conversion, written: str | None) -> str:
    """The whole report."""
    return "\n".join(_lines(conversion, written)) + "\n"


def _lines(conversion: Conversion, written: str | None) -> Iterator[str]:
    yield verdict(conversion, written)
    if conversion.changed:
        if conversion.style != EXACT:
            yield ""
            yield from _differences(conversion)
        if conversion.helpers:
            yield ""
            yield f"  helpers: {_helpers(conversion.helpers)}"
        yield ""
        yield from (f"  {_place(edit)}  {edit.because} ({edit.code})" for edit in listed(conversion.edits))
    if conversion.notes:
        yield ""
        yield from (f"note    {_place(note)}  {note.because} ({note.code})" for note in conversion.notes)
    if conversion.missing:
        yield ""
        yield f"not found, so not looked at: {', '.join(conversion.missing)}"
        yield f"        {OF_MISSING}"
    if conversion.used_by:
        yield ""
        yield from _used_by(conversion)
    if conversion.unread:
        yield ""
        yield from (f"not read, so not looked at: {module}" for module in conversion.unread)
    if conversion.accepted:
        yield ""
        yield from _accepted_lines(conversion)
    if conversion.hazards:
        yield ""
        yield from (line for hazard in conversion.hazards for line in _hazard(conversion, hazard))
        yield ""
        yield from _how_to_answer(conversion.hazards)
    if conversion.changed and (written or not conversion.hazards):
        yield ""
        yield _start(conversion, written)
        if conversion.style != EXACT and written:
            yield f"measure it: dp2ddp verify {shlex.quote(conversion.before.name)} --converted {shlex.quote(written)}"


def _differences(conversion: Conversion) -> Iterator[str]:
    """What a style other than the exact one no longer has in common with DataParallel, and what it has."""
    if conversion.differences:
        yield "  no longer the same (dp2ddp verify says DIFFERENT for these):"
    yield from (
        f"    {'' if difference.certain else 'perhaps: '}{difference.name}: {difference.text}"
        for difference in conversion.differences
    )
    if not conversion.differences:
        yield "  trains the same, as far as the text tells"
    yield "  the same as before:"
    yield from (f"    {line}" for line in conversion.kept)


def _helpers(module: HelperModule) -> str:
    """The module that the script imports, and what became of it."""
    name = Path(module.before.name).name
    if module.is_new:
        return f"{name} beside it, {len(module.after.splitlines()):,} lines"
    if module.is_renewed:
        return f"{name}, written anew, {len(module.after.splitlines()):,} lines{_dropped(module)}"
    added = f"{len(module.added)} added" if module.added else "nothing to add"
    kept = f"; as you changed them: {', '.join(module.kept)}" if module.kept else ""
    return f"{name}, which is there already: {added}{kept}"


def _dropped(module: HelperModule) -> str:
    return f"; gone, or other than they were: {', '.join(module.dropped)}" if module.dropped else ""


def _start(conversion: Conversion, written: str | None) -> str:
    launch = f"start it with: {conversion.launch_of(written)}"
    return (
        launch + " (the last cell does, when all cells run)" if (written or "").endswith(".ipynb") else launch
    )


def _used_by(conversion: Conversion) -> Iterator[str]:
    """Which other scripts get changed files, and what becomes of them."""
    for entry in conversion.used_by:
        uses = ", ".join(map(str, entry.uses[:3])) + (", ..." if len(entry.uses) > 3 else "")
        yield f"used by {entry.path}, too: {uses}"
    if conversion.style != EXACT:
        yield "        what was changed asks for a rank, so they need torchrun, too; convert into a copy: -o FOLDER"
        return
    yield "        started with python, they run as before, on one device; to run one on several, convert the project"
    yield "        as it was for that one: dp2ddp convert SCRIPT -o FOLDER"


def verdict(conversion: Conversion, written: str | None) -> str:
    """One line that says how it went."""
    name, open_ones = conversion.before.name, len(conversion.hazards)
    hazards = _hazard_counts(open_ones, len(conversion.accepted))
    if not conversion.changed and not open_ones:
        return f"{name}: nothing to convert{hazards}" + (" (see the notes)" if conversion.notes else "")
    if not conversion.changed:
        return f"{name}: not converted{hazards}"
    count = len(listed(conversion.edits))
    into = f" -> {written}" if written else ""
    return f"{name}{into}: {count} edit{'s' if count > 1 else ''}{hazards}"


def _hazard_counts(open_ones: int, accepted: int) -> str:
    counts = f", {open_ones} hazard{'s' if open_ones > 1 else ''} open" if open_ones else ""
    return counts + (f", {accepted} hazard{'s' if accepted > 1 else ''} accepted" if accepted else "")


def _place(planned: Planned) -> str:
    return f"{planned.file}:{planned.line}" if planned.file else f"{planned.place}:"


def _hazard(conversion: Conversion, planned: Planned) -> Iterator[str]:
    finding = planned.finding
    assert isinstance(finding, Hazard)
    file = planned.file or conversion.before.name
    yield f"hazard  {planned.place.in_file(file, planned.column)}: {finding.message} ({planned.code})"
    yield f"        {finding.advice}"


def _accepted_lines(conversion: Conversion) -> Iterator[str]:
    """The hazards that somebody answered: what, how, why."""
    for answer in conversion.accepted:
        yield f"accepted  {accepted_text(conversion, answer)}"


def accepted_text(conversion: Conversion, planned: Planned) -> str:
    """A hazard with its answer, in one line."""
    where = planned.place.in_file(planned.file or conversion.before.name, planned.column)
    return f"{where}: {planned.because} ({planned.code}), by {planned.acceptance}"


def _how_to_answer(hazards: tuple[Planned, ...]) -> Iterator[str]:
    """What a person does who has looked at a hazard and finds it harmless."""
    first = hazards[0]
    comment, option = f"`# dp2ddp: accept[{first.code}] why`", f"--accept {shlex.quote(option_text(first))}"
    yield f"answer one that is harmless with {comment} on its line, or {option}; dp2ddp verify shows if it is"


def conversion_json(conversion: Conversion, written: str | None) -> str:
    """The same as JSON."""
    document = {
        "version": VERSION,
        "file": conversion.before.name,
        "written": written,
        "changed": conversion.changed,
        "world": conversion.world,
        "launch": conversion.launch_of(written) if conversion.changed else None,
        "style": conversion.style,
        "differences": [
            {
                "name": difference.name,
                "text": difference.text,
                "certain": difference.certain,
                "causes": list(difference.causes),
            }
            for difference in conversion.differences
        ],
        "kept": list(conversion.kept),
        "helpers": _helpers_as_data(conversion.helpers),
        "edits": [_as_data(edit) for edit in conversion.edits],
        "notes": [_as_data(note) for note in conversion.notes],
        "used_by": [
            {"file": str(entry.path), "uses": [str(use) for use in entry.uses]}
            for entry in conversion.used_by
        ],
        "missing": list(conversion.missing),
        "unread": list(conversion.unread),
        "hazards": [{**_as_data(hazard), "advice": _advice(hazard)} for hazard in conversion.hazards],
        "accepted": [accepted_data(conversion, answer) for answer in conversion.accepted],
    }
    return json.dumps(document, indent=2) + "\n"


def _helpers_as_data(module: HelperModule | None) -> dict[str, object] | None:
    if module is None:
        return None
    return {
        "file": module.before.name,
        "lines": len(module.after.splitlines()),
        "added": list(module.added),
        "kept": list(module.kept),
        "dropped": list(module.dropped),
    }


def _as_data(planned: Planned) -> dict[str, object]:
    return {
        "code": planned.code,
        "file": planned.file,
        "cell": planned.place.cell,
        "line": planned.place.line,
        "column": planned.column,
        "because": planned.because,
    }


def accepted_data(conversion: Conversion, planned: Planned) -> dict[str, object]:
    """A hazard with its answer; `text` is all of it in words."""
    assert planned.acceptance
    answer = {"by": planned.acceptance.by, "reason": planned.acceptance.reason}
    return {
        **_as_data(planned),
        "advice": _advice(planned),
        **answer,
        "text": accepted_text(conversion, planned),
    }


def _advice(planned: Planned) -> str:
    return planned.finding.advice if isinstance(planned.finding, Hazard) else ""
