"""The module that a conversion puts beside the scripts it writes; known by its name and its first words."""

from __future__ import annotations

NAME = "ddp_helpers"
FILE = f"{NAME}.py"
OPENING = '"""What scripts need that dp2ddp converted'


def is_helper_module(text: str) -> bool:
    """Whether dp2ddp wrote this module; its owner may have changed it since."""
    return text.startswith(OPENING)
