"""A document as Markdown, for comments on pull requests: the text of a terminal, and what is long folded behind it.

Words that may come from a script stand in fences alone, where neither Markdown nor GitHub acts upon any of them.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterator, Sequence

import dp2ddp.report.result_document as doc
from dp2ddp.report.script_changes import DiffLine, diff_lines
from dp2ddp.report.text_form import document_text, section_text

# GitHub takes 65,536 letters in one comment
_MOST_LETTERS = 8_000  # of a fence
_WIDE = 120  # letters of a line that is read; the lines of a difference go on as far as ten of these
_MOST_DIFFS = 5
_HEADS = {doc.Judged.GOOD: "✅ ", doc.Judged.BAD: "❌ ", doc.Judged.SHOWN: "", doc.Judged.UNKNOWN: "⚠️ "}


def markdown(document: doc.Document) -> str:
    """The whole text."""
    return "\n".join(_lines(document)) + "\n"


def _lines(document: doc.Document) -> Iterator[str]:
    yield f"## {_HEADS[document.judged]}{document.word or f'dp2ddp {document.command}'}"
    text = document_text(document) + "".join(f"{remark}\n" for remark in document.remarks)
    yield from ("", *_fence("text", _wrapped(text)))
    for section in document.sections:
        if isinstance(section, doc.Fold) and (text := section_text(section)):
            yield from _folded(section.title, _fence("text", _wrapped(text)))
    blocks = [block for section in document.sections for block in section.blocks]
    blocks.sort(key=lambda block: isinstance(block, doc.Diff))  # what changed in the script comes first
    diffs = [diff for block in blocks for diff in _diffs(block)]
    for title, lines in diffs[:_MOST_DIFFS]:
        texts = [title, *(_diff_text(line)[: 10 * _WIDE] for line in lines)]
        yield from _folded("Difference", _fence("diff", texts))
    if len(diffs) > _MOST_DIFFS:
        yield from ("", f"{len(diffs) - _MOST_DIFFS} more differences: see the HTML report")


def _wrapped(text: str) -> list[str]:
    """Lines that a comment shows without scrolling, each with its indent."""
    wrapped = (textwrap.wrap(line, _WIDE, subsequent_indent="        ") or [""] for line in text.splitlines())
    return list(itertools.chain(*wrapped))


def _diffs(block: doc.Block) -> Iterator[tuple[str, Sequence[DiffLine]]]:
    """What differs between texts: a title, and the lines."""
    if isinstance(block, doc.Diff) and block.lines:
        yield block.title, block.lines
    elif isinstance(block, doc.Changes):
        yield from ((f"What changed in {change.name}", list(diff_lines(change))) for change in block.files)


def _diff_text(line: DiffLine) -> str:
    if line.kind == "gap":
        return f"@@ line {line.old} @@"
    return {"same": " ", "gone": "-", "new": "+", "reason": "#   "}[line.kind] + line.text


def _fence(kind: str, texts: list[str]) -> Iterator[str]:
    """Longer than any within; cut where it is too long for a comment."""
    kept = sum(end <= _MOST_LETTERS for end in itertools.accumulate(len(text) + 1 for text in texts))
    left = [f"... {len(texts) - kept} more lines: see the HTML report"] * (kept < len(texts))
    fence = "`" * max([3, *(len(run) + 1 for text in texts for run in re.findall("`+", text))])
    yield from (f"{fence}{kind}", *texts[:kept], *left, fence)


def _folded(title: str, lines: Iterator[str]) -> Iterator[str]:
    """Lines that a reader opens."""
    yield from ("", f"<details><summary>{title}</summary>", "", *lines, "", "</details>")
