"""The module that a conversion puts beside the scripts it writes; known by its name and its first words."""

from __future__ import annotations

from dp2ddp.source.files import SourceFile
from dp2ddp.source.parsing import LINE_END

NAME = "ddp_helpers"
PACKAGE = "dp2ddp.helpers"  # the same, installed
# what their names begin with; the last one, until 0.1
IMPORTED = (f"{NAME}.", f"{PACKAGE}.", "dp2ddp.templates.")
FILE = f"{NAME}.py"
OPENING = '"""What scripts need that dp2ddp converted'
# The lines around helpers that a conversion has pasted into a script (--one-file).
HELPERS_START = "# --- helpers copied from dp2ddp.templates"
HELPERS_END = "# --- end of the copied helpers"


def is_helper_module(text: str) -> bool:
    """Whether dp2ddp wrote this module; its owner may have changed it since."""
    return text.startswith(OPENING)


def pasted_lines(source: SourceFile) -> range:
    """The lines of helpers that a conversion has pasted into a script."""
    return pasted_in(source.text)


def pasted_in(text: str) -> range:
    """The same of a text."""
    if HELPERS_START not in text:
        return range(0)
    lines = LINE_END.split(text)
    first = next((number for number, line in enumerate(lines, 1) if line.startswith(HELPERS_START)), 0)
    last = next((number for number, line in enumerate(lines, 1) if line.startswith(HELPERS_END)), 0)
    return range(first, last + 1) if first else range(0)
