"""Folders that are no part of anybody's project."""

from __future__ import annotations

import os
from pathlib import Path

LEFT_OUT = {".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache",
            ".ruff_cache", ".ipynb_checkpoints", ".tox"}  # fmt: skip


def is_left_out(folder: str) -> bool:
    """Whether a folder holds version control, a cache or an environment."""
    return os.path.basename(folder) in LEFT_OUT or os.path.exists(os.path.join(folder, "pyvenv.cfg"))


def is_below_left_out(path: Path, root: Path) -> bool:
    """Whether a path below `root` is in such a folder."""
    above = (each for each in (path, *path.parents) if each != root and each.is_relative_to(root))
    return any(is_left_out(str(each)) for each in above)
