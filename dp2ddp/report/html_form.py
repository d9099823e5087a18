"""A document as one HTML file that needs nothing else, readable offline, without JavaScript, on paper.

Each kind of block has a macro of its name in blocks.html.j2. Whatever comes from a script is escaped.
"""

from __future__ import annotations

import base64
import hashlib
import urllib.parse
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.python import PythonLexer

from dp2ddp.report.result_document import Code, Document, Facts, Words, parts
from dp2ddp.report.script_changes import Hunk, ScriptChange, hunks

_SAFE = ",.+-:()[]/ "  # in the address of a text


def page(document: Document, data: Any) -> str:
    """The whole file; `data`, the result as JSON, is its last element."""
    script = _text_of("page.js")
    blocks = (block for section in document.sections for block in section.blocks)
    linked = [block for block in blocks if isinstance(block, Facts) and block.is_linked]
    environment = Environment(
        loader=PackageLoader("dp2ddp.report", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    # in few letters; tojson lets nothing that names and lines hold end the element it stands in
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.globals |= {
        "words": _words,
        "hunks": _coloured_hunks,
        "data_url": lambda text: f"data:text/csv;charset=utf-8,{urllib.parse.quote(text, safe=_SAFE)}",
        # labels of facts that other parts of the page lead to
        "linked": frozenset(row.label for each in linked for row in each.rows),
    }
    macros = environment.get_template("blocks.html.j2").module
    return environment.get_template("page.html.j2").render(
        document=document,
        data=data,
        show=lambda block: getattr(macros, type(block).__name__.lower())(block),
        style=Markup(_text_of("page.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _coloured_hunks(change: ScriptChange) -> Iterator[Hunk]:
    """Hunks whose lines are HTML."""
    old, new = coloured(change.before), coloured(change.after)
    for hunk in hunks(change):
        lines = (
            replace(line, text=new[line.new - 1] if line.new else old[line.old - 1])
            for line in hunk.lines
            if line.kind != "gap"
        )
        yield replace(hunk, lines=tuple(lines) or hunk.lines)


def coloured(text: str) -> list[Markup]:
    """The lines of Python as HTML, escaped; without colours where Pygments counts lines otherwise than `splitlines`."""
    lines = text.splitlines()
    lexer, formatter = (
        PythonLexer(stripnl=False, ensurenl=False),
        HtmlFormatter(nowrap=True, classprefix="py-"),
    )
    html = highlight(text, lexer, formatter).split("\n")
    if "\n".join(lines) != text.removesuffix("\n"):  # form feeds and the like
        return [escape(line) for line in lines]
    return [Markup(line) for line in html[: len(lines)]]


def _words(words: Words) -> Markup:
    return Markup("").join(
        Markup("<code>{}</code>").format(part.text) if isinstance(part, Code) else part
        for part in parts(words)
    )


def _text_of(name: str) -> str:
    """The text of a file in this package."""
    return files("dp2ddp.report").joinpath(name).read_text(encoding="utf-8")
