"""Who wrote which file: one that every rank writes, and files outside of the folders that a run has copies of."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from dp2ddp.runtime.desk import LAUNCHER
from dp2ddp.runtime.writes import Write, read_writes
from dp2ddp.trial.prepare import Prepared
from dp2ddp.verify.causes.words import names_text, ranks_text
from dp2ddp.verify.outputs import FileDifference
from dp2ddp.verify.workspace import Leavings

_OF_THE_SYSTEM = ("/dev/", "/proc/", "/sys/", "/run/")
_CACHES = (
    "cache",
    "torchinductor",
    "triton",
    "matplotlib",
    "__pycache__",
    ".config",
    ".local",
    ".nv",
    ".keras",
)


def written_by_many(prepared: Prepared, leavings: Leavings) -> Iterator[FileDifference]:
    """Files that several ranks began anew: whole by luck where all write the same bytes, and torn where they do not."""
    ranks_of: dict[str, set[int]] = defaultdict(set)
    places_of: dict[str, set[str]] = defaultdict(set)
    for rank in prepared.stage.ranks:
        for write in _writes(prepared, rank):
            if write.anew:
                ranks_of[write.path].add(rank)
                places_of[write.path].add(write.place)
    for relative in leavings.written:
        place = leavings.folder / relative
        names = {str(place), os.path.realpath(place)}
        writers = {rank for name in names for rank in ranks_of[name]}
        if len(writers) > 1 and place.stat().st_size:  # a lock is empty
            yield _difference(relative, writers, {one for name in names for one in places_of[name]})


def _difference(path: str, ranks: set[int], places: set[str]) -> FileDifference:
    where = f" ({names_text(sorted(places - {''}))})" if places - {""} else ""
    return FileDifference(
        path, f"is written by {ranks_text(sorted(ranks))}{where}", ranks=tuple(sorted(ranks))
    )


def left_to_every_rank(prepared: Prepared) -> Iterator[FileDifference]:
    """What the ranks of a conversion open for writing, make, move or remove that it gave to none of them."""
    ranks: dict[str, set[int]] = defaultdict(set)
    places: dict[str, set[str]] = defaultdict(set)
    for rank in prepared.stage.ranks:
        for write in _writes(prepared, rank):
            if write.every_rank:
                ranks[write.path].add(rank)
                places[write.path].add(write.place)
    for path in ranks:
        yield _difference(_in_folder(prepared, path), {0, *ranks[path]}, places[path])


def _in_folder(prepared: Prepared, path: str) -> str:
    """As the user knows it: in the folder that the run has a copy of."""
    for one in prepared.workspaces:
        for folder in (str(one.folder), os.path.realpath(one.folder)):
            if path.startswith(f"{folder}{os.sep}"):
                return path[len(folder) + 1 :]
    return path


def written_outside(pair: Sequence[Prepared]) -> Iterator[str]:
    """Remarks on files that no copy protects; `pair`: DataParallel, DDP."""
    found = [
        {
            write.path
            for rank in (LAUNCHER, *one.stage.ranks)
            for write in _writes(one, rank)
            if _is_outside(one, write)
        }
        for one in pair
    ]
    for paths, who in (
        (found[0] & found[1], "both runs"),
        (found[0] - found[1], "DataParallel"),
        (found[1] - found[0], "DDP"),
    ):
        if paths:
            yield (
                f"{who} wrote to {names_text(sorted(paths))}, outside of the folder: not compared, and overwritten by "
                "each run"
            )


def _writes(prepared: Prepared, rank: int) -> tuple[Write, ...]:
    return read_writes(Path(prepared.stage.desk), rank)


def _is_outside(prepared: Prepared, write: Write) -> bool:
    """A file that is still there, and no cache, device or note of ours."""
    path = write.path
    inside = any(path.startswith(root + os.sep) for root in _own_folders(prepared))
    hidden = path.startswith(_OF_THE_SYSTEM) or any(word in path.lower() for word in _CACHES)
    return not inside and not hidden and Path(path).is_file()


def _own_folders(prepared: Prepared) -> Iterator[str]:
    """Of Python, of the run, and of what it shares with the other of its pair."""
    stage = prepared.stage
    for folder in (sys.prefix, str(Path(stage.desk).parent), stage.aligned, stage.lockstep):
        if folder:
            yield from (folder, os.path.realpath(folder))
