"""What may be wrong with a port: every cause that diagnosis knows, read from `entries/`, one Markdown file a cause.

It is named by the cause's code, and begins with front matter, one `key: value` a line between two lines of `---`. Two
sections of prose follow, `## Signature` and `## What to change`. These are the fields of a CatalogueEntry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated

from msgspec import Meta, Struct, ValidationError, convert, field

from dp2ddp.errors import SourceError

# from cause to effect
FAMILIES = (
    "data-parallel", "start", "batches", "model", "gradients", "steps", "ending", "computation", "outside",
)  # fmt: skip
Text = Annotated[str, Meta(min_length=1)]
Family = Annotated[str, Meta(pattern=f"^({'|'.join(FAMILIES)})$")]
Count = Annotated[int, Meta(ge=0)]


class CatalogueEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cause as its file describes it; `{W}` stands for the number of devices."""

    code: str
    title: Text  # what is wrong, one sentence, in the user's words
    family: Family
    order: Count  # place in its family: what comes first makes what comes later
    rules: tuple[str, ...] = ()  # of the codemod: whose edits could bring it about in a conversion of ours
    brings: tuple[str, ...] = ()  # codes of what it makes look wrong as well
    signature: Text = field(name="Signature")  # what is looked at, and when it fits
    advice: Text = field(name="What to change")


@cache
def catalogue() -> Mapping[str, CatalogueEntry]:
    """Entries by code, from cause to effect. Read once, when the first one is needed."""
    entries = [
        parse_entry(file.name.removesuffix(".md"), file.read_text(encoding="utf-8"))
        for file in files("dp2ddp.comparison.causes").joinpath("entries").iterdir()
        if file.name.endswith(".md")
    ]
    entries.sort(key=lambda entry: (FAMILIES.index(entry.family), entry.order))
    return {entry.code: entry for entry in entries}


def parse_entry(code: str, text: str) -> CatalogueEntry:
    """The entry that a file `entries/CODE.md` holds; SourceError, in one line, where it is none."""
    head, _, prose = text.removeprefix("---\n").partition("\n---\n")
    pairs = (line.partition(":") for line in head.splitlines() if line)
    given = {key.strip(): value.strip() for key, _, value in pairs}
    lists = {key: re.findall(r"[^\s,]+", given[key]) for key in given.keys() & {"rules", "brings"}}
    _, *parts = re.split(r"^## (.*)$", prose, flags=re.MULTILINE)
    # as one line: what prints it breaks lines by itself
    sections = {title: " ".join(text.split()) for title, text in zip(parts[::2], parts[1::2], strict=True)}
    try:
        return convert({"code": code, **given, **lists, **sections}, CatalogueEntry, strict=False)
    except ValidationError as error:
        raise SourceError(f"comparison/causes/entries/{code}.md: {error}") from error


# of the catalogue: what a port that draws other random numbers shows, and aligned runs take away
OTHER_RANDOM_NUMBERS = frozenset({"other-seed", "other-order", "other-inputs", "other-random-numbers"})


@dataclass(frozen=True)
class Cause:
    """One likely cause of what differs."""

    code: Annotated[str, Meta(description="its entry in dp2ddp/comparison/causes/entries")]
    title: str  # what is wrong, one sentence, in the user's words
    evidence: tuple[str, ...]  # figures: "gradients are 2.000 times as long: W"
    advice: str  # what to change
    weight: Annotated[float, Meta(description="how well the signature fits", ge=0, le=1)]
    edits: Annotated[tuple[str, ...], Meta(description="of a conversion of ours: rule and line")]


@dataclass(frozen=True)
class Finding:
    """What a family of signatures says: a code of the catalogue, how well it fits, and the figures."""

    code: str
    weight: float
    evidence: tuple[str, ...]


def finding(code: str, weight: float, *evidence: str) -> Finding:
    """A finding with its figures, each a short text."""
    return Finding(code, weight, evidence)
