"""The module that a conversion puts beside the scripts it writes; known by its name and its first words."""

from __future__ import annotations

NAME = "ddp_helpers"
PACKAGE = "dp2ddp.helpers"  # the same, installed
IMPORTED = (
    f"{NAME}.",
    f"{PACKAGE}.",
    "dp2ddp.templates.",
)  # what their names begin with; the last one, until 0.1
FILE = f"{NAME}.py"
OPENING = '"""What scripts need that dp2ddp converted'


def is_helper_module(text: str) -> bool:
    """Whether dp2ddp wrote this module; its owner may have changed it since."""
    return text.startswith(OPENING)
