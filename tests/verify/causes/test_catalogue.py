"""The catalogue, its page, and what may go by its codes."""

from __future__ import annotations

import re
from pathlib import Path

from dp2ddp.verify.causes.catalogue import CATALOGUE
from dp2ddp.verify.causes.page import page

ROOT = Path(__file__).resolve().parents[3]
FAMILIES = ROOT / "dp2ddp" / "verify" / "causes"


def test_the_page_is_todays_catalogue() -> None:
    assert (ROOT / "docs" / "causes.md").read_text(encoding="utf-8") == page()


def test_every_cause_is_on_the_page() -> None:
    assert [code for code in CATALOGUE if f"### {code}\n" not in page()] == []


def test_every_code_is_found_by_a_signature_and_every_signature_has_its_entry() -> None:
    texts = "".join(
        path.read_text(encoding="utf-8") for path in FAMILIES.glob("*.py") if path.stem != "catalogue"
    )
    unknown = set(re.findall(r'found\(\s*"([a-z-]+)"', texts)) - CATALOGUE.keys()
    assert unknown == set()
    assert [code for code in CATALOGUE if f'"{code}"' not in texts] == []


def test_what_a_cause_brings_about_is_a_cause_as_well() -> None:
    brought = {code for entry in CATALOGUE.values() for code in entry.brings}
    assert brought <= CATALOGUE.keys()
