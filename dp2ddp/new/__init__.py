"""A small training script in both modes, to learn from and to start from: `dp2ddp new` copies `folder`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from dp2ddp.errors import SourceError
from dp2ddp.source.writing import write_together

NAMES = ("train_dp.py", "train_ddp.py", "model.py", "data.py", "README.md")


def write_new(folder: Path) -> tuple[Path, ...]:
    """Write the training script in both modes into `folder`, which is made if need be; returns the files.

    Raises SourceError if one of them is there already, or cannot be written; then none is.
    """
    targets = {folder / name: (files("dp2ddp.new") / "folder" / name).read_bytes() for name in NAMES}
    there = [path.name for path in targets if path.exists() or path.is_symlink()]
    if there:
        raise SourceError(
            f"{folder}: has {', '.join(there)} already; nothing is overwritten, so name another folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SourceError(f"{folder}: cannot be made ({error.strerror})") from error
    write_together(targets)
    return tuple(targets)
