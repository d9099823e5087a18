"""Folders that are no part of anybody's project."""

from __future__ import annotations

import os

LEFT_OUT = {".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache",
            ".ruff_cache", ".ipynb_checkpoints", ".tox"}  # fmt: skip


def is_left_out(folder: str) -> bool:
    """Whether a folder holds version control, a cache or an environment."""
    return os.path.basename(folder) in LEFT_OUT or os.path.exists(os.path.join(folder, "pyvenv.cfg"))
