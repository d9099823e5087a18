"""A document as Markdown that says what it means, whatever a script's text holds: for comments on pull requests."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import singledispatch

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


@singledispatch
def _block(block: object) -> Iterator[str]:
    """Nothing of what Markdown cannot show."""
    return iter(())


@_block.register
def _(block: doc.Paragraph) -> Iterator[str]:
    yield _words(block.words)


@_block.register
def _(block: doc.Items) -> Iterator[str]:
    if block.caption and block.items:
        yield from (f"{plain(block.caption)}:", "")
    yield from (f"- {_words(each)}" for each in block.items[:_MOST])
    yield from _left_out(block.items)


@_block.register
def _(block: doc.Facts) -> Iterator[str]:
    if any(row.judged for row in block.rows):
        rows = [
            (_MARKS[row.judged or doc.Judged.SHOWN], plain(row.label), plain(row.words)) for row in block.rows
        ]
        yield from _table(("", "of", "found"), rows)
    else:
        yield from _table(("", ""), [(plain(row.label), plain(row.words)) for row in block.rows])


@_block.register
def _(block: doc.Table) -> Iterator[str]:
    rows = [
        ("&nbsp;" * 2 * row.depth + plain(row.name), *map(plain, row.cells)) for row in block.rows[:_MOST]
    ]
    columns = (block.of, *block.columns)
    padded = [(*row, *[""] * (len(columns) - len(row))) for row in rows]
    yield from _table(tuple(map(plain, columns)), padded)
    yield from _left_out(block.rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (head, ["---"] * len(head), *rows):
        yield f"| {' | '.join(row)} |"


def _left_out(items: Sequence[object]) -> Iterator[str]:
    if len(items) > _MOST:
        yield from ("", f"{len(items) - _MOST} more")


@_block.register
def _(block: doc.Cards) -> Iterator[str]:
    """Cards to be compared need more room than a comment has; what they say stands beside them in short."""
    if block.beside:
        return
    for number, card in enumerate(block.cards[:_MOST]):
        if number:
            yield ""
        yield from _card(card)
    yield from _left_out(block.cards)


def _card(card: doc.Card) -> Iterator[str]:
    label = f"{plain(card.label.capitalize())}: " if card.label else ""
    yield f"**{label}{plain(card.title)}**"
    yield ""
    if card.excerpt:
        yield f"- {plain(card.excerpt)}"
    for label, words in card.details:
        yield f"- **{plain(label)}:** {_words(words)}" if label else f"- {_words(words)}"


@_block.register
def _(block: doc.Commands) -> Iterator[str]:
    for each in block.commands:
        texts = (_code(each.command) + each.note if each.command else "", plain(each.purpose))
        yield f"- {': '.join(filter(None, texts))}"


@_block.register
def _(block: doc.Changes) -> Iterator[str]:
    if block.note:
        yield from (plain(block.note), "")
    for change in block.files[:_MOST_CHANGES]:
        yield from _folded_diff(f"What changed in {change.name}", list(diff_lines(change)))
    if len(block.files) > _MOST_CHANGES:
        names = ", ".join(change.name for change in block.files[_MOST_CHANGES:])
        yield from _folded("Other files that changed: see the HTML report", [plain(names[:_MOST_LETTERS])])


@_block.register
def _(block: doc.Diff) -> Iterator[str]:
    yield from _folded_diff(block.title, block.lines) if block.lines else (f"- {plain(block.title)}",)


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
