"""The result of `convert` for a pull request: what is open, what to do next, what was decided; the rest folded."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.choices import EXACT
from dp2ddp.report.conversion import OF_MISSING, accepted_text
from dp2ddp.report.conversion_report import (
    ConversionReport,
    how_to_answer,
    next_steps,
    place_of,
    rules_of,
    written_files,
)
from dp2ddp.report.markdown_parts import facts_table, folded, folded_changes, inline_code, plain
from dp2ddp.report.script_changes import changes_of

_MARKS = {"CONVERTED": "✅", "OPEN": "❌", "UNCHANGED": "–"}
_MOST = 30  # of a list


def markdown(report: ConversionReport) -> str:
    """The whole text."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: ConversionReport) -> Iterator[str]:
    yield f"## {_MARKS[report.word]} {report.word}: {plain(report.verdict)}"
    yield from _hazards(report)
    steps, files = list(next_steps(report)), list(written_files(report))
    if steps:
        yield from ("", "### What to do next", "")
        for step in steps:
            yield (
                f"- {inline_code(step.command)}: {plain(step.words)}"
                if step.command
                else f"- {plain(step.words)}"
            )
    if files:
        yield from ("", "| file | |", "|---|---|")
        yield from (f"| {plain(file)} | {plain(words)} |" for file, words in files)
    yield from _decided(report)
    yield ""
    yield from folded_changes(changes_of(report.conversion))
    yield from _notes(report)
    rules = rules_of(report.conversion)
    if rules:
        yield from folded("Rules", facts_table(rules))
        yield ""
    yield from folded("Environment", facts_table(report.surroundings))


def _hazards(report: ConversionReport) -> Iterator[str]:
    conversion = report.conversion
    for hazard, answer in ((each, how_to_answer(each)) for each in conversion.hazards[:_MOST]):
        yield ""
        yield f"**Hazard: {plain(hazard.because)}** ({hazard.code})"
        yield ""
        yield f"- {plain(place_of(conversion, hazard))}"
        yield f"- **what to do:** {plain(hazard.finding.advice)}"  # type: ignore[union-attr]  # a hazard has one
        yield f"- if it is harmless: {inline_code(answer[0])} on its line, or {inline_code(answer[1])}"
    if len(conversion.hazards) > _MOST:
        yield from ("", f"{len(conversion.hazards) - _MOST} more hazards")
    if conversion.accepted:
        yield ""
        yield from (f"- accepted: {plain(accepted_text(conversion, each))}" for each in conversion.accepted)


def _decided(report: ConversionReport) -> Iterator[str]:
    conversion = report.conversion
    if not conversion.changed or conversion.style == EXACT:
        return
    yield from ("", "### What was decided", "")
    yield f"Style {conversion.style}: what a tutorial would write."
    yield ""
    for each in conversion.differences:
        yield f"- no longer the same: {'' if each.certain else 'perhaps '}{plain(each.name)}: {plain(each.text)}"
    yield from (f"- the same as before: {plain(line)}" for line in conversion.kept)


def _notes(report: ConversionReport) -> Iterator[str]:
    conversion = report.conversion
    lines = [
        f"- {plain(place_of(conversion, note))}: {plain(note.because)} ({note.code})"
        for note in conversion.notes
    ]
    lines += [
        f"- not found, so not looked at: {plain(module)}; {OF_MISSING}" for module in conversion.missing
    ]
    lines += [f"- not read, so not looked at: {plain(module)}" for module in conversion.unread]
    lines += [
        f"- {plain(str(entry.path))} imports what is changed here: {plain(', '.join(map(str, entry.uses)))}"
        for entry in conversion.used_by
    ]
    if lines:
        more = [f"- {len(lines) - _MOST} more"] if len(lines) > _MOST else []
        yield from folded("Notes", [*lines[:_MOST], *more])
        yield ""
