"""Folders as people have them: not a byte in them changes, and the verdict is that of a small folder.

Each is tried with both kinds of copies, with a script that writes in every way that scripts write (folders/ways.py).
"""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from verdicts import Document, forked_verdicts

from dp2ddp.errors import RunError
from dp2ddp.runtime.process.server import Server
from tests.copies.kinds import KINDS, choose
from tests.copies.test_scratch import state

HERE = Path(__file__).parent / "folders"
THEIRS = ("log.txt", "metrics.csv", "best.pt", "features.npy", "mapped.bin", "tensor.bin", "short.bin", "state.json",
          "old.txt", "cache/a", "cache/b", "kept/a", "train.log", "packed.gz", "shell.txt", "mode.txt")  # fmt: skip

WRITTEN = 16  # files that ways.py leaves with another content


def small(home: Path) -> list[str]:
    """Nothing but the script and what it writes to."""
    return []


def checkpoints(home: Path) -> list[str]:
    for name in ("a_best_model.pth", "checkpoints/epoch_1.pth", "checkpoints/epoch_2.pth"):
        large(home / name, 600)
    return ["checkpoints"]


def wandb_runs(home: Path) -> list[str]:
    for number in range(80):
        write(home / f"wandb/run-{number}/files/output.log", "x")
        write(home / f"wandb/run-{number}/run.wandb", "x" * 2000)
    (home / "wandb/latest-run").symlink_to("run-79")
    return ["wandb/run-80", "wandb/latest-run/files"]


def thousands_of_files(home: Path) -> list[str]:
    for number in range(3000):
        write(home / f"data/train/class{number % 3}/{number}.jpg", "x")
    return ["data/train/class1", "data/train/new", "data"]


def one_hdf5(home: Path) -> list[str]:
    large(home / "data/features.h5", 300_000)
    return ["data"]


def beside_thousands_of_files(home: Path) -> list[str]:
    for number in range(2000):
        write(home / f"{number}.jpg", "x")
    return []


def links_out(home: Path) -> list[str]:
    write(home.parent / "sets/a/x", "x")
    write(home.parent / "model.pt", "x")
    (home / "data").symlink_to(home.parent / "sets")
    (home / "pretrained.pt").symlink_to("../model.pt")
    return ["data", "data/a", "data/new/deep"]


def links_into_it(home: Path) -> list[str]:
    write(home / "runs/1/x", "x")
    (home / "runs/latest").symlink_to(home / "runs/1")
    (home / "runs/newest").symlink_to("latest")
    return ["runs/latest", "runs/newest"]


def theirs_is_a_link_out(home: Path) -> list[str]:
    (home / "theirs").rename(home.parent / "elsewhere")
    (home / "theirs").symlink_to(home.parent / "elsewhere")
    return []


def broken_links(home: Path) -> list[str]:
    (home / "gone").symlink_to("/nowhere/at/all")
    (home / "round").symlink_to("round")
    return []


def unreadable(home: Path) -> list[str]:
    write(home / "data/secret/x", "x")
    (home / "data/secret").chmod(0)
    write(home / "key", "x").chmod(0)
    return ["data"]


def read_only(home: Path) -> list[str]:
    write(home / "data/x", "x").chmod(0o444)
    (home / "data").chmod(0o555)
    return []


def blanks_and_accents(home: Path) -> list[str]:
    write(home / "mes données, no. 1: été/x y.txt", "x")
    return ["mes données, no. 1: été"]


def git_with_changes(home: Path) -> list[str]:
    for command in ("init -q", "add train.py", "-c user.name=a -c user.email=a@b commit -qm all"):
        subprocess.run(["git", *command.split()], cwd=home, check=True)
    write(home / "train.py", (home / "train.py").read_text() + "# not committed\n")
    return [".git/mine"]


def in_a_repository(home: Path) -> list[str]:
    subprocess.run(["git", "init", "-q"], cwd=home.parent, check=True)
    return []


def an_environment(home: Path) -> list[str]:
    write(home / "env/pyvenv.cfg", "")
    write(home / "env/lib/site.py", "x")
    return []


def pipes_and_sockets(home: Path) -> list[str]:
    os.mkfifo(home / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.open(home, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{here}/socket")  # the path of a socket is short
        os.close(here)
    return []


def hard_links(home: Path) -> list[str]:
    os.link(home / "theirs/best.pt", home / "best_of_all.pt")
    os.link(home / "theirs/log.txt", home.parent / "log.txt")
    return []


def private(home: Path) -> list[str]:
    write(home / "data/x", "x").chmod(0o600)
    (home / "data").chmod(0o700)
    home.chmod(0o700)
    return ["data"]


def deep(home: Path) -> list[str]:
    write(home / "/".join("abcdefghijklmnopqrst") / "x", "x")
    return ["a/b/c/d"]


FOLDERS: tuple[Callable[[Path], list[str]], ...] = (
    small, checkpoints, wandb_runs, thousands_of_files, one_hdf5, beside_thousands_of_files, links_out, links_into_it,
    theirs_is_a_link_out, broken_links, unreadable, read_only, blanks_and_accents, git_with_changes, in_a_repository,
    an_environment, pipes_and_sockets, hard_links, private, deep,
)  # fmt: skip
SHOWN = {
    small,
    checkpoints,
    thousands_of_files,
    links_out,
    theirs_is_a_link_out,
    in_a_repository,
}  # the rest: --all


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def large(path: Path, megabytes: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(megabytes * 2**20)


def made(home: Path) -> Path:
    home.mkdir(parents=True)
    for name in ("train.py", "train_ddp.py", "ways.py"):
        shutil.copy(HERE / name, home / name)
    for name in THEIRS:
        write(home / "theirs" / name, f"what was in {name}\n")
    database = sqlite3.connect(home / "theirs/runs.db")
    database.execute("create table runs (x)")
    database.commit()
    database.close()
    return home


def known(folder: Path) -> dict[str, tuple[object, ...]]:
    """Every byte, but of files that are large because they are empty."""
    big = {
        path
        for path in folder.rglob("*")
        if not path.is_symlink() and path.is_file() and path.stat().st_size > 2**28
    }
    return state(folder, without=big)


def verdicts_of(server: Server, home: Path, **options: Any) -> list[Document]:
    return forked_verdicts(server, home / "train.py", home / "train_ddp.py", [2], **options)


@pytest.mark.torchrun
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=make.__name__, marks=[] if make in SHOWN else [pytest.mark.slow])
        for make in FOLDERS
    ],
)
def test_not_a_byte_changes_and_the_verdict_is_that_of_a_small_folder(
    make: Callable[[Path], list[str]],
    kind: str,
    tmp_path: Path,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choose(kind, monkeypatch)
    home = made(tmp_path / "people" / "project")
    folders = make(home)
    is_seen = (
        kind == "mounts" or not (home / "theirs").is_symlink()
    )  # what another program writes, through a link
    if not is_seen:
        write(home / "no shell", "")
    before = known(tmp_path / "people")
    monkeypatch.chdir(home)
    (verdict,) = verdicts_of(server, home, arguments=folders)
    assert verdict["same"], verdict
    assert verdict["files"]["count"] >= WRITTEN - (not is_seen)
    assert known(tmp_path / "people") == before


@pytest.mark.torchrun
def test_another_program_cannot_write_through_a_link_where_nothing_can_be_mounted(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose("links", monkeypatch)
    home = made(tmp_path / "people" / "project")
    theirs_is_a_link_out(home)
    monkeypatch.chdir(home)
    before = known(tmp_path / "people")
    with pytest.raises(RunError, match=r"echo more >> theirs/shell\.txt"):
        verdicts_of(server, home)
    assert known(tmp_path / "people") == before


@contextmanager
def growing(path: Path) -> Iterator[None]:
    """A file that another program writes to all the time."""
    over = threading.Event()

    def grow() -> None:
        while not over.wait(0.01):
            with path.open("a") as file:
                file.write("more\n")

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.torchrun
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_grows_meanwhile_does_not_matter(
    kind: str, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(kind, monkeypatch)
    home = made(tmp_path / "project")
    monkeypatch.chdir(home)
    with growing(home / "other.log"):
        (verdict,) = verdicts_of(server, home)
    assert verdict["same"], verdict
