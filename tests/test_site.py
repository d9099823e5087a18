"""The documents as a site: it builds without a warning, has every page, and needs nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from dp2ddp.review.check_rule import described_rules

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; warnings of Sphinx and of its extensions are errors."""
    folder = tmp_path_factory.mktemp("site")
    build(DOCS, folder)
    return folder


def build(docs: Path, folder: Path, *options: str, expected: int = 0) -> str:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"]
    result = subprocess.run(
        [*command, *options, str(docs), str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == expected, result.stdout + result.stderr
    return result.stderr


def pages(site: Path) -> list[Path]:
    return sorted(site.rglob("*.html"))


def test_every_document_is_a_page_and_in_the_sidebar(site: Path) -> None:
    documents = {path.relative_to(DOCS).with_suffix("") for path in DOCS.rglob("*.md")}
    built = {path.relative_to(site).with_suffix("") for path in pages(site)}
    sidebar = (site / "index.html").read_text(encoding="utf-8").partition('class="sidebar-tree"')[2]
    listed = {
        Path(found).with_suffix("")
        for found in re.findall(r'class="reference internal" href="([^"#]+)"', sidebar)
    }

    assert built - {Path("genindex"), Path("search")} == documents
    assert documents - {Path("index")} <= listed
    assert not (site / "_downloads").exists()  # files beside docs are named, not copied


def test_each_rule_has_a_page_with_links_to_what_its_text_names(site: Path) -> None:
    for rule in described_rules():
        page = (site / f"rules/{rule.code}.html").read_text(encoding="utf-8")
        named = re.findall(r"(?<!\w)docs/[\w/-]+\.md(?:#[\w-]+)?", rule.page())
        assert re.findall(r">(docs/[\w/-]+\.md(?:#[\w-]+)?)</span></a>", page) == named
        assert "](" not in rule.page()


def test_links_lead_to_files_and_headings_of_the_site(site: Path) -> None:
    """What Sphinx does not see: the HTML as it came out."""
    anchors = {
        path: set(re.findall(r'\bid="([^"]+)"', path.read_text(encoding="utf-8"))) for path in pages(site)
    }
    broken = []
    for page in pages(site):
        for found in re.findall(r'\b(?:href|src)="([^"]*)"', page.read_text(encoding="utf-8")):
            link = urlsplit(found)
            target = (page.parent / unquote(link.path)).resolve() if link.path else page
            heading = unquote(link.fragment)
            if link.scheme in ("", "file") and (
                not target.is_file() or (heading and target in anchors and heading not in anchors[target])
            ):
                broken.append((page.name, found))
    assert broken == []


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    """Links may lead away; scripts, styles, fonts and pictures lie in the folder."""
    for page in pages(site):
        text = page.read_text(encoding="utf-8")
        assert (
            re.findall(r'<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"', text) == []
        )
    for style in site.rglob("*.css"):
        assert (
            re.findall(r'(?:url\(|@import )["\']?(?:https?:)?//[^)]*', style.read_text(encoding="utf-8"))
            == []
        )


def test_a_link_to_nothing_ends_the_build(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "conf.py").write_text((DOCS / "conf.py").read_text(encoding="utf-8"))
    (docs / "site").mkdir()
    (docs / "site" / "site.css").touch()
    (tmp_path / "beside.py").touch()
    lines = [
        "# Title",
        "[away](../beside.py)",
        "[gone](../gone.py)",
        "[none](none.md)",
        "[no heading](index.md#none)",
    ]
    (docs / "index.md").write_text("\n\n".join(lines) + "\n")

    warnings = build(docs, tmp_path / "site", "-D", "makes_pages=0", expected=1)

    assert re.findall(r"index\.md:(\d+): WARNING", warnings) == ["5", "7", "9"]
