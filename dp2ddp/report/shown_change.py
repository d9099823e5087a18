"""A changed file as a page shows it: coloured lines, in hunks with their reasons beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup

from dp2ddp.report.code_colours import Stretch, changed_parts, painted, stretches_of
from dp2ddp.report.script_changes import DiffLine, Reason, ScriptChange, diff_lines

_CHANGED = ("gone", "new")


@dataclass(frozen=True)
class ShownLine:
    """A line of a difference; `old` and `new` are its numbers, 0 where it is not."""

    kind: str  # same, gone, new, gap
    text: Markup
    old: int
    new: int


@dataclass(frozen=True)
class Hunk:
    """Lines that belong together, and why they changed."""

    lines: tuple[ShownLine, ...]
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class ShownChange:
    """A file before and after."""

    hunks: tuple[Hunk, ...]  # none where nothing changed
    added: int  # lines
    removed: int


def shown_change(change: ScriptChange) -> ShownChange:
    """Colours, and hunks with reasons."""
    lines = diff_lines(change)
    old, new = stretches_of(change.before), stretches_of(change.after)
    return ShownChange(
        tuple(_hunks(lines, old, new)),
        sum(line.kind == "new" for line in lines),
        sum(line.kind == "gone" for line in lines),
    )


def _hunks(
    lines: Sequence[DiffLine], old: dict[int, list[Stretch]], new: dict[int, list[Stretch]]
) -> Iterator[Hunk]:
    blocks = [(kind, list(block)) for kind, block in groupby(lines, _block_of)]
    for (kind, block), (next_kind, following) in zip(blocks, [*blocks[1:], ("", [])], strict=True):
        if kind == "reason":
            continue
        reasons = [line.reason for line in following if line.reason] if next_kind == "reason" else []
        marks = _marks(block)
        shown = tuple(_shown(line, old, new, marks.get(at, [])) for at, line in enumerate(block))
        yield Hunk(shown, tuple(reasons))


def _block_of(line: DiffLine) -> str:
    return "changed" if line.kind in _CHANGED else "reason" if line.kind == "reason" else "same"


def _marks(block: Sequence[DiffLine]) -> dict[int, list[Stretch]]:
    """What is marked in the lines of a block, by their places in it."""
    gone = [at for at, line in enumerate(block) if line.kind == "gone"]
    new = [at for at, line in enumerate(block) if line.kind == "new"]
    parts = changed_parts([block[at].text for at in gone], [block[at].text for at in new])
    return dict(zip(gone, parts[0], strict=True)) | dict(zip(new, parts[1], strict=True))


def _shown(
    line: DiffLine, old: dict[int, list[Stretch]], new: dict[int, list[Stretch]], marks: Sequence[Stretch]
) -> ShownLine:
    stretches = new.get(line.new, []) if line.new and line.kind != "gap" else old.get(line.old, [])
    text = painted(line.text, stretches if line.kind != "gap" else [], marks)
    return ShownLine(line.kind, text, line.old, line.new)
