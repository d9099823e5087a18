"""The folder of a run, where each rank writes what the parent needs to know of it.

stage.json        what to run (written by the parent)
heartbeats        16 bytes a rank: how often it has been seen to move, and the steps that it has taken; a mapped file,
                  so a beat costs nothing
rankN.json        process id, how it ended (rank-1: the process that starts the ranks, where the script does)
rankN.calls       its last collectives (collectives.py)
rankN.writes      files that it opened for writing (writes.py)
unseeded          the script's lines where random numbers begin without a seed (perturb/seeds.py)
rankN.stacks      where its threads stand, written on SIGUSR1 (also while it waits inside C code)
stack-request     a rank has failed, and all have been asked where they stand (written by the parent)
rankN.out, .err   what it printed, if the stage says `capture`
rendezvous        files in which ranks meet, where the script names one (meeting.py)
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
UNSEEDED = "unseeded"
_LOOK = 0.02  # seconds between two looks
_COUNTERS = struct.Struct("<QQ")  # beats, steps


@dataclass(frozen=True)
class RankStatus:
    """What a rank says of itself; `code` is its exit code, None while it runs (or if it was killed)."""

    pid: int
    code: int | None = None
    ended: float = 0.0  # on the clock that all processes of a machine share
    error: str = ""  # the last line of the traceback
    place: str = ""  # the user's line that it came from

    @property
    def is_over(self) -> bool:
        """Whether it says so."""
        return self.code is not None


def write_status(run_folder: Path, rank: int, status: RankStatus) -> None:
    """Write or replace a rank's status."""
    write_whole(run_folder / f"rank{rank}.json", json.dumps(dataclasses.asdict(status)))


def write_whole(path: Path, text: str) -> None:
    """Write or replace a file, in one step: who reads never sees half of it."""
    path.with_suffix(".new").write_text(text, encoding="utf-8")
    os.replace(path.with_suffix(".new"), path)


def read_status(run_folder: Path, rank: int) -> RankStatus | None:
    """A rank's status; None if it has not begun."""
    path = run_folder / f"rank{rank}.json"
    return RankStatus(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def read_statuses(stage: Stage) -> dict[int, RankStatus]:
    """By rank, of those that have begun; by LAUNCHER that of the process in which the script starts them."""
    read = ((rank, read_status(Path(stage.run_folder), rank)) for rank in (LAUNCHER, *stage.ranks))
    return {rank: status for rank, status in read if status}


def unseeded_places(run_folder: Path) -> tuple[str, ...]:
    """The user's lines where a run began random numbers without a seed, each once."""
    path = run_folder / UNSEEDED
    return tuple(dict.fromkeys(path.read_text(encoding="utf-8").splitlines())) if path.exists() else ()


def request_stacks(run_folder: Path) -> None:
    """Say that all ranks have been asked where they are: one that failed need not wait any longer."""
    (run_folder / "stack-request").touch()


def wait_for_stack_request(run_folder: Path, seconds: float) -> None:
    """Wait for `request_stacks`, `seconds` at most: nobody may be there who asks."""
    end = time.monotonic() + seconds
    while not (run_folder / "stack-request").exists() and time.monotonic() < end:
        time.sleep(_LOOK)


def prepare_run_folder(stage: Stage) -> Path:
    """Write what ranks need before they start; returns the stage file."""
    run_folder = Path(stage.run_folder)
    run_folder.mkdir(parents=True, exist_ok=True)
    path = run_folder / "stage.json"
    path.write_text(stage.to_json(), encoding="utf-8")
    (run_folder / "heartbeats").write_bytes(bytes(_COUNTERS.size * len(stage.ranks)))
    (run_folder / "stack-request").unlink(missing_ok=True)  # of a run before
    shutil.rmtree(run_folder / RENDEZVOUS, ignore_errors=True)
    return path


def read_heartbeats(run_folder: Path) -> tuple[tuple[int, int], ...]:
    """How often each rank has been seen to move, and how many optimizer steps it has taken; by rank."""
    return tuple(_COUNTERS.iter_unpack((run_folder / "heartbeats").read_bytes()))


class Heartbeat:
    """A rank's own counters: how often it was seen to move, and its steps."""

    def __init__(self, run_folder: Path, rank: int) -> None:
        with (run_folder / "heartbeats").open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self.belong_to(rank)

    def belong_to(self, rank: int) -> None:
        """From now on; a process may learn late which rank it is."""
        self._offset = rank * _COUNTERS.size
        self._beats = self._steps = 0

    def beat(self) -> None:
        """The rank has moved."""
        self._beats += 1
        _COUNTERS.pack_into(self._map, self._offset, self._beats, self._steps)

    def step(self) -> None:
        """An optimizer of the rank has taken a step."""
        self._steps += 1
        self.beat()
