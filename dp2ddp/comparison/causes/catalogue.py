"""Every cause that diagnosis knows, read from `entries/`: one Markdown file a cause, named by its code.

A file begins with front matter, one `key: value` a line between two lines of `---`:

    title   what is wrong, one sentence, in the user's words
    family  one of FAMILIES
    order   a whole number: its place in the family, for what comes first makes what comes later
    rules   of the codemod, whose edits could bring the cause about in a conversion (may be left out)
    brings  codes of causes that it makes look wrong as well (may be left out)

and goes on with two sections of prose, `## Signature` and `## What to change`. `{W}` stands for the number of
devices. The site has a page of them (`page.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from dp2ddp.comparison.causes.cause import CatalogueEntry
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

_FRONT_MATTER = re.compile(r"---\n(.*?)^---\n(.*)", re.DOTALL | re.MULTILINE)
_REQUIRED, _OPTIONAL = ("title", "family", "order"), ("rules", "brings")
_SECTIONS = ("Signature", "What to change")


@cache
def catalogue() -> Mapping[str, CatalogueEntry]:
    """Entries by code, from cause to effect. Read once, when the first one is needed."""
    folder = files("dp2ddp.comparison.causes").joinpath("entries")
    entries = [
        parse_entry(file.name.removesuffix(".md"), file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".md")
    ]
    families = list(FAMILIES)
    entries.sort(key=lambda entry: (families.index(entry.family), entry.order))
    return {entry.code: entry for entry in entries}


def parse_entry(code: str, text: str) -> CatalogueEntry:
    """The entry that a file `entries/CODE.md` holds.

    Raises SourceError, in one line, when a key or a section is missing or unknown, or a value is none of its kind.
    """
    parts = _FRONT_MATTER.fullmatch(text)
    if parts is None:
        raise _error(code, "does not begin with front matter between two lines of ---")
    values = _front_matter(code, parts[1])
    sections = _sections(code, parts[2])
    if values["family"] not in FAMILIES:
        raise _error(code, f"family is {values['family']}, and none of {', '.join(FAMILIES)}")
    if not values["order"].isdecimal():
        raise _error(code, f"order is {values['order']}, and no whole number")
    return CatalogueEntry(
        code=code,
        title=values["title"],
        signature=sections["Signature"],
        advice=sections["What to change"],
        family=values["family"],
        order=int(values["order"]),
        rules=_listed(values.get("rules", "")),
        brings=_listed(values.get("brings", "")),
    )


def _front_matter(code: str, text: str) -> dict[str, str]:
    pairs = [line.partition(":") for line in text.splitlines()]
    values = {key.strip(): value.strip() for key, _, value in pairs}
    for key in _REQUIRED:
        if not values.get(key):
            raise _error(code, f"has no {key}")
    for key in values:
        if key not in (*_REQUIRED, *_OPTIONAL):
            raise _error(code, f"has an unknown key: {key}")
    return values


def _sections(code: str, text: str) -> dict[str, str]:
    """Prose by heading, each as one line: what prints it breaks lines by itself."""
    _, *parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    sections = {
        title.strip(): " ".join(prose.split()) for title, prose in zip(parts[::2], parts[1::2], strict=True)
    }
    for title in _SECTIONS:
        if not sections.get(title):
            raise _error(code, f"has no section: {title}")
    for title in sections:
        if title not in _SECTIONS:
            raise _error(code, f"has an unknown section: {title}")
    return sections


def _listed(value: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in value.split(",") if item.strip())


def _error(code: str, text: str) -> SourceError:
    return SourceError(f"comparison/causes/entries/{code}.md {text}")
