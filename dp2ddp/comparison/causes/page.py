"""The catalogue as a page of the site (docs/conf.py)."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.comparison.causes.catalogue import FAMILIES, catalogue
from dp2ddp.comparison.causes.cause import CatalogueEntry


def page() -> str:
    """The whole page, Markdown."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield "# Causes"
    yield ""
    yield "What `dp2ddp verify` names when two runs differ, in the order of cause and effect. Each has a signature in"
    yield "figures; the report shows them, and what to change. W is the number of devices."
    for family, title in FAMILIES.items():
        yield from ("", f"## {title}", "")
        for entry in catalogue().values():
            if entry.family == family:
                yield from _entry(entry)


def _entry(entry: CatalogueEntry) -> Iterator[str]:
    plain = [text.replace("{W}", "W") for text in (entry.title, entry.signature, entry.advice)]
    yield f"### {entry.code}"
    yield ""
    yield plain[0]
    yield ""
    yield f"- Signature: {plain[1]}"
    yield f"- What to change: {plain[2]}"
    if entry.rules:
        yield f"- In a conversion of ours: {', '.join(entry.rules)}"
    yield ""
