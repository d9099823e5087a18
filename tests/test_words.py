"""One language: names and docstrings use the words of the glossary (docs/architecture.md), and no private ones."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "cli",
    "codemod",
    "comparison",
    "costs",
    "doctor",
    "launch",
    "report",
    "runtime",
    "source",
    "templates",
    "trace",
    "trial",
)  # the others have theirs to come
# Templates end in other people's files, one name over all of them (tests/codemod/test_lift.py); what a conversion says
# of a helper may have the helper's name.
OWN_NAMES = tuple(package for package in PACKAGES if package != "templates")
COMMANDS = {"convert", "launch", "run"}  # a file of dp2ddp/cli has its command's name
PRIVATE = {
    "told": "text, message, or what it is",
    "wanted": "options, target, or what it is",
    "desk": "run_folder",
    "voice": "printing rank, output",
    "voices": "printing_ranks",
    "ours": "expected (DataParallel's)",
    "theirs": "actual (a rank's)",
    "pulse": "heartbeat",
    "patience": "timeout",
    "asked": "requested",
    "away": "difference, distance",
}
GENERIC = {"one", "found"}  # a variable is called what it is


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def files(*packages: str) -> Iterator[Path]:
    for package in packages or PACKAGES:
        folder = (ROOT if package == "templates" else ROOT / "dp2ddp") / package
        yield from sorted(path for path in folder.rglob("*.py"))


def names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name


def definitions(tree: ast.Module) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield node


def test_no_name_is_a_private_word() -> None:
    uses = [
        f"{path.relative_to(ROOT)}: {name}: {PRIVATE[word]}"
        for path in files()
        for node in ast.walk(tree_of(path))
        for name in names(node)
        for word in name.lower().strip("_").split("_")
        if word in PRIVATE
    ]
    assert sorted(set(uses)) == []


def test_no_variable_has_a_name_that_fits_everything() -> None:
    uses = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, (ast.Name, ast.arg))
        for name in names(node)
        if name in GENERIC
    }
    assert sorted(uses) == []


def test_docstrings_say_what_a_thing_is_or_does() -> None:
    """A docstring that begins with "Of" leaves out what it is of those things."""
    begin = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in files()
        for node in definitions(tree_of(path))
        if (text := ast.get_docstring(node)) and text.startswith("Of ")
    ]
    assert begin == []


def test_no_class_name_stands_for_two_things() -> None:
    found = Counter(
        node.name
        for path in files(*OWN_NAMES)
        for node in tree_of(path).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in found.items() if count > 1] == []


def test_no_module_name_stands_for_two_things() -> None:
    stems = Counter(path.stem for path in files(*OWN_NAMES) if not path.stem.startswith("__"))
    assert {stem for stem, count in stems.items() if count > 1} == COMMANDS
