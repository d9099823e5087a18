"""What libraries note of how they were started: one process or several. It is theirs, and no result of training."""

from __future__ import annotations

import re
from dataclasses import dataclass


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
