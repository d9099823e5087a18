"""Who wrote which file: one that every rank writes, and files outside of the folders that a run has copies of."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from dp2ddp.comparison.output_comparison import FileDifference
from dp2ddp.copies.leavings import FilesLeft
from dp2ddp.runtime.process.writes import Write, read_writes
from dp2ddp.runtime.run_folder import LAUNCHER
from dp2ddp.runtime.stage import Stage
from dp2ddp.trial.prepare import Prepared
from dp2ddp.words import names_text, ranks_text

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


def written_by_many(prepared: Prepared, leavings: FilesLeft) -> Iterator[FileDifference]:
    """Files that several ranks began anew: whole by luck where all write the same bytes, and torn where they do not."""
    ranks_of, places_of = _writers(prepared.stage)
    for relative in leavings.written:
        place = leavings.folder / relative
        # as the run knew it: the real path of what we see through /proc is the one that it has in its mounts
        names = {str(place), os.path.realpath(place)}
        writers = {rank for name in names for rank in ranks_of[name]}
        if len(writers) > 1 and leavings.place(relative).stat().st_size:  # a lock is empty
            yield _difference(relative, writers, {place for name in names for place in places_of[name]})


def shared_files(stage: Stage) -> Iterator[str]:
    """Which files of its own folder several ranks of a run had begun anew, a sentence each."""
    ranks_of, places_of = _writers(stage)
    for path, ranks in ranks_of.items():
        if len(ranks) > 1 and path.startswith(stage.folder + os.sep) and not path.endswith(".lock"):
            name = os.path.relpath(path, stage.folder)
            yield f"{name} {_difference(name, ranks, places_of[path]).what}"


def _writers(stage: Stage) -> tuple[dict[str, set[int]], dict[str, set[str]]]:
    """The ranks that begin the file at each path anew, and the lines of the script where they do."""
    ranks: dict[str, set[int]] = defaultdict(set)
    places: dict[str, set[str]] = defaultdict(set)
    for rank in stage.ranks:
        for write in read_writes(Path(stage.run_folder), rank):
            if write.anew:
                ranks[write.path].add(rank)
                places[write.path].add(write.place)
    return ranks, places


def _difference(path: str, ranks: set[int], places: set[str]) -> FileDifference:
    where = f" ({names_text(sorted(places - {''}))})" if places - {""} else ""
    return FileDifference(
        path, f"is written by {ranks_text(sorted(ranks))}{where}", ranks=tuple(sorted(ranks))
    )


def written_outside(pair: Sequence[Prepared]) -> Iterator[str]:
    """Remarks on files that are not compared; `pair`: DataParallel, DDP."""
    written = [
        {
            _name_outside(prepared, write.path)
            for rank in (LAUNCHER, *prepared.stage.ranks)
            for write in read_writes(Path(prepared.stage.run_folder), rank)
            if _is_outside(prepared, write)
        }
        for prepared in pair
    ]
    for names, who in (
        (written[0] & written[1], "both runs"),
        (written[0] - written[1], "DataParallel"),
        (written[1] - written[0], "DDP"),
    ):
        for is_caught, ending in ((False, ", and overwritten by each run"), (True, "")):
            paths = sorted(path for path, caught in names if caught is is_caught)
            if paths:
                yield f"{who} wrote to {names_text(paths)}, outside of the folder: not compared{ending}"


def _name_outside(prepared: Prepared, path: str) -> tuple[str, bool]:
    """A path outside of the folder as the user knows it, and whether a copy caught what was written there."""
    first = prepared.workspaces[0]
    if not path.startswith(f"{prepared.stage.scratch}{os.sep}"):
        return path, False
    return os.path.normpath(first.original / os.path.relpath(path, first.folder)), True


def _is_outside(prepared: Prepared, write: Write) -> bool:
    """A file that is still there, and no cache, device or note of ours."""
    path = write.path
    stage = prepared.stage
    # of Python, of the run, and of what it shares with the other of its pair
    own = (sys.prefix, stage.run_folder, stage.trace, *stage.owned, stage.aligned, stage.lockstep)
    roots = [root for folder in own if folder for root in (folder, os.path.realpath(folder))]
    inside = any(path.startswith(root + os.sep) for root in roots)
    hidden = path.startswith(_OF_THE_SYSTEM) or any(word in path.lower() for word in _CACHES)
    return not inside and not hidden and Path(path).is_file()
