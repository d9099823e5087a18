"""A result in words, said once: blocks that a terminal, Markdown and a page each show in their way.

A terminal shows what a reader needs at once: no folds, no charts, no lines of files; what matters most stands last.
Markdown folds what is long. A page shows all of it. Words may come from a script: each form escapes what it must.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from dp2ddp.report.charts import Chart
    from dp2ddp.report.script_changes import DiffLine, ScriptChange


class Judged(Enum):
    """How a line of a result counts."""

    GOOD = "good"
    BAD = "bad"
    SHOWN = "shown"  # for information: it has no part in the verdict
    UNKNOWN = "unknown"  # nobody can say: a run failed, nothing was compared


@dataclass(frozen=True)
class Code:
    """Words to be copied or looked for as they stand: a command, a comment, a line of a script."""

    text: str


Words = str | Code | tuple["str | Code", ...]


def parts(words: Words) -> tuple[str | Code, ...]:
    """Plain words and code, one after the other."""
    return words if isinstance(words, tuple) else (words,)


def text_of(words: Words) -> str:
    """Without marks."""
    return "".join(part.text if isinstance(part, Code) else part for part in parts(words))


@dataclass(frozen=True)
class Paragraph:
    """A sentence or two; a remark may be read or not."""

    words: Words
    is_remark: bool = False


@dataclass(frozen=True)
class Items:
    """A list; `label` stands before each item on a terminal, which shows no titles."""

    items: tuple[Words, ...]
    label: str = ""
    caption: str = ""


@dataclass(frozen=True)
class Fact:
    """What was found about one thing."""

    label: str  # "": more about the one above
    words: str
    judged: Judged | None = None


@dataclass(frozen=True)
class Facts:
    """Facts of one kind: judged ones, or names with their meanings."""

    caption: str
    rows: tuple[Fact, ...]
    is_linked: bool = False  # labels that other parts of a page lead to


@dataclass(frozen=True)
class Row:
    """A row of a table: its name, and a cell for each column; `depth` 1 is a part of the row above."""

    name: str
    cells: tuple[str, ...]
    depth: int = 0
    judged: Judged | None = None
    anchor: str = ""  # of the section that is about it


@dataclass(frozen=True)
class Table:
    """Figures in columns."""

    caption: str
    columns: tuple[str, ...]  # without that of the names
    rows: tuple[Row, ...]
    of: str = ""  # what the names are


@dataclass(frozen=True)
class Card:
    """Something that a person must look at: what it is, what supports it, what to do."""

    label: str  # "hazard"
    title: str
    details: tuple[tuple[str, Words], ...] = ()  # (label, words)
    excerpt: str = ""  # the line of a script that it is about
    is_minor: bool = False  # one of several guesses: a terminal shows its first detail only
    is_odd: bool = False  # the one among those beside it that is to be looked at


@dataclass(frozen=True)
class Cards:
    """Cards of one kind; `beside`: on a wide page side by side, to be compared."""

    cards: tuple[Card, ...]
    caption: str = ""
    beside: bool = False


@dataclass(frozen=True)
class Command:
    """Something to do now, and what it does."""

    how: str = ""  # "start it with"
    command: str = ""
    purpose: str = ""


@dataclass(frozen=True)
class Commands:
    """In the order in which they are done."""

    commands: tuple[Command, ...]


@dataclass(frozen=True)
class Diff:
    """What differs between two texts."""

    title: str
    lines: tuple[DiffLine, ...]
    note: str = ""


@dataclass(frozen=True)
class Changes:
    """Changed files; a terminal shows why each line changed, and no line."""

    files: tuple[ScriptChange, ...]
    note: str = ""


@dataclass(frozen=True)
class Output:
    """The end of what a process wrote."""

    title: str
    text: str
    is_open: bool = False


@dataclass(frozen=True)
class Attachment:
    """A file in the page: figures that are too many to be shown."""

    words: str
    name: str
    text: str


@dataclass(frozen=True)
class Section:
    """Blocks about one thing."""

    title: str
    blocks: tuple[Block, ...]
    anchor: str
    short: str = ""  # the title in a list of sections
    judged: Judged | None = None  # a verdict of its own: a terminal shows the title, too
    first: bool = False  # to be read first: it comes last on a terminal


@dataclass(frozen=True)
class Fold(Section):
    """What is behind a result: a section of a page, folded in Markdown, not shown on a terminal."""

    is_open: bool = False  # in Markdown


def filled(*sections: Section) -> tuple[Section, ...]:
    """Those that hold something."""
    return tuple(section for section in sections if section.blocks)


Block: TypeAlias = (
    "Paragraph | Items | Facts | Table | Cards | Commands | Diff | Changes | Output | Attachment | Chart"
)


@dataclass(frozen=True)
class Document:
    """A whole result."""

    command: str  # of dp2ddp
    title: str  # of a window
    word: str  # the verdict; "": there is none
    headline: str  # behind the word
    judged: Judged
    sections: tuple[Section, ...]
    remarks: tuple[str, ...] = ()  # what stands below the headline
    says_word: bool = False  # the headline says as much as the word: a terminal leaves it out

    def on_terminal(self) -> Iterator[Section]:
        """Sections in a terminal's order: the last lines are what is read first."""
        shown = [section for section in self.sections if not isinstance(section, Fold)]
        yield from sorted(shown, key=lambda section: section.first)
