"""How any page is made: one HTML file that needs nothing else, readable offline, without JavaScript, on paper."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup


def rendered(
    template: str,
    command: str,
    *,
    title: str,
    look: str,
    places: Sequence[tuple[str, str]],
    document: Any,
    **parts: Any,
) -> str:
    """The page of a command's result; whatever comes from a script is escaped.

    title: of the browser's window. look: how the head looks, a class of page.css. places: (anchor, words) of what can
    be jumped to. document: the result as data, for the page's last element. parts: what the template shows.
    """
    script = _text_of("page.js")
    environment = Environment(
        loader=PackageLoader("dp2ddp.report", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(template).render(
        command=command,
        title=title,
        look=look,
        places=places,
        document=in_page(document),
        style=Markup(_text_of("page.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        points=lambda chart: in_page(chart.points),
        **parts,
    )


def _text_of(name: str) -> str:
    """The text of a file in this package."""
    return files("dp2ddp.report").joinpath(name).read_text(encoding="utf-8")


def in_page(data: Any) -> Markup:
    """In few letters, and unable to end the element it stands in, whatever names and lines it holds."""
    document = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        document = document.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(document)
