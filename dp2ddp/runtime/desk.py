"""The desk of a run: a folder where each rank leaves notes for the parent.

stage.json        what to run (written by the parent)
pulses            8 bytes a rank: how often it has been seen to move; a mapped file, so a beat costs nothing
rankN.json        process id, how it ended (rank-1: the process that starts the ranks, where the script does)
rankN.calls       its last collectives (calls.py)
rankN.writes      files that it opened for writing (writes.py)
rankN.stacks      where its threads stand, written on SIGUSR1 (also while it waits inside C code)
asked             a rank has failed, and all have been asked where they stand (written by the parent)
rankN.out, .err   what it printed, if the stage says `capture`
rendezvous        files in which ranks meet, where the script names one (rendezvous.py)
"""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
import shutil
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.runtime.stage import Stage

LAUNCHER = -1  # in place of a rank: the process in which a script starts its ranks itself
RENDEZVOUS = "rendezvous"
_LOOK = 0.02  # seconds between two looks
_COUNTER = struct.Struct("<Q")


@dataclass(frozen=True)
class Note:
    """What a rank says of itself; `code` is None while it runs (or if it was killed)."""

    pid: int
    code: int | None = None
    ended: float = 0.0  # on the clock that all processes of a machine share
    error: str = ""  # the last line of the traceback
    place: str = ""  # the user's line that it came from


def write_note(desk: Path, rank: int, note: Note) -> None:
    path = desk / f"rank{rank}.json"
    path.with_suffix(".new").write_text(json.dumps(dataclasses.asdict(note)), encoding="utf-8")
    os.replace(path.with_suffix(".new"), path)


def read_note(desk: Path, rank: int) -> Note | None:
    path = desk / f"rank{rank}.json"
    return Note(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def say_asked(desk: Path) -> None:
    (desk / "asked").touch()


def wait_until_asked(desk: Path, seconds: float) -> None:
    """Nobody may be there who asks: `seconds` at most."""
    end = time.monotonic() + seconds
    while not (desk / "asked").exists() and time.monotonic() < end:
        time.sleep(_LOOK)


def prepare_desk(stage: Stage) -> Path:
    """Returns the stage file."""
    path = stage.write()
    make_pulses(Path(stage.desk), len(stage.ranks))
    (Path(stage.desk) / "asked").unlink(missing_ok=True)  # of a run before
    shutil.rmtree(Path(stage.desk) / RENDEZVOUS, ignore_errors=True)
    return path


def make_pulses(desk: Path, ranks: int) -> None:
    (desk / "pulses").write_bytes(bytes(_COUNTER.size * ranks))


def read_pulses(desk: Path) -> tuple[int, ...]:
    return tuple(count for (count,) in _COUNTER.iter_unpack((desk / "pulses").read_bytes()))


class Pulse:
    """A rank's own counter."""

    def __init__(self, desk: Path, rank: int) -> None:
        with (desk / "pulses").open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.belong_to(rank)

    def belong_to(self, rank: int) -> None:
        """From now on; a process may learn late which rank it is."""
        self._offset = rank * _COUNTER.size
        self._count = 0

    def beat(self) -> None:
        self._count += 1
        _COUNTER.pack_into(self._map, self._offset, self._count)
