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
from collections.abc import Mapping, Sequence
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
_KEYS, _LISTS = ("title", "family", "order"), ("rules", "brings")
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
    pairs = [line.partition(":") for line in parts[1].splitlines()]
    values = {key.strip(): value.strip() for key, _, value in pairs}
    _check(code, values, "key", "", _KEYS, _LISTS)
    _, *texts = re.split(r"^## (.*)$", parts[2], flags=re.MULTILINE)
    # as one line: what prints it breaks lines by itself
    prose = {
        title.strip(): " ".join(text.split()) for title, text in zip(texts[::2], texts[1::2], strict=True)
    }
    _check(code, prose, "section", "section: ", _SECTIONS)
    if values["family"] not in FAMILIES:
        raise _error(code, f"family is {values['family']}, and none of {', '.join(FAMILIES)}")
    if not values["order"].isdecimal():
        raise _error(code, f"order is {values['order']}, and no whole number")
    rules, brings = (tuple(re.findall(r"[^\s,]+", values.get(key, ""))) for key in _LISTS)
    signature, advice = (prose[title] for title in _SECTIONS)
    return CatalogueEntry(
        code, values["title"], signature, advice, values["family"], int(values["order"]), rules, brings
    )


def _check(
    code: str,
    given: Mapping[str, str],
    what: str,
    before: str,
    needed: Sequence[str],
    free: Sequence[str] = (),
) -> None:
    """SourceError if something is missing, or unknown."""
    for name in needed:
        if not given.get(name):
            raise _error(code, f"has no {before}{name}")
    for name in given:
        if name not in (*needed, *free):
            raise _error(code, f"has an unknown {what}: {name}")


def _error(code: str, text: str) -> SourceError:
    return SourceError(f"comparison/causes/entries/{code}.md {text}")
