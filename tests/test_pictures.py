"""The pictures of README and docs are those that would be made today; if not: `python docs/pictures/make.py`."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "pictures"
PICTURES = ("progress.svg", "report.svg", "terminal.svg")


def shown_picture(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def make() -> ModuleType:
    """docs/pictures/make.py"""
    spec = importlib.util.spec_from_file_location("pictures", FOLDER / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_picture_is_shown_somewhere_and_each_that_is_shown_is_there() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {
        (page.parent / name).resolve().relative_to(FOLDER).as_posix()
        for page in pages
        for name in re.findall(r"!\[[^\]]+\]\(([^)]+\.svg)\)", page.read_text(encoding="utf-8"))
    }
    assert named == set(PICTURES) == {path.name for path in FOLDER.glob("*.svg")}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_small_and_asks_no_network(name: str) -> None:
    text = shown_picture(name)
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert len(text.encode()) < 60_000
    assert not re.search(r"url\(\"?http|href=", text)


def test_what_is_shown_meanwhile_is_drawn_so_today(make: ModuleType) -> None:
    assert make.words_of(shown_picture("progress.svg")) == make.words_of(make.progress())


@pytest.mark.torchrun
@pytest.mark.slow
def test_the_terminal_says_so_today(make: ModuleType, tmp_path: Path) -> None:
    folder = make.copied(make.SCRIPT, tmp_path)
    today = make.terminal(make.conversion(folder), make.verification(folder))

    assert make.words_of(shown_picture("terminal.svg")) == make.words_of(today)


@pytest.mark.torchrun
@pytest.mark.slow
def test_the_report_says_so_today(make: ModuleType, tmp_path: Path) -> None:
    """Words, not curves: which of the digits a processor rounds otherwise is nobody's business."""
    today = make.report(make.page_about_the_port(tmp_path))

    assert texts(shown_picture("report.svg")) == texts(today)
    assert f"DIFFERENT {make.PORT.name} parts from train.py" in today


def texts(picture: str) -> list[str]:
    """Titles, legends and axes."""
    elements = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(element.itertext()) for element in elements]
