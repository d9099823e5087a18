"""A document on a terminal: few lines, the ones that matter last; colours where somebody sees them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import IO

from dp2ddp.report import result_document as doc
from dp2ddp.report.script_changes import reason_lines

_MARKS = {
    doc.Judged.GOOD: ("ok", "green"),
    doc.Judged.BAD: ("!!", "bold red"),
    doc.Judged.SHOWN: ("--", "dim"),
}
_HEADS = {
    doc.Judged.GOOD: "bold green",
    doc.Judged.BAD: "bold red",
    doc.Judged.SHOWN: "bold",
    doc.Judged.UNKNOWN: "bold red",
}
_LABEL = 11  # letters of a fact's label
_ITEM = 8  # the least of an item's or a card's
_Styled = tuple[tuple[str, str], ...]  # a line: texts with styles of rich
_INNER = ("  ", "")


def document_text(document: doc.Document) -> str:
    """What print_document prints, without colours."""
    return "".join("".join(text for text, _ in line) + "\n" for line in _lines(document))


def print_document(document: doc.Document, file: IO[str] | None = None) -> None:
    """To stdout; colour only on a terminal (rich honours NO_COLOR, and is loaded for nobody else)."""
    stream = file or sys.stdout
    if stream is None or not (stream.isatty() or os.environ.get("FORCE_COLOR")):
        print(document_text(document), end="", file=stream)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True, file=stream)
    for line in _lines(document):
        console.print(Text.assemble(*line))


def _lines(document: doc.Document) -> Iterator[_Styled]:
    last: list[_Styled] = []
    if document.word:
        word = "" if document.says_word else f"{document.word} "
        last = [((word, _HEADS[document.judged]), (document.headline, ""))]
        yield from last
    is_titled = False
    for section in document.on_terminal():
        lines = list(_section(section))
        outside = not (_is_inner(last) or _is_inner(lines))
        if lines and last and (section.judged or is_titled or outside):
            yield ()
        yield from lines
        last, is_titled = lines or last, bool(section.judged)


def _is_inner(lines: list[_Styled]) -> bool:
    """Whether what they belong to stands above them, so that they need no empty line."""
    return bool(lines) and lines[-1][0] == _INNER


def _section(section: doc.Section) -> Iterator[_Styled]:
    if section.judged:
        yield ((section.title, "bold"),)
    for block in section.blocks:
        for line in _block(block):
            yield (_INNER, *line) if section.judged else line


def _block(block: doc.Block) -> Iterator[_Styled]:
    """Nothing of what a terminal does not show."""
    match block:
        case doc.Paragraph(words, is_remark):
            yield ((doc.text_of(words), "dim" if is_remark else ""),)
        case doc.Items():
            yield from _items(block)
        case doc.Facts():
            yield from _facts(block)
        case doc.Table():
            yield from _table(block)
        case doc.Cards(cards):
            labels = [
                label for card in cards for label in (card.label, *(label for label, _ in card.details))
            ]
            width = max(_ITEM, *(len(label) + 2 for label in labels))
            yield from (line for card in cards for line in _card(card, width))
        case doc.Commands(commands):
            yield from (((f"{each.how}: {each.command}", ""),) for each in commands if each.command)
        case doc.Changes(files, note):
            yield from ((_INNER, (text, "")) for text in (*[note] * bool(note), *reason_lines(files)))


def _items(block: doc.Items) -> Iterator[_Styled]:
    is_named = bool(block.caption) and not block.label
    if is_named and block.items:
        yield _INNER, (f"{block.caption}:", "")
    width = max(_ITEM, len(block.label) + 2) if block.label else 0
    inner = (_INNER,) * 2 if is_named else ()
    for words in block.items:
        yield *inner, (f"{block.label:<{width}}", ""), (doc.text_of(words), "")


def _facts(block: doc.Facts) -> Iterator[_Styled]:
    if not any(row.judged for row in block.rows):
        yield _INNER, (f"{block.caption}:", "")
        yield from ((_INNER, _INNER, (f"{row.label}: {row.words}", "")) for row in block.rows)
        return
    for row in block.rows:
        mark, style = _MARKS[row.judged or doc.Judged.SHOWN]
        bold = "bold" if row.judged is doc.Judged.BAD else ""
        yield (f"{mark}  ", style), (f"{row.label:<{_LABEL}}", bold), (row.words, "")


def _table(block: doc.Table) -> Iterator[_Styled]:
    names = [f"{'  ' * row.depth}{row.name}" for row in block.rows]
    label = max(map(len, names)) + 2
    whole_rows = (row.cells for row in block.rows if len(row.cells) == len(block.columns))
    wide = [max(map(len, column)) + 2 for column in zip(block.columns, *whole_rows, strict=True)][:-1]
    yield ((" " * label + _aligned(block.columns, wide), "dim"),)
    for name, row in zip(names, block.rows, strict=True):
        style = _HEADS[row.judged] if row.judged else ""
        yield (f"{name:<{label}}", "bold"), (_aligned(row.cells, wide), style)


def _aligned(cells: Sequence[str], wide: Sequence[int]) -> str:
    return "".join(f"{cell:<{width}}" for cell, width in zip(cells, [*wide, 0], strict=False)).rstrip()


def _card(card: doc.Card, width: int) -> Iterator[_Styled]:
    if card.is_minor:
        first = "".join(f" {doc.text_of(words)}" for _, words in card.details[:1])
        yield (f"{card.label:<{width}}", ""), (f"{card.title}{first}", "")
        return
    yield (f"{card.label:<{width}}", "bold"), (card.title, "bold")
    yield from (((f"{name:<{width}}", ""), (doc.text_of(words), "")) for name, words in card.details)
