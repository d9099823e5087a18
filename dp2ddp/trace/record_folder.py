"""The folder of a rank's record: which files in it are the recorder's own, so that nobody else's is ever removed.

`rank0`, `rank1` are also what sharded checkpoints are called. A record is known by a file that says so, and its files
by their exact names: a folder that holds anything else is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from dp2ddp.errors import TraceError

MARK = "record.json"
_TEXT = '{"made by": "dp2ddp", "holds": "the record of a run", "next": "a run that is recorded here replaces it"}\n'
_OWN = re.compile(
    r"(passes-)?((layouts|others|initial|steps|final)\.jsonl|end\.json"
    r"|(final|buffers|end|initial-\d{5,}|block-\d{5,})\.safetensors)"
)


def rank_folder(folder: Path, rank: int) -> Path:
    """Where a rank's record lies in the folder of a run's record."""
    return folder / f"rank{rank}"


def refuse_others(folder: Path, ranks: Iterable[int]) -> None:
    """TraceError where the record of one of the ranks would come to lie among files that are not a record's."""
    for rank in ranks:
        _own_files(rank_folder(folder, rank))


def begin_record(folder: Path) -> None:
    """An empty record: what an earlier run left in its place is removed. TraceError where other things lie."""
    own = _own_files(folder)  # its steps would be read as ours
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_text(_TEXT, encoding="utf-8")
    for file in own:
        file.unlink()


def _own_files(folder: Path) -> list[Path]:
    """The files of an earlier record, without its mark."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise TraceError(
            f"{folder}: a record needs a folder of its own there; name another one, or move this away"
        )
    held = sorted(folder.iterdir()) if folder.exists() else []
    marked = any(file.name == MARK and _is_mark(file) for file in held)
    others = [file for file in held if not (marked and _is_own(file))]
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise TraceError(
            f"{folder}: it holds {others[0].name}{more}, which no record of a run is; name another folder for the "
            "record, or move that away"
        )
    return [file for file in held if file.name != MARK]


def _is_own(file: Path) -> bool:
    return file.is_file() and not file.is_symlink() and (file.name == MARK or bool(_OWN.fullmatch(file.name)))


def _is_mark(file: Path) -> bool:
    return _is_own(file) and file.read_text(encoding="utf-8", errors="replace") == _TEXT
