"""In a run that has a copy with links: the kernel refuses what is written in the user's folders, whoever writes.

Landlock (Linux 5.19 and newer, without root; landlock(7)) holds for this process and all that it starts. It knows what
is allowed below folders and no exceptions from that, so all that lies beside the user's folders is allowed, thing by
thing: what is made directly in a folder above one of them is refused as well.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _BENEATH, _NO_NEW_PRIVILEGES = 1, 1, 38
_WRITE_FILE, _REFER, _TRUNCATE = 1 << 1, 1 << 13, 1 << 14
# remove and make files, folders, links, pipes, sockets, devices
_CHANGES = sum(1 << bit for bit in range(4, 13))
_OLDEST = 2  # the first version in which a file can be moved to another folder
_MOST = 5_000  # things beside the user's folders; with more, the originals are only asked afterwards


def fence(kept: Sequence[Path], allowed: Sequence[Path]) -> bool:
    """From now on nothing is written below `kept`; below `allowed` it is. False where the system cannot do it."""
    if sys.platform != "linux" or not kept or (version := _version()) < _OLDEST:
        return False
    places = list(_beside({*kept}, allowed))
    if len(places) > _MOST:
        return False
    handled = _WRITE_FILE | _CHANGES | _REFER | (_TRUNCATE if version >= 3 else 0)
    library = ctypes.CDLL(None, use_errno=True)
    attributes = struct.pack("=Q", handled)
    ruleset = library.syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return False
    for place in places:
        _allow(library, ruleset, place, handled)
    library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    done: bool = library.syscall(_RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return done


def _version() -> int:
    answer: int = ctypes.CDLL(None, use_errno=True).syscall(_CREATE_RULESET, None, 0, _VERSION)
    return answer


def _allow(library: ctypes.CDLL, ruleset: int, place: Path, handled: int) -> None:
    with suppress(OSError):  # gone meanwhile, or not ours to look at: then it cannot be written either
        file = os.open(place, os.O_PATH | os.O_CLOEXEC)
        rights = handled if place.is_dir() else handled & (_WRITE_FILE | _TRUNCATE)
        rule = struct.pack("=Qi", rights, file)
        library.syscall(_ADD_RULE, ruleset, _BENEATH, rule, 0)
        os.close(file)


def _beside(kept: set[Path], allowed: Iterable[Path]) -> Iterator[Path]:
    """All that does not lie below `kept`, as the topmost folders and files that hold it."""
    yield from allowed
    above = {parent for folder in kept for parent in folder.parents}
    for folder in above:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                path = Path(entry.path)
                if path not in above and path not in kept and not entry.is_symlink():
                    yield path
