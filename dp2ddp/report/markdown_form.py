"""A document as Markdown that says what it means, whatever a script's text holds: for comments on pull requests."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from dp2ddp.report import result_document as doc
from dp2ddp.report.script_changes import DiffLine, diff_lines

# What Markdown or HTML would take for more than a letter; on GitHub @, # and : call people, issues, pictures and links.
_SPECIAL = re.compile(
    r"[\\`*\[\]<>|~&@$]|(?<!\w)_|_(?!\w)|#(?=\d)|:(?=[^\s\d])|^[-+#=]|(?:(?<=^\d)|(?<=^\d\d))[.)](?=\s|$)"
)
# GitHub takes 65,536 letters in one comment
_MOST_LETTERS, _WIDE = 8_000, 200  # of a difference, of a line
_MOST_CHANGES = 5  # files
_MOST = 30  # items of a list
_HEADS = {doc.Judged.GOOD: "✅ ", doc.Judged.BAD: "❌ ", doc.Judged.SHOWN: "– ", doc.Judged.UNKNOWN: "⚠️ "}
_MARKS = {doc.Judged.GOOD: "ok", doc.Judged.BAD: "**no**", doc.Judged.SHOWN: "–"}


def markdown(document: doc.Document) -> str:
    """The whole text."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: doc.Document) -> Iterator[str]:
    word = f"{_HEADS[document.judged]}{document.word}" if document.word else f"dp2ddp {document.command}"
    yield f"## {word}: {plain(document.headline)}"
    for remark in document.remarks:
        yield from ("", plain(remark))
    for section in document.sections:
        yield ""
        yield from _section(section)


def _section(section: doc.Section) -> Iterator[str]:
    blocks = [lines for block in section.blocks if (lines := list(_block(block)))]
    lines = [line for block in blocks for line in (*block, "")][:-1]
    if not lines:
        return
    if isinstance(section, doc.Fold) and not section.is_open:
        yield from _folded(section.title, lines)
        return
    yield f"### {_HEADS[section.judged] if section.judged else ''}{plain(section.title)}"
    yield ""
    yield from lines


def _block(block: doc.Block) -> Iterator[str]:
    """Nothing of what Markdown cannot show."""
    match block:
        case doc.Paragraph(words):
            yield _words(words)
        case doc.Items(items, _, caption):
            if caption and items:
                yield from (f"{plain(caption)}:", "")
            yield from (f"- {_words(each)}" for each in items[:_MOST])
            yield from _left_out(items)
        case doc.Facts(_, rows):
            is_judged = any(row.judged for row in rows)
            cells = [(_MARKS[row.judged or doc.Judged.SHOWN], row.label, row.words) for row in rows]
            head = ("", "of", "found") if is_judged else ("", "")
            shown = [(mark, plain(label), plain(words)) for mark, label, words in cells]
            yield from _table(head, [row[-len(head) :] for row in shown])
        case doc.Table():
            yield from _figures(block)
        case doc.Cards(cards, _, beside) if (
            not beside
        ):  # those to be compared need more room than a comment has
            for number, card in enumerate(cards[:_MOST]):
                yield from [""] * (number > 0)
                yield from _card(card)
            yield from _left_out(cards)
        case doc.Commands(commands):
            for each in commands:
                texts = (_code(each.command) if each.command else "", plain(each.purpose))
                yield f"- {': '.join(filter(None, texts))}"
        case doc.Changes():
            yield from _changes(block)
        case doc.Diff(title, lines):
            yield from _folded_diff(title, lines) if lines else (f"- {plain(title)}",)


def _figures(block: doc.Table) -> Iterator[str]:
    columns = (block.of, *block.columns)
    names = ("&nbsp;" * 2 * row.depth + plain(row.name) for row in block.rows[:_MOST])
    rows = [(name, *map(plain, row.cells)) for name, row in zip(names, block.rows, strict=False)]
    padded = [(*row, *[""] * (len(columns) - len(row))) for row in rows]
    yield from _table(tuple(map(plain, columns)), padded)
    yield from _left_out(block.rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(row)} |"


def _left_out(items: Sequence[object]) -> Iterator[str]:
    if len(items) > _MOST:
        yield from ("", f"{len(items) - _MOST} more")


def _card(card: doc.Card) -> Iterator[str]:
    label = f"{plain(card.label.capitalize())}: " if card.label else ""
    yield from (f"**{label}{plain(card.title)}**", "")
    if card.excerpt:
        yield f"- {plain(card.excerpt)}"
    for label, words in card.details:
        yield f"- **{plain(label)}:** {_words(words)}" if label else f"- {_words(words)}"


def _changes(block: doc.Changes) -> Iterator[str]:
    if block.note:
        yield from (plain(block.note), "")
    for change in block.files[:_MOST_CHANGES]:
        yield from _folded_diff(f"What changed in {change.name}", list(diff_lines(change)))
    if names := ", ".join(change.name for change in block.files[_MOST_CHANGES:]):
        yield from _folded("Other files that changed: see the HTML report", [plain(names[:_MOST_LETTERS])])


def _folded_diff(title: str, lines: Sequence[DiffLine]) -> Iterator[str]:
    """A difference that a reader opens, cut where it is long."""
    texts = _fitting([_diff_text(line)[:_WIDE] for line in lines])
    fence = "`" * max([3, *(len(run) + 1 for text in texts for run in re.findall("`+", text))])
    yield from _folded(title, [f"{fence}diff", *texts, fence])


def _fitting(texts: list[str]) -> list[str]:
    ends = list(itertools.accumulate(len(text) + 1 for text in texts))
    kept = sum(end <= _MOST_LETTERS for end in ends)
    if kept == len(texts):
        return texts
    return [*texts[:kept], f"... {len(texts) - kept} more lines: see the HTML report"]


def _diff_text(line: DiffLine) -> str:
    if line.kind == "gap":
        return f"@@ line {line.old} @@"
    return {"same": " ", "gone": "-", "new": "+", "reason": "#   "}[line.kind] + line.text


def _folded(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Lines that a reader opens."""
    yield f"<details><summary>{_entities(title)}</summary>"
    yield ""
    yield from lines
    yield ""
    yield "</details>"


def _words(words: doc.Words) -> str:
    return "".join(
        # with the blanks that part it from code
        _code(part.text)
        if isinstance(part, doc.Code)
        else f"{' ' * part[:1].isspace()}{plain(part)}{' ' * part[-1:].isspace()}"
        for part in doc.parts(words)
    ).strip()


def plain(text: str) -> str:
    """Words that mean themselves, in one line."""
    stripped = " ".join(text.split())
    return _SPECIAL.sub(lambda match: f"&#{ord(match[0])};", stripped)


def _entities(text: str) -> str:
    return "".join(
        f"&#{ord(letter)};" if letter in "<>&@`*_[]\\" else letter for letter in " ".join(text.split())
    )


def _code(text: str) -> str:
    """A command, to be copied: nothing in it is acted upon."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"`{' '.join(text.split())}`"
