"""Sets of strings have one order on all ranks, however the ranks are started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dp2ddp.codemod.lift import Library

HELPER = Library().lift(
    ["have_one_hash_seed"]
)  # as a script gets it; torch, which it does not need, takes seconds
PROGRAM = (
    "\n".join([*(line.text for line in HELPER.imports), *HELPER.definitions])
    + """
have_one_hash_seed()
print(hash("dog"), [*{"a", "quick", "brown", "fox"}], sys.argv[1:], __name__, os.environ.get("PYTHONHASHSEED"))
"""
)


def told(folder: Path, *words: str, **variables: str) -> str:
    """What a process says that torchrun starts, or python."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONHASHSEED", "RANK")}
    run = subprocess.run(
        [sys.executable, "-u", *words],
        cwd=folder,
        env={**kept, "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return run.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package = tmp_path / "package"
    package.mkdir()
    for path in (tmp_path / "train.py", package / "__init__.py", package / "train.py"):
        path.write_text("" if path.stem == "__init__" else PROGRAM, encoding="utf-8")
    return tmp_path


def test_ranks_have_one_seed_and_their_arguments(folder: Path) -> None:
    first, second = (told(folder, "train.py", "--lr", "a b", RANK=rank) for rank in "01")
    assert first == second == told(folder, "train.py", "--lr", "a b", PYTHONHASHSEED="0")
    assert "['--lr', 'a b'] __main__ 0" in first


def test_a_module_is_started_as_one(folder: Path) -> None:
    started = told(folder, "-m", "package.train", "-v", RANK="1")
    assert started == told(folder, "train.py", "-v", RANK="0")


def test_a_seed_that_is_set_stays(folder: Path) -> None:
    assert told(folder, "train.py", RANK="1", PYTHONHASHSEED="7").endswith(" 7\n")


def test_one_process_alone_stays_as_it_is(folder: Path) -> None:
    assert told(folder, "train.py").endswith(" None\n")
