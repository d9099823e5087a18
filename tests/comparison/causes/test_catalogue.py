"""The catalogue, its files, and what may go by its codes."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest

from dp2ddp.comparison.causes.catalogue import FAMILIES, catalogue, parse_entry
from dp2ddp.errors import SourceError
from dp2ddp.review.check_rule import described_rules

ROOT = Path(__file__).resolve().parents[3]
CAUSES = ROOT / "dp2ddp" / "comparison" / "causes"

ENTRY = """---
title: The ranks stop {W} times as soon.
family: steps
order: 20
rules: DDP101, DDP505
brings: fewer-steps
---

## Signature

The ranks take fewer steps,
by a factor of W.

## What to change

Look at len(loader).
"""


def test_every_file_is_a_cause_that_code_can_give_and_every_code_has_its_file() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in CAUSES.glob("*.py"))
    names = {path.stem for path in (CAUSES / "entries").iterdir()}
    assert names == catalogue().keys()
    assert set(re.findall(r'finding\(\s*"([a-z-]+)"', texts)) - names == set()
    assert [name for name in names if f'"{name}"' not in texts] == []


def test_what_a_cause_brings_about_is_a_cause_as_well() -> None:
    brought = {code for entry in catalogue().values() for code in entry.brings}
    assert brought <= catalogue().keys()


def test_rules_of_a_cause_are_rules_of_the_codemod() -> None:
    codes = {rule.code for rule in described_rules()}
    assert {rule for entry in catalogue().values() for rule in entry.rules} <= codes


def test_entries_are_in_the_order_of_families_and_no_two_share_a_place() -> None:
    entries = list(catalogue().values())
    assert [family for family, _ in groupby(entry.family for entry in entries)] == list(FAMILIES)
    assert len({(entry.family, entry.order) for entry in entries}) == len(entries)


def test_a_file_is_read_as_it_is_written() -> None:
    entry = parse_entry("stops-early", ENTRY)
    assert (entry.code, entry.title, entry.family, entry.order) == (
        "stops-early",
        "The ranks stop {W} times as soon.",
        "steps",
        20,
    )
    assert entry.signature == "The ranks take fewer steps, by a factor of W."
    assert entry.advice == "Look at len(loader)."
    assert (entry.rules, entry.brings) == (("DDP101", "DDP505"), ("fewer-steps",))
    bare = parse_entry("stops-early", re.sub("^(rules|brings): .*\n", "", ENTRY, flags=re.MULTILINE))
    assert (bare.rules, bare.brings) == ((), ())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: The ranks stop {W} times as soon.\n", "", "missing required field `title`"),
        ("family: steps\n", "", "missing required field `family`"),
        ("order: 20\n", "", "missing required field `order`"),
        ("order: 20", "order:", "at `$.order`"),
        ("brings:", "bring:", "unknown field `bring`"),
        ("family: steps", "family: step", "at `$.family`"),
        ("order: 20", "order: first", "Expected `int`, got `str` - at `$.order`"),
        ("## Signature\n", "", "missing required field `Signature`"),
        ("Look at len(loader).\n", "", "at `$.What to change`"),
        ("## What to change", "## See\n\nNothing.\n\n## What to change", "unknown field `See`"),
        ("---\n\n## Signature", "\n## Signature", "unknown field `## Signature`"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong_in_one_line(old: str, new: str, message: str) -> None:
    assert old in ENTRY
    with pytest.raises(SourceError) as error:
        parse_entry("stops-early", ENTRY.replace(old, new))
    assert str(error.value).startswith("comparison/causes/entries/stops-early.md: ")
    assert message in str(error.value).splitlines()[0]
