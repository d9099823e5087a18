"""Where a converted project goes: a copy of its folder that runs from there, or the files themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dp2ddp.errors import SourceError
from dp2ddp.source.files import write_atomically

LEFT_OUT = {".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache",
            ".ruff_cache", ".ipynb_checkpoints", ".tox"}  # fmt: skip


def copy_project(entry: Path | None, files: Mapping[Path, bytes], target: Path, force: bool) -> Path:
    """Copy the project that holds the entry script and the converted files; returns the converted script there.

    The copy is made beside its place and moved there when it is whole. What git ignores is left out; where there is
    no git, everything but caches and environments is copied. A SourceError where something is in the way.
    """
    if entry is None:
        raise SourceError("<stdin>: a script from stdin has no project; name the file")
    entry = entry.resolve()
    converted = {path.resolve(): data for path, data in files.items()}
    root = project_root([entry, *converted])
    target = target.absolute()
    if target.is_file():
        raise SourceError(f"{target}: is a file; name a folder for the project with -o")
    if target.exists() and any(target.iterdir()) and not force:
        raise SourceError(f"{target}: exists already; use --force to overwrite it, or -o to write elsewhere")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as room:
            whole = Path(room) / target.name
            _fill(whole, root, target, converted)
            if target.exists():
                shutil.copytree(whole, target, symlinks=True, dirs_exist_ok=True)
            else:
                whole.rename(target)
    except OSError as error:
        raise SourceError(f"{error.filename or target}: cannot be written ({error.strerror})") from error
    return _as_typed(target / entry.relative_to(root))


def _fill(whole: Path, root: Path, target: Path, converted: Mapping[Path, bytes]) -> None:
    for path in _kept_files(root, target):
        place = whole / path.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, place, follow_symlinks=False)
    for path, data in converted.items():
        write_atomically(whole / path.relative_to(root), data)


def project_root(paths: Sequence[Path]) -> Path:
    """The working tree of git that holds all of these files; or else the smallest folder that does."""
    common = Path(os.path.commonpath([path.parent for path in paths]))
    answer = _git(common, "rev-parse", "--show-toplevel")
    return Path(answer.strip()).resolve() if answer else common


def refuse_unkept(paths: Sequence[Path]) -> None:
    """A SourceError if a file is not under git as it is: its old text would be lost."""
    for path in paths:
        state = _git(path.resolve().parent, "status", "--porcelain", "--ignored", "--", path.name)
        if state is None:
            raise SourceError(
                f"{path}: not under git, so its old text would be lost; use --force to change it"
            )
        if state.strip():
            raise SourceError(f"{path}: not committed to git; commit it first, or use --force to change it")


def _kept_files(root: Path, target: Path) -> Iterator[Path]:
    tracked = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    found = (root / name for name in tracked.split("\0") if name) if tracked is not None else _walk(root)
    for path in found:
        inside = target in path.parents or any(part.startswith(f".{target.name}-") for part in path.parts)
        if (path.is_file() or path.is_symlink()) and not inside:
            yield path


def _walk(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name not in LEFT_OUT)
        yield from (Path(folder) / name for name in sorted(files))


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None where there is no git, or no working tree."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None


def _as_typed(path: Path) -> Path:
    short = Path(os.path.relpath(path))
    return path if short.parts[:1] == ("..",) else short
