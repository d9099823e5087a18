"""How the documents become a site: `sphinx-build -W --keep-going docs build/site`, then open build/site/index.html.

The pages stay plain Markdown that reads well on GitHub, too: no directives of Sphinx stand in them. What the sidebar
shows is the lists of links in `index.md` and in `rules/README.md`.
"""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

project = "dp2ddp"
copyright = "the authors of dp2ddp, MIT license"
extensions = ["myst_parser"]
exclude_patterns = ["pictures"]

myst_heading_anchors = 4  # as GitHub makes them, for links like semantics.md#order
myst_enable_extensions = ["linkify"]  # addresses are links, as on GitHub
myst_linkify_fuzzy_links = False  # and train.py is none
smartquotes = False  # what people type is shown as they type it

html_theme = "furo"
html_title = "dp2ddp"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["site"]
html_css_files = ["site.css"]
highlight_language = "none"  # a block without a language is a terminal's text

LISTS = ("index", "rules/README")
_HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
_LISTED = re.compile(r"^- \[([^\]]+)\]\(([^)#:]+\.md)\)", re.MULTILINE)


def add_sidebar(app: Sphinx, page: str, source: list[str]) -> None:
    """Behind a page of lists: each list of links once more, as a part of the sidebar under its heading."""
    if page not in LISTS:
        return
    parts = _HEADING.split(source[0])
    for heading, text in zip(parts[1::2], parts[2::2], strict=True):
        entries = [f"{label} <{target}>" for label, target in _LISTED.findall(text)]
        source[0] += "\n".join(
            ["", "```{toctree}", ":hidden:", ":titlesonly:", f":caption: {heading}", "", *entries, "```", ""]
        )


def follow_links(app: Sphinx, page: nodes.document) -> None:
    """Links that lead to no page: to a folder whose README is the page, or out of docs.

    The site has no place for files beside docs (examples, tests), so that their names are text there; on GitHub they
    are links. A link to nothing stays, and is an error.
    """
    docs = Path(app.srcdir).resolve()
    here = docs / app.env.docname
    for link in [*page.findall(addnodes.pending_xref), *page.findall(addnodes.download_reference)]:
        is_page = link.get("refdomain") == "doc"  # its target has lost the suffix, and starts at docs
        path = (
            docs / f"{link['reftarget']}.md" if is_page else here.parent / link["reftarget"].partition("#")[0]
        )
        path = path.resolve()
        if path.exists() and not path.is_relative_to(docs):
            link.replace_self(link.children)
        elif (path / "README.md").exists():
            link["refdomain"] = "doc"
            link["reftarget"] = (path / "README").relative_to(docs).as_posix()
            link["reftargetid"] = None


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_sidebar)
    app.connect("doctree-read", follow_links, priority=400)  # before Sphinx collects files to copy
