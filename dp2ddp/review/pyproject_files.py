"""The pyproject.toml files that count for a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

FILE = "pyproject.toml"


def files_upwards(folder: str) -> Iterator[str]:
    """From a folder upwards, to the top of its git repository, to the user's home, or to the root.

    A file of another user is the last one, and not to be read: whoever may write into a folder above (/tmp) would
    decide what our commands do.
    """
    home = os.path.realpath(os.path.expanduser("~"))
    for place in _upwards(os.path.realpath(folder)):
        path = os.path.join(place, FILE)
        if os.path.isfile(path):
            yield path
            if is_of_another_user(path):
                return
        if place == home or os.path.lexists(os.path.join(place, ".git")):
            return


def is_of_another_user(path: str) -> bool:
    """Root is none: it may change our own code, too, and files of images (COPY in a Dockerfile) are root's."""
    return os.stat(path).st_uid not in (0, os.geteuid())


def names_us(path: str) -> bool:
    """Whether a file may have a table for us; one that cannot be read may."""
    try:
        with open(path, "rb") as file:
            return b"dp2ddp" in file.read()
    except OSError:
        return True


def _upwards(folder: str) -> Iterator[str]:
    yield folder
    above = os.path.dirname(folder)
    if above != folder:
        yield from _upwards(above)
