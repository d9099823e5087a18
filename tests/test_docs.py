"""References in code and documents: each leads to a document, a heading or a test that is there."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from corpus.cases import all_cases

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
HISTORY = {DOCS / "changelog.md"}  # it speaks of what was there, and so does records/
HERE = Path(__file__).resolve()

# Where the facts came from: papers of those who began, which no clone has.
ELSEWHERE = re.compile(
    r"\b(SEMANTICS|CODEBASES)\b|\bDESIGN(\.md| \d| section)|\bTOOLS(\.md| \d)|\bIDIOMS(\.md|: | \d)"
)
PAGE = re.compile(r"(?<![\w/])docs/([\w/.-]+\.md)(?:#([\w-]+))?")
LINK = re.compile(r"\]\(([^)\s]+)\)")
TEST = re.compile(r"`(tests/[^`:A-Z]+)(?:::([^`]+))?`")  # not `tests/corpus/GROUP/NAME.py`
# what docs/semantics.md calls by a word, and where it is
SHOWN = re.compile(r"\b(fault|scenario|port|script) `([^`]+)`")
PLACES = {
    "fault": "tests/mutations/faults.*",
    "scenario": "tests/templates/scenarios.py",
    "port": "tests/pairs/*.diff",
    "script": "tests/corpus/*.diff",
}
ITALIC = re.compile(r"(?<!\*)\*([a-z0-9]+(?:_[a-z0-9]+)+)\*")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


@cache
def checked_files() -> tuple[Path, ...]:
    """What git has, or would have: code and documents."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.md"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    files = {ROOT / name for name in names if name} - HISTORY - {HERE}
    return tuple(sorted(file for file in files if file.is_file()))


@cache
def headings(page: Path) -> frozenset[str]:
    """The anchors that a Markdown page has, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return frozenset(re.sub(r"[^\w-]", "", title.lower().replace(" ", "-")) for title in titles)


def leads_nowhere(page: Path, heading: str) -> bool:
    return not page.exists() or bool(heading and heading not in headings(page))


def broken(file: Path, text: str) -> Iterator[str]:
    """The references in this text of `file` that lead nowhere."""
    yield from (found[0] for found in ELSEWHERE.finditer(text))
    yield from (found[0] for found in PAGE.finditer(text) if leads_nowhere(DOCS / found[1], found[2] or ""))
    if file.suffix != ".md":
        return
    for link in LINK.findall(CODE.sub("", text)):
        page, _, heading = link.partition("#")
        if "://" not in link and leads_nowhere((file.parent / page) if page else file, heading):
            yield link
    yield from (found[0] for found in TEST.finditer(text) if is_missing(found[1], found[2]))


def is_missing(path: str, name: str | None) -> bool:
    """Whether there is no such file in tests, or no function, key or case of that name in it (tests/diffs.py)."""
    if not any(ROOT.glob(path)):
        return True
    if name is None:
        return False
    text = (ROOT / path).read_text(encoding="utf-8")
    found = rf"\bdef {re.escape(name)}\(|\"{re.escape(name)}\"|^\+\+\+ {re.escape(name)}$"
    return not re.search(found, text, re.MULTILINE)


@pytest.mark.parametrize(
    "folder", ["README.md", "benchmarks", "docs", "dp2ddp", "examples", "templates", "tests"]
)
def test_every_reference_leads_somewhere(folder: str) -> None:
    files = [file for file in checked_files() if file.relative_to(ROOT).parts[0] == folder]
    assert files
    found = [
        (str(file.relative_to(ROOT)), one)
        for file in files
        for one in broken(file, file.read_text("utf-8", "replace"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "SEMANTICS 63.",
        "(DESIGN section 5)",
        "as IDIOMS: 7 sites",
        "TOOLS.md 4.1",
        "docs/nothing.md",
        "docs/semantics.md#nothing",
        "[there](nothing.md)",
        "[there](semantics.md#nothing)",
        "[here](#nothing)",
        "`tests/nothing.py`",
        "`tests/test_docs.py::test_nothing_at_all`",
        "`tests/mutations/faults.diff::mean of nothing`",
    ],
)
def test_a_reference_that_leads_nowhere_is_found(text: str) -> None:
    assert len(list(broken(DOCS / "page.md", text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "docs/semantics.md#uneven-chunks",
        "[there](semantics.md#uneven-chunks)",
        "`tests/test_docs.py::headings`",
        "`tests/mutations/faults.diff::mean of means`",
        "`tests/templates/scenarios.py::mixup`",
        "IDIOMS = rows()",
    ],
)
def test_a_reference_that_leads_somewhere_is_none_of_them(text: str) -> None:
    assert list(broken(DOCS / "page.md", text)) == []


def test_every_claim_about_dataparallel_names_its_test_or_its_source() -> None:
    claims = re.split(r"^### ", (DOCS / "semantics.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(claims) > 60
    bare = [claim.splitlines()[0] for claim in claims if not is_proven(claim.split("\n## ")[0])]
    assert bare == []


def is_proven(claim: str) -> bool:
    last = claim.strip().splitlines()
    if any(line.startswith("Not tested here: ") for line in last):
        return True
    shown = next((line for line in last if line.startswith("Shown by: ")), "")
    there = [is_there(word, name) for word, name in SHOWN.findall(shown)]
    there += [not is_missing(path, name or None) for path, name in TEST.findall(shown)]
    return bool(there) and all(there)


def is_there(word: str, name: str) -> bool:
    """Whether there is a file of that name, or a case in one of the files that hold several."""
    folder = (ROOT / PLACES[word]).parent
    files = (path.relative_to(ROOT).as_posix() for path in ROOT.glob(PLACES[word]))
    return any(folder.glob(f"{name}*")) or not all(is_missing(file, name) for file in files)


@pytest.mark.parametrize(
    ("shown", "proven"),
    [
        ("fault `mean of means`, scenario `mixup`", True),
        ("`tests/test_docs.py::headings`", True),
        ("port `mlp/full_batch_on_every_rank`", True),
        ("fault `mean of nothing`", False),
        ("scenario `mixup`, script `data/nothing.py`", False),
        ("an argument", False),
    ],
)
def test_what_shows_a_claim_must_be_there(shown: str, proven: bool) -> None:
    assert is_proven(f"claim\nText.\nShown by: {shown}") == proven


def test_names_in_italics_are_scripts_of_the_corpus() -> None:
    names = {case.name.partition("/")[2] for case in all_cases()}
    found = [
        name
        for page in ("training.md", "effects.md")
        for name in ITALIC.findall((DOCS / page).read_text(encoding="utf-8"))
    ]
    assert len(found) > 50
    assert set(found) - names == set()
