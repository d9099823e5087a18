"""What the outside sees of a pair of runs: the lines that they print, the files that they leave, and who wrote them:
one that every rank writes, and files outside of the folders that a run has copies of."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from dp2ddp.comparison.contents import Spelling, Unlike, content_hash, digest
from dp2ddp.comparison.output_comparison import (
    FileDifference,
    FilesComparison,
    OwnCode,
    TextComparison,
    compare_files,
    compare_text,
)
from dp2ddp.comparison.tolerance import FLOAT64, Tolerance
from dp2ddp.copies.leavings import FilesLeft
from dp2ddp.errors import RunError
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.process.writes import Write, read_writes
from dp2ddp.runtime.run_folder import LAUNCHER
from dp2ddp.runtime.stage import Stage
from dp2ddp.trial.pair import Pair
from dp2ddp.trial.prepare import Prepared
from dp2ddp.trial.subject import Subject
from dp2ddp.words import names_text, ranks_text

_LAST_LINES = 5


@dataclass(frozen=True)
class PairOutside:
    """What a pair prints and leaves, each read once."""

    subject: Subject
    pair: Pair
    server: Server  # of processes that have torch
    scratch: Path

    @cached_property
    def printed(self) -> tuple[str, str]:
        """stdout of DataParallel and of rank 0, the folders of the copies under their original names."""
        texts = zip(self._spellings, (self.pair.reference, self.pair.other), strict=True)
        before, after = (spelling.plain(run.output(0)) for spelling, run in texts)
        return before, after

    @cached_property
    def stdout(self) -> TextComparison:
        """The lines compared."""
        return compare_text(*self.printed, self._tolerance)

    @property
    def printing_ranks(self) -> tuple[int, ...]:
        """Ranks other than 0 that printed something."""
        other = self.pair.other
        return tuple(rank for rank in other.stage.ranks if rank and other.output(rank))

    @property
    def last_words(self) -> tuple[str, ...]:
        """DataParallel's last lines on stderr, where its exit code is not 0; argparse says there what it misses."""
        run = self.pair.reference
        lines = self._spellings[0].plain(run.output(0, "err")).splitlines() if run.code else []
        return tuple(line for line in lines if line.strip())[-_LAST_LINES:]

    @cached_property
    def files(self) -> FilesComparison:
        """All files compared: by their lines, and by their values where they hold tensors."""
        copies = [prepared.workspaces for prepared in (self.pair.left[0], self.pair.right[0])]
        pairs = [(a.left_behind(), b.left_behind()) for a, b in zip(*copies, strict=True)]
        code = self._own_code()
        compared = [
            compare_files(a, b, self._tolerance, code, self._spellings, self._values) for a, b in pairs
        ]
        torn = (each for _, left in pairs for each in written_by_many(self.pair.right[0], left))
        return FilesComparison(
            sum(each.files for each in compared),
            (*(file for each in compared for file in each.different), *torn),
            tuple(dict.fromkeys(words for each in compared for words in each.of_libraries)),
        )

    def _values(self, pairs: Sequence[tuple[str, str, str]]) -> dict[str, Unlike | None]:
        """What differs in files whose bytes do, by a process that has torch.

        pairs: name, DataParallel's file, the file of the DDP version.
        """
        if not pairs:
            return {}
        answer, timeout = self.scratch / "tensors.json", self.subject.options.timeout
        request = {
            "pairs": pairs,
            "spellings": [spelling.words for spelling in self._spellings],
            "allowed": self._tolerance.allowed,
            "floor": self._tolerance.floor,
            "answer": str(answer),
        }
        code = self.server.call("dp2ddp.comparison.checkpoints:main", request, timeout)
        if code != 0:
            waited = f"nothing moved for {timeout} seconds; a longer --timeout gives it longer"
            why = f": {waited}" if code is None else "; see above"
            raise RunError(f"the files that torch wrote could not be compared{why}")
        return msgspec.json.decode(answer.read_bytes(), type=dict[str, Unlike | None])

    def _own_code(self) -> OwnCode:
        """The files that are there before a conversion as well: the helpers' module is not."""
        version, script = self.subject.version, self.subject.script
        mended = {path.resolve(): data for path, data in self.subject.mended.items()}
        digests = {
            digest(data): digest(mended[path.resolve()]) if path.resolve() in mended else content_hash(path)
            for path, data in {script: version.data, **version.modules}.items()
            if path.exists()
        }
        return OwnCode(digests, {version.name: script.name})

    @cached_property
    def _tolerance(self) -> Tolerance:
        double = self.pair.compared
        natural = double.natural.largest if double.natural else 0.0
        return FLOAT64.with_noise(double.so_far.noise, double.so_far.noise_floor, natural)

    @cached_property
    def _spellings(self) -> tuple[Spelling, Spelling]:
        sides = self.pair.left[0], self.pair.right[0]
        original, converted = (Path(side.stage.name).name for side in sides)
        # both lie in both folders, and a script may print what lies beside it
        expected, actual = (
            Spelling(
                (*((str(each.folder), str(each.original)) for each in side.workspaces), (converted, original))
            )
            for side in sides
        )
        return expected, actual


# ---- who wrote which file

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
