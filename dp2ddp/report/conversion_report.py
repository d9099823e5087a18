"""A conversion in words: how it went, what to look at, what changed and why, what to do next; and as JSON."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

from dp2ddp.codemod.conversion import Conversion
from dp2ddp.codemod.edits import Hazard
from dp2ddp.codemod.helpers import HelperModule
from dp2ddp.codemod.plans.acceptance import option_text
from dp2ddp.codemod.plans.planned import Planned, listed
from dp2ddp.codemod.rule import all_rules
from dp2ddp.report import result_document as doc
from dp2ddp.report.script_changes import changes_of
from dp2ddp.report.surroundings import surroundings, surroundings_facts
from dp2ddp.report.text_form import document_text
from dp2ddp.source.neighbours import OtherEntry
from dp2ddp.styles import EXACT
from dp2ddp.words import counted, names_text

OF_MISSING = (
    "if that is code of your own, convert again with its folder in PYTHONPATH; a package need not be "
    "installed here"
)
VERSION = 1  # of the JSON (docs/json.md)
_MOST_USES = 3  # files, of each other script


@dataclass(frozen=True)
class ConversionReport:
    """A conversion, and what somebody needs to do it again."""

    conversion: Conversion
    written: str | None  # the script to start; None: nothing was written
    surroundings: Mapping[str, str] = field(default_factory=dict)
    requested: bool = False  # with choices or rules that verify would not take by itself


def conversion_report(
    conversion: Conversion, written: str | None = None, requested: bool = False
) -> ConversionReport:
    """With the command, versions, and digests of all files before and after."""
    digests = [
        each
        for file in conversion.changed_files
        for each in ((file.before.name, file.before.data), (f"{file.before.name} (converted)", file.data))
    ]
    return ConversionReport(conversion, written, dict(surroundings(sys.argv, digests)), requested)


def conversion_text(conversion: Conversion, written: str | None) -> str:
    """What a terminal shows."""
    return document_text(conversion_document(ConversionReport(conversion, written)))


def conversion_document(report: ConversionReport) -> doc.Document:
    """All of it: what needs somebody and what to do next is first."""
    conversion = report.conversion
    word, judged = _outcome(conversion)
    steps = tuple(next_steps(report))
    sections = doc.filled(
        doc.Section("Hazards", tuple(_hazards(conversion)), "hazards", first=True),
        doc.Section("What to do next", (doc.Commands(steps),) if steps else (), "next", first=True),
        doc.Section("What is not the same", tuple(_differences(conversion)), "differences"),
        doc.Section("What changed", tuple(_changes(conversion)), "script"),
        doc.Section("Notes", tuple(_notes(conversion)), "notes"),
        doc.Fold("Rules", _rules(conversion), "rules"),
        doc.Fold(
            "Environment",
            surroundings_facts("Where and how it was converted", report.surroundings),
            "surroundings",
        ),
    )
    return doc.Document(
        command="convert", title=f"{word} · {conversion.before.name}", word=word,
        headline=verdict(conversion, report.written), judged=judged, sections=sections, says_word=True,
    )  # fmt: skip


def _outcome(conversion: Conversion) -> tuple[str, doc.Judged]:
    if conversion.hazards:
        return "OPEN", doc.Judged.BAD
    return ("CONVERTED", doc.Judged.GOOD) if conversion.changed else ("UNCHANGED", doc.Judged.SHOWN)


def verdict(conversion: Conversion, written: str | None) -> str:
    """One line that says how it went."""
    name, opened, answered = conversion.before.name, len(conversion.hazards), len(conversion.accepted)
    hazards = f", {counted(opened, 'hazard')} open" if opened else ""
    hazards += f", {counted(answered, 'hazard')} accepted" if answered else ""
    if not conversion.changed:
        what = "not converted" if opened else "nothing to convert"
        return f"{name}: {what}{hazards}" + " (see the notes)" * bool(conversion.notes and not opened)
    into = f" -> {written}" if written else ""
    return f"{name}{into}: {counted(len(listed(conversion.edits)), 'edit')}{hazards}"


def _hazards(conversion: Conversion) -> Iterator[doc.Block]:
    if conversion.hazards:
        yield doc.Cards(tuple(_card(conversion, each) for each in conversion.hazards))
        yield doc.Paragraph(_how_to_answer(conversion.hazards[0]))
    if conversion.accepted:
        texts = tuple(accepted_text(conversion, each) for each in conversion.accepted)
        yield doc.Items(texts, label="accepted", caption="answered by somebody")


def _card(conversion: Conversion, planned: Planned) -> doc.Card:
    assert isinstance(planned.finding, Hazard)
    title = f"{_place(conversion, planned)}: {planned.because} ({planned.code})"
    return doc.Card("hazard", title, (("", planned.finding.advice),), _source_line(conversion, planned))


def _how_to_answer(first: Planned) -> tuple[str | doc.Code, ...]:
    """What a person does who has looked at a hazard and finds it harmless."""
    comment = doc.Code(f"# dp2ddp: accept[{first.code}] why")
    option = doc.Code(f"--accept {shlex.quote(option_text(first))}")
    return (
        "answer one that is harmless with ",
        comment,
        " on its line, or ",
        option,
        "; dp2ddp verify shows if it is",
    )


def accepted_text(conversion: Conversion, planned: Planned) -> str:
    """A hazard with its answer, in one line."""
    return f"{_place(conversion, planned)}: {planned.because} ({planned.code}), by {planned.acceptance}"


def _place(conversion: Conversion, planned: Planned) -> str:
    """As an editor opens it."""
    return planned.place.in_file(planned.file or conversion.before.name, planned.column)


def _source_line(conversion: Conversion, planned: Planned) -> str:
    """The line of the original that a hazard is about; "" where it is about none."""
    for file in conversion.files:
        if file.plan and any(planned is each for each in file.plan.hazards):
            lines = file.before.text.splitlines()
            return lines[planned.line - 1].strip() if 0 < planned.line <= len(lines) else ""
    return ""


def _differences(conversion: Conversion) -> Iterator[doc.Block]:
    """What a style other than the exact one no longer has in common with DataParallel, and what it has."""
    if not conversion.changed or conversion.style == EXACT:
        return
    if conversion.differences:
        rows = [
            doc.Fact(each.name if each.certain else f"perhaps: {each.name}", each.text)
            for each in conversion.differences
        ]
        yield doc.Facts("no longer the same (dp2ddp verify says DIFFERENT for these)", tuple(rows))
    else:
        yield doc.Paragraph("trains the same, as far as the text tells")
    yield doc.Items(conversion.kept, caption="the same as before")


def _changes(conversion: Conversion) -> Iterator[doc.Block]:
    if not conversion.changed:
        return
    note = f"helpers: {_helpers(conversion.helpers)}" if conversion.helpers else ""
    yield doc.Changes(changes_of(conversion), note)


def _helpers(module: HelperModule) -> str:
    """The module that the script imports, and what became of it."""
    name, lines = Path(module.before.name).name, f"{len(module.after.splitlines()):,} lines"
    if module.is_new:
        return f"{name} beside it, {lines}"
    if module.is_renewed:
        dropped = f"; gone, or other than they were: {', '.join(module.dropped)}" if module.dropped else ""
        return f"{name}, written anew, {lines}{dropped}"
    added = f"{len(module.added)} added" if module.added else "nothing to add"
    kept = f"; as you changed them: {', '.join(module.kept)}" if module.kept else ""
    return f"{name}, which is there already: {added}{kept}"


def _notes(conversion: Conversion) -> Iterator[doc.Block]:
    if conversion.notes:
        places = (f"{each.file}:{each.line}" if each.file else f"{each.place}:" for each in conversion.notes)
        pairs = zip(places, conversion.notes, strict=True)
        yield doc.Items(tuple(f"{at}  {note.because} ({note.code})" for at, note in pairs), label="note")
    if conversion.missing:
        yield doc.Paragraph(f"not found, so not looked at: {', '.join(conversion.missing)}")
        yield doc.Paragraph(OF_MISSING)
    if conversion.used_by:
        yield doc.Items(tuple(_used_by(conversion.used_by)))
        yield doc.Paragraph(_of_users(conversion))
    if conversion.unread:
        yield doc.Items(tuple(f"not read, so not looked at: {module}" for module in conversion.unread))


def _used_by(entries: Sequence[OtherEntry]) -> Iterator[str]:
    """A line for each set of files that other scripts use."""
    users: dict[tuple[Path, ...], list[Path]] = {}
    for entry in entries:
        users.setdefault(entry.uses, []).append(entry.path)
    for uses, paths in users.items():
        more = ", ..." * (len(uses) > _MOST_USES)
        yield f"also used by {names_text(paths)}: {', '.join(map(str, uses[:_MOST_USES]))}{more}"


def _of_users(conversion: Conversion) -> str:
    """What becomes of other scripts that get changed files."""
    if conversion.style != EXACT:
        return "what was changed asks for a rank, so they need torchrun, too; convert into a copy: -o FOLDER"
    return (
        "started with python, they run as before, on one device; to run one on several, convert the project as it "
        "was for that one: dp2ddp convert SCRIPT -o FOLDER"
    )


def next_steps(report: ConversionReport) -> Iterator[doc.Command]:
    """In the order in which they are done."""
    conversion, written = report.conversion, report.written
    if conversion.hazards:
        yield doc.Command(
            purpose="Look at each hazard: change the script, or answer it where it is harmless; then convert again."
        )
        return
    if not conversion.changed:
        return
    if not written:
        yield doc.Command(purpose="Nothing was written yet: convert without --check, --diff and -o -.")
    yield from _verifying(report)
    purpose = "Trains on the GPUs, one process each."
    yield doc.Command("start it with", conversion.launch_of(written), purpose)


def _verifying(report: ConversionReport) -> Iterator[doc.Command]:
    """The command that compares both; none where there is nothing to compare, or no original any more."""
    conversion, written = report.conversion, report.written or ""
    if written == conversion.before.name or conversion.before.path is None:
        return
    # answers that are not in the script: the next command needs them, too
    answers = [each for each in conversion.accepted if each.acceptance and each.acceptance.by != "comment"]
    options = "".join(f" --accept {shlex.quote(option_text(each))}" for each in answers)
    if report.requested or conversion.style != EXACT or conversion.helpers and conversion.helpers.kept:
        if not written.endswith(".py"):
            return  # verify would convert it otherwise
        options = f" --converted {shlex.quote(written)}"
    devices = conversion.world if conversion.world and conversion.world > 1 else 2
    module = conversion.project.entry_module
    script = f"-m {shlex.quote(module)}" if module else shlex.quote(conversion.before.name)
    yield doc.Command(
        "verify it with",
        f"dp2ddp verify {script}{options} -n {devices}",
        f"Trains both versions on {devices} devices and compares every optimizer step. No GPU is needed.",
    )


def _rules(conversion: Conversion) -> tuple[doc.Block, ...]:
    """Each that had something to say."""
    all_planned = (*conversion.edits, *conversion.notes, *conversion.hazards, *conversion.accepted)
    codes = {planned.code for planned in all_planned}
    rows = tuple(doc.Fact(rule.code, rule.summary()) for rule in all_rules() if rule.code in codes)
    caption = "What was at work here; dp2ddp rules CODE says more"
    return (doc.Facts(caption, rows, is_linked=True),) if rows else ()


# ---- as JSON


def conversion_json(conversion: Conversion, written: str | None) -> str:
    """The whole report, for eyes too."""
    return json.dumps(conversion_data(ConversionReport(conversion, written)), indent=2) + "\n"


def conversion_data(report: ConversionReport) -> dict[str, object]:
    """The report as plain data."""
    conversion, written = report.conversion, report.written
    return {
        "version": VERSION,
        "file": conversion.before.name,
        "written": written,
        "changed": conversion.changed,
        "world": conversion.world,
        "launch": conversion.launch_of(written) if conversion.changed else None,
        "style": conversion.style,
        "differences": list(map(asdict, conversion.differences)),
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


@lru_cache
def _names_of_rules() -> dict[str, str]:
    return {rule.code: rule.name for rule in all_rules()}


class _Planned(TypedDict):
    code: str
    file: str | None
    cell: int | None
    line: int
    column: int
    why: str
    because: str


class Accepted(_Planned):
    """A hazard that a person answered, as data."""

    advice: str
    by: str  # comment, option
    reason: str
    text: str


def _as_data(planned: Planned) -> _Planned:
    return {
        "code": planned.code,
        "file": planned.file,
        "cell": planned.place.cell,
        "line": planned.place.line,
        "column": planned.column,
        "why": planned.why or _names_of_rules()[planned.code],
        "because": planned.because,
    }


def accepted_data(conversion: Conversion, planned: Planned) -> Accepted:
    """A hazard with its answer; `text` is all of it in words."""
    assert planned.acceptance
    return {
        **_as_data(planned),
        "advice": _advice(planned),
        "by": planned.acceptance.by,
        "reason": planned.acceptance.reason,
        "text": accepted_text(conversion, planned),
    }


def _advice(planned: Planned) -> str:
    return planned.finding.advice if isinstance(planned.finding, Hazard) else ""
