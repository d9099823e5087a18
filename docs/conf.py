"""How the documents become a site: `sphinx-build -W --keep-going docs build/site`, then open build/site/index.html.

The pages stay plain Markdown that reads well on GitHub, too: no directives of Sphinx stand in them. What the sidebar
shows is the lists of links in `index.md` and in `rules/README.md`.

Pages of the rules, of the causes and of the idioms are made here, when the site is built; git does not keep them. So a
page names a rule by its code, DDP201, and a cause by its own in brackets, [batch-size]: links on the site, and plain
text elsewhere.
"""

from __future__ import annotations

import re
import sys
from itertools import groupby
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from dp2ddp.codemod.rule import DescribedRule, rule_text
from dp2ddp.comparison.causes.catalogue import FAMILIES, catalogue
from dp2ddp.review.check_rule import described_rules

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
DOCS = Path(__file__).resolve().parent
# folders that pages are made of, and the pages
SOURCES = {
    DOCS.parent / "dp2ddp/codemod/rules": "rules/README",
    DOCS.parent / "dp2ddp/review/rules": "rules/README",
    DOCS.parent / "dp2ddp/comparison/causes/entries": "causes",
    DOCS.parent / "tests/corpus": "idioms",
}
_TITLES = {  # of the families of causes
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
_HUNDREDS = {  # of the codes of rules
    "1": "Process and device",
    "2": "Model",
    "3": "Data",
    "4": "Gradients and metrics",
    "5": "What the script writes",
    "6": "Mistakes in DDP code, found by `dp2ddp check`",
    "7": "What the idiomatic style writes, and what it says",
    "9": "Hazards: what stands in the way",
}
_DOCUMENT = re.compile(r"(?<![\w/])docs/([\w/-]+\.md(?:#[\w-]+)?)")
_HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
_LISTED = re.compile(r"^- \[([^\]]+)\]\(([^)#:]+)\)", re.MULTILINE)
_CODE = re.compile(r"\bDDP\d{3}\b|(?<=\[)[a-z]+(?:-[a-z]+)*(?=\])")


def make_pages(app: Sphinx) -> None:
    """Write what is made anew; a page that has not changed stays, so that Sphinx need not read it again."""
    if not app.config.makes_pages:
        return
    pages = {f"rules/{rule.code}.md": page_of_rule(rule) for rule in described_rules()}
    pages |= {"rules/README.md": page_of_rules()}
    pages |= {"causes.md": page_of_causes(), "idioms.md": page_of_idioms()}
    folder = Path(app.srcdir)
    (folder / "rules").mkdir(exist_ok=True)
    for path in (folder / "rules").iterdir():
        if f"rules/{path.name}" not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def page_of_rule(rule: DescribedRule) -> str:
    """With links to the documents that it names: `docs/semantics.md#order`."""
    text, heading, examples = rule_text(rule).partition("\n## Examples\n")
    return _DOCUMENT.sub(lambda found: f"[{found[0]}](../{found[1]})", text) + heading + examples


def page_of_rules() -> str:
    """The page that lists them."""
    lines = ["# Rules", "", "`dp2ddp rules` prints this list, `dp2ddp rules CODE` a page."]
    for family, rules in groupby(described_rules(), key=lambda rule: rule.code[3]):
        lines += ["", f"## {_HUNDREDS[family]}", ""]
        lines += [f"- [{rule.code} {rule.name}]({rule.code}.md): {rule.summary()}" for rule in rules]
    return "\n".join(lines) + "\n"


def page_of_causes() -> str:
    lines = [
        "# Causes",
        "",
        "What `dp2ddp verify` names when two runs differ, in the order of cause and effect. Each has a signature in",
        "figures; the report shows them, and what to change. W is the number of devices.",
    ]
    for family in FAMILIES:
        lines += ["", f"## {_TITLES[family]}", ""]
        for entry in (entry for entry in catalogue().values() if entry.family == family):
            lines += [f"### {entry.code}", "", entry.title, ""]
            lines += [f"- Signature: {entry.signature}", f"- What to change: {entry.advice}"]
            lines += [f"- In a conversion of ours: {', '.join(entry.rules)}"] * bool(entry.rules) + [""]
    return "\n".join(lines).replace("{W}", "W").rstrip() + "\n"


def page_of_idioms() -> str:
    sys.path.append(str(DOCS.parent / "tests"))
    from corpus.cases import all_cases
    from corpus.idioms import Entry, page

    return page([Entry(case.name, case.idioms, "") for case in all_cases()])


def add_sidebar(app: Sphinx, page: str, source: list[str]) -> None:
    """Behind a page of lists: each list of links once more, as a part of the sidebar under its heading."""
    if page not in LISTS:
        return
    parts = _HEADING.split(source[0])
    for heading, text in zip(parts[1::2], parts[2::2], strict=True):
        listed = ((label, page_of(target)) for label, target in _LISTED.findall(text))
        entries = [f"{label} <{target}>" for label, target in listed if target]
        source[0] += "\n".join(
            ["", "```{toctree}", ":hidden:", ":titlesonly:", f":caption: {heading}", "", *entries, "```", ""]
        )


def page_of(target: str) -> str | None:
    """The page that a link in a list leads to, if it is one of the site."""
    return target if target.endswith(".md") else SOURCES.get((DOCS / target).resolve())


def link_codes(app: Sphinx, page: nodes.document, name: str) -> None:
    """A rule's code in a sentence or a table, and a cause's in brackets, lead to where they are explained."""
    for text in [*page.findall(nodes.Text)]:
        plain = isinstance(text.parent, (nodes.paragraph, nodes.emphasis, nodes.strong, nodes.literal))
        if not plain or isinstance(text.parent.parent, nodes.reference):
            continue
        parts: list[nodes.Node] = []
        end = 0
        for found in _CODE.finditer(text):
            address = address_of(app, name, found[0])
            if address:
                parts += [
                    nodes.Text(text[end : found.start()]),
                    nodes.reference("", found[0], refuri=address, internal=True),
                ]
                end = found.end()
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(text[end:])])


def address_of(app: Sphinx, name: str, code: str) -> str | None:
    """Where a page links to for a code; nowhere if there is none of that name, or the page is the rule's own."""
    if code in catalogue():
        return f"{app.builder.get_relative_uri(name, 'causes')}#{code}"
    page = f"rules/{code}"
    is_there = page in app.env.found_docs and page != name
    return app.builder.get_relative_uri(name, page) if is_there else None


def follow_links(app: Sphinx, page: nodes.document) -> None:
    """Links that lead out of docs: to what a page is made of, or to a file that the site has no place for.

    The former lead to that page; the latter (examples, tests) are text on the site, and links on GitHub. A link to
    nothing stays, and is an error.
    """
    docs = Path(app.srcdir).resolve()
    for link in [*page.findall(addnodes.pending_xref), *page.findall(addnodes.download_reference)]:
        if link.get("refdomain") == "doc":  # its target has lost the suffix, and starts at docs
            path = docs / f"{link['reftarget']}.md"
        else:
            path = (docs / app.env.docname).parent / link["reftarget"].partition("#")[0]
        path = path.resolve()
        if path in SOURCES:
            link["refdomain"], link["reftarget"], link["reftargetid"] = "doc", SOURCES[path], None
        elif path.exists() and not path.is_relative_to(docs):
            link.replace_self(link.children)


def setup(app: Sphinx) -> None:
    app.add_config_value("makes_pages", True, "env")
    app.connect("builder-inited", make_pages)
    app.connect("doctree-resolved", link_codes)
    app.connect("source-read", add_sidebar)
    app.connect("doctree-read", follow_links, priority=400)  # before Sphinx collects files to copy
