"""What is in a file that a run left behind, its texts in the words of the original; how two of them differ; and what
libraries note of how they were started, one process or several: it is theirs, and no result of training."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any, cast

# Stores in which processes note themselves, by number: LMDB's (beside a folder's data.mdb, or a single file), SQLite's.
_NOTES_OF_PROCESSES = ("lock.mdb", ".mdb-lock", ".lmdb-lock", "-shm")

_ADDRESS = re.compile(r"(?<= at )0x[0-9a-f]+")  # <function main at 0x7f17ba96d800>: another in each process
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\bnan\b|\binf\b")


class How(Enum):
    """In which way two files are not the same."""

    DDP_ONLY = "only the DDP version writes it"
    KEYS = "other keys"
    TENSOR = "another tensor"
    NUMBERS = "the same words, and other numbers"
    WORDS = "other words"
    MORE_LINES = "a text that is longer"
    OTHERWISE = "anything else"


@dataclass(frozen=True)
class Unlike:
    """The first thing in which two files differ."""

    how: How
    what: str  # in words
    at: str = ""  # the keys of a value: ['net']['weight']


def have_same_words(*texts: str) -> bool:
    """Whether texts differ in numbers alone."""
    return len({_NUMBER.sub("#", text) for text in texts}) == 1


def notes_processes(path: str) -> bool:
    """Whether a file says which processes have another open: it differs between any two runs."""
    return path.endswith(_NOTES_OF_PROCESSES)


def opened(path: Path) -> IO[bytes]:
    """A file, to be read; a compressed one by what is in it, since its head says when it was written."""
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    return cast("IO[bytes]", openers.get(path.suffix, open)(path, "rb"))


def content_hash(path: Path) -> str:
    """SHA-256 of what is in a file; of a compressed one, of what is in it when it is unpacked."""
    try:
        with opened(path) as file:
            return digest(file.read())
    except (OSError, EOFError, lzma.LZMAError):  # only its name says that it is compressed
        return digest(path.read_bytes())


def digest(data: bytes) -> str:
    """SHA-256 of some bytes, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Spelling:
    """Words of one run, and what they would be in the user's folder, with the user's script."""

    words: tuple[tuple[str, str], ...] = ()

    def plain(self, text: str) -> str:
        """A text with the original names in the place of the run's own, and without places in memory."""
        for here, original in self.words:
            text = text.replace(here, original)
        return _ADDRESS.sub("<address>", text)


@dataclass(frozen=True)
class LibraryFile:
    """A file of a library's; of some, only certain keys are about its start."""

    path: re.Pattern[str]
    words: str
    keys: frozenset[str] = frozenset()  # none: the whole file, and whether it is there


LIBRARY_FILES = (
    LibraryFile(
        re.compile(r"(.*/)?checkpoint-\d+/rng_state(_\d+)?\.pth"),
        "transformers' rng_state.pth, of which each rank has its own",
    ),
    LibraryFile(
        re.compile(r"(.*/)?random_states_\d+\.pkl"),
        "Accelerate's random_states_0.pkl, of which each rank has its own",
    ),
    LibraryFile(
        re.compile(r"(.*/)?trainer_state\.json"),
        "train_batch_size in transformers' trainer_state.json, which is a rank's",
        frozenset({"train_batch_size"}),
    ),
    LibraryFile(
        re.compile(r"(.*/)?training_args\.bin"),
        "in transformers' training_args.bin, devices and ranks",
        frozenset({"_n_gpu", "distributed_state", "local_rank", "__cached__setup_devices"}),
    ),
)


def library_file(path: str) -> LibraryFile | None:
    """The row of a file, if it is one of a library's that are about its start."""
    return next((each for each in LIBRARY_FILES if each.path.fullmatch(path)), None)


def is_of_start(path: str) -> bool:
    """Whether all of a file, and whether it is there, is about how the library was started."""
    row = library_file(path)
    return row is not None and not row.keys
