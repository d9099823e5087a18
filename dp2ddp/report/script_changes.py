"""What became of the script: a diff, line by line, each of our edits with its reason beside it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dp2ddp.codemod.conversion import Conversion, FileConversion

if TYPE_CHECKING:
    from dp2ddp.comparison.verdict import Verdict

_AROUND = 3  # lines of context
_WIDE = 1000  # letters of a printed line: a progress bar may be one line


@dataclass(frozen=True)
class ReasonOfLine:
    """Why a rule changed a line of the original."""

    line: int
    place: str  # the line as a person looks for it: of the file, or of a notebook's cell
    code: str
    because: str
    file: str = ""  # a local module, where it is not the entry script


@dataclass(frozen=True)
class ScriptChange:
    """A file before and after."""

    name: str
    before: str
    after: str
    reasons: tuple[ReasonOfLine, ...] = ()  # none for a version of the user's own


@dataclass(frozen=True)
class DiffLine:
    """A line as it is shown; `old` and `new` are its numbers, 0 where it is not."""

    kind: str  # same, gone, new, gap, reason
    text: str
    old: int = 0
    new: int = 0


@dataclass(frozen=True)
class Hunk:
    """Lines that belong together, and why they changed."""

    lines: tuple[DiffLine, ...]
    reasons: tuple[ReasonOfLine, ...] = ()


def changes_of(conversion: Conversion) -> tuple[ScriptChange, ...]:
    """The changes that convert wrote, the script's first; the helpers are nobody's change."""
    return tuple(_change(file) for file in conversion.changed_files)


def _change(file: FileConversion) -> ScriptChange:
    planned = file.plan.edits if file.plan else ()
    reasons = dict.fromkeys(
        ReasonOfLine(edit.line, str(edit.place), edit.code, edit.because, edit.file or "") for edit in planned
    )
    return ScriptChange(file.before.name, file.before.text, file.after, tuple(reasons))


def reason_lines(changes: Sequence[ScriptChange]) -> Iterator[str]:
    """Why lines changed, those with the same reason together."""
    groups: dict[tuple[str, str], dict[str, list[ReasonOfLine]]] = {}
    for reason in (reason for change in changes for reason in change.reasons):
        in_files = groups.setdefault((reason.code, reason.because), {})
        in_files.setdefault(reason.file, []).append(reason)
    for (code, because), in_files in groups.items():
        yield f"{'; '.join(map(_places, in_files.values()))}:  {because} ({code})"


def _places(reasons: Sequence[ReasonOfLine]) -> str:
    """Those in one file: `line 3`, `lines 3, 5`, `model.py:3, 5`."""
    lines, file = ", ".join(str(reason.line) for reason in reasons), reasons[0].file
    if file:
        return f"{file}:{lines}"
    of_cells = not all(reason.place.startswith("line") for reason in reasons)
    return (
        "; ".join(reason.place for reason in reasons)
        if of_cells
        else f"line{'s' * (len(reasons) > 1)} {lines}"
    )


def printed_diff(verdict: Verdict, before: int, most: int) -> tuple[DiffLine, ...]:
    """The diff of stdout around the first line that is not the same, `most` lines of each; () where all are the
    same."""
    if verdict.stdout.first is None:
        return ()
    skipped = max(verdict.stdout.first.line - 1 - before, 0)
    texts = (text.splitlines()[skipped : skipped + most] for text in verdict.printed)
    a, b = ("\n".join(line[:_WIDE] for line in lines) for lines in texts)
    return tuple(
        replace(line, old=line.old and line.old + skipped, new=line.new and line.new + skipped)
        for line in text_diff(a, b)
    )


def text_diff(before: str, after: str) -> tuple[DiffLine, ...]:
    """The diff of two texts, without reasons."""
    return tuple(diff_lines(ScriptChange("", before, after)))


def diff_lines(change: ScriptChange) -> Iterator[DiffLine]:
    """Lines with their reasons behind them; none if nothing changed."""
    for hunk in hunks(change):
        yield from hunk.lines
        yield from (DiffLine("reason", f"{why.place}: {why.because} ({why.code})") for why in hunk.reasons)


def hunks(change: ScriptChange) -> Iterator[Hunk]:
    """Changed lines with the reasons that are nearest to them, and lines around them."""
    a, b = change.before.splitlines(), change.after.splitlines()
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    edges = [(i1, i2) for kind, i1, i2, _, _ in matcher.get_opcodes() if kind != "equal"]
    reasons_at: dict[tuple[int, int], list[ReasonOfLine]] = {}
    for reason in change.reasons if edges else ():
        reasons_at.setdefault(min(edges, key=lambda edge: _far(reason.line - 1, edge)), []).append(reason)
    for number, group in enumerate(matcher.get_grouped_opcodes(_AROUND)):
        if number or group[0][1]:
            yield Hunk((DiffLine("gap", "", group[0][1] + 1, group[0][3] + 1),))
        for kind, i1, i2, j1, j2 in group:
            if kind == "equal":
                yield Hunk(tuple(DiffLine("same", a[at], at + 1, at + 1 - i1 + j1) for at in range(i1, i2)))
            else:
                gone = [DiffLine("gone", a[at], old=at + 1) for at in range(i1, i2)]
                new = [DiffLine("new", b[at], new=at + 1) for at in range(j1, j2)]
                yield Hunk((*gone, *new), tuple(reasons_at.get((i1, i2), ())))


def _far(line: int, edge: tuple[int, int]) -> int:
    """How many lines from a changed block; 0 inside of it and at its rims."""
    return max(edge[0] - line - 1, line - edge[1], 0)
