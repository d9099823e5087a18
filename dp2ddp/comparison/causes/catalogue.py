"""Every cause that diagnosis knows, read from `entries/`: one Markdown file a cause, named by its code.

A file begins with front matter, one `key: value` a line between two lines of `---`, and goes on with two sections of
prose, `## Signature` and `## What to change`: the fields of a CatalogueEntry. The site has a page of them all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated

from msgspec import Meta, Struct, ValidationError, convert, field

from dp2ddp.errors import SourceError

# from cause to effect; the headings of the page
FAMILIES: Mapping[str, str] = {
    "data-parallel": "DataParallel's own faults",
    "start": "The start",
    "batches": "Batches",
    "model": "The model",
    "gradients": "Gradients",
    "steps": "Steps",
    "ending": "What no optimizer steps",
    "computation": "The computation",
    "outside": "Outside",
}
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
    families = list(FAMILIES)
    entries.sort(key=lambda entry: (families.index(entry.family), entry.order))
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


def page() -> str:
    """The catalogue as a page of the site (docs/conf.py), Markdown."""
    lines = [
        "# Causes",
        "",
        "What `dp2ddp verify` names when two runs differ, in the order of cause and effect. Each has a signature in",
        "figures; the report shows them, and what to change. W is the number of devices.",
    ]
    for family, title in FAMILIES.items():
        lines += ["", f"## {title}", ""]
        for entry in (entry for entry in catalogue().values() if entry.family == family):
            lines += [f"### {entry.code}", "", entry.title, ""]
            lines += [f"- Signature: {entry.signature}", f"- What to change: {entry.advice}"]
            lines += [f"- In a conversion of ours: {', '.join(entry.rules)}"] * bool(entry.rules) + [""]
    return "\n".join(lines).replace("{W}", "W").rstrip() + "\n"
