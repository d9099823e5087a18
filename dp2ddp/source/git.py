"""What git keeps of files, and the commands that put them back.

A repository may be a stranger's, and its settings name programs (core.fsmonitor, filters, transports): none is started.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from dp2ddp.errors import SourceError

# An attribute that is not there is shown as one of these, and so is a filter of that name: it is made a filter of
# nothing.
NO_FILTER = ("unspecified", "unset")
_OFF = (
    "core.fsmonitor=",
    *(f"filter.{name}.{kind}=" for name in NO_FILTER for kind in ("smudge", "process")),
)
_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "",  # what a partial clone lacks is not fetched: that would start the transport
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
}


def ask_git(folder: Path, *arguments: str) -> bytes | None:
    """What git says; None where there is no git, or no working tree."""
    import subprocess  # only what is written asks git

    settings = [word for setting in _OFF for word in ("-c", setting)]
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), "--literal-pathspecs", *settings, *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **_VARIABLES},
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None


def working_tree(folder: Path) -> Path | None:
    """The top of the working tree that a folder lies in."""
    answer = ask_git(folder, "rev-parse", "--show-toplevel")
    return Path(os.fsdecode(answer.removesuffix(b"\n"))).resolve() if answer else None


def refuse_unkept(held: Mapping[Path, bytes]) -> None:
    """A SourceError unless the last commit gives back what each file holds, byte for byte: it would be lost.

    `git status` is not asked: it can be told to pass over files (assume-unchanged, skip-worktree, untracked ones).
    """
    for path, data in held.items():
        real = path.resolve()
        if working_tree(real.parent) is None:
            raise SourceError(
                f"{path}: not under git, so its old text would be lost; use --force to change it"
            )
        if program := _filter_of(real):
            raise SourceError(
                f"{path}: git keeps it through the filter {program}, a program that is not started here, so its old "
                "text may be lost; use --force to change it"
            )
        given_back = ask_git(real.parent, "cat-file", "--filters", f"HEAD:./{real.name}")
        if given_back == data:
            continue
        if given_back is not None and given_back.replace(b"\r\n", b"\n") == data.replace(b"\r\n", b"\n"):
            raise SourceError(
                f"{path}: git would give it back with other line ends (core.autocrlf, .gitattributes); use --force to "
                "change it"
            )
        raise SourceError(f"{path}: not committed to git; commit it first, or use --force to change it")


def _filter_of(path: Path) -> str | None:
    answer = ask_git(path.parent, "check-attr", "-z", "filter", "--", path.name)
    name = os.fsdecode(answer).split("\0")[2] if answer else NO_FILTER[0]
    return None if name in NO_FILTER else name


def undo_commands(changed: Sequence[Path], new: Sequence[Path]) -> list[str]:
    """What puts changed files back as the last commit has them, and removes new ones; what is staged stays staged."""
    restored: dict[Path, list[Path]] = {}
    rewritten = []
    for path in (each.resolve() for each in changed):
        tree = working_tree(path.parent)
        if tree is None:
            continue
        if _is_as_checked_out(path):
            restored.setdefault(tree, []).append(path)
        else:
            rewritten.append(_rewrite(path))
    removed = [shlex.join(["rm", "--", *(str(as_typed(path.resolve())) for path in new)])] if new else []
    return [*(_restore(tree, files) for tree, files in restored.items()), *rewritten, *removed]


def _is_as_checked_out(path: Path) -> bool:
    """Whether a checkout would make the same file: one name, the mode of new files, not passed over."""
    state = path.stat()
    entry = ask_git(path.parent, "ls-tree", "HEAD", "--", path.name) or b""
    mode = mode_of_new_files(0o777 if entry.startswith(b"100755") else 0o666)
    flag = (ask_git(path.parent, "ls-files", "-t", "--", path.name) or b"")[:1]
    is_own = state.st_uid == os.geteuid()
    return state.st_nlink == 1 and is_own and stat.S_IMODE(state.st_mode) == mode and flag == b"H"


def mode_of_new_files(mode: int = 0o666) -> int:
    """What this process's mask leaves of a mode."""
    mask = os.umask(0)
    os.umask(mask)
    return mode & ~mask


def _restore(tree: Path, files: Sequence[Path]) -> str:
    is_inside = Path.cwd().resolve().is_relative_to(tree)
    place = [] if is_inside else ["-C", str(tree)]
    names = [os.path.relpath(file, Path.cwd() if is_inside else tree) for file in files]
    literal = ["--literal-pathspecs"] if any(set(name) & set("*?[\\") for name in names) else []
    return shlex.join(
        ["git", *place, *literal, "restore", f"--source={_commit(tree)}", "--worktree", "--", *names]
    )


def _rewrite(path: Path) -> str:
    """Into the same file, with its mode and its other names; by its whole path, since `>` empties what it names."""
    text = f"{_commit(path.parent)}:./{path.name}"
    return f"{shlex.join(['git', '-C', str(path.parent), 'cat-file', '--filters', text])} > {shlex.quote(str(path))}"


def _commit(folder: Path) -> str:
    """By its own name: HEAD may be the conversion by the time that it is undone."""
    return os.fsdecode(ask_git(folder, "rev-parse", "--short", "HEAD") or b"HEAD").strip()


def as_typed(path: Path) -> Path:
    """A path as a person would type it: relative to the current folder, if it lies in it."""
    short = Path(os.path.relpath(path))
    return path if short.parts[:1] == ("..",) else short
