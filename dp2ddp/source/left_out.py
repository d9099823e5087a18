"""Folders that are no part of anybody's project."""

LEFT_OUT = {".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache",
            ".ruff_cache", ".ipynb_checkpoints", ".tox"}  # fmt: skip
