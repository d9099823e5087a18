"""Tests that share a run are run by one process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from shared_runs import SHARED_BY_FILE, SHARED_BY_PARAMETER, group_of

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", sorted(SHARED_BY_FILE | SHARED_BY_PARAMETER))
def test_what_is_named_is_there(name: str) -> None:
    file, _, test = name.partition("::")
    assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8")


# A module that is imported; a process that forks runs, of which each process of the tests may have one.
CHEAP = re.compile(r'@pytest\.fixture\(scope="module"\)\ndef (server|ports|gpu|make)\(')


def test_what_is_made_once_for_a_file_is_made_by_one_process() -> None:
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = CHEAP.sub("", file.read_text(encoding="utf-8"))
        if re.search(r'^@pytest\.fixture\(.*scope="(module|class)"', text, re.MULTILINE):
            assert str(file.relative_to(ROOT)) in SHARED_BY_FILE | SHARED_BY_PARAMETER


def test_a_group_is_a_file_a_parameter_or_a_test() -> None:
    assert group_of("tests/cli/test_run.py::TestX::test_y[2]") == "tests/cli/test_run.py"
    assert group_of("tests/test_examples.py::test_a[cifar_bn]") == group_of(
        "tests/test_examples.py::test_b[cifar_bn]"
    )
    assert group_of("tests/corpus/test_corpus.py::test_x[a-2]") == "tests/corpus/test_corpus.py::test_x[a-2]"


@pytest.mark.slow
def test_two_processes_do_not_share_a_group() -> None:
    tests = "tests/test_examples.py::test_a_second_conversion_finds_nothing_to_do"
    today = "tests/test_examples.py::test_the_checked_in_conversion_is_todays"
    some = "cifar_bn or contrastive or masked_mean or seed_by_hand or seed_four_layers"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "2",
        "-v",
        "-p",
        "no:cacheprovider",
        "-k",
        some,
        tests,
        today,
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    workers: dict[str, set[str]] = {}
    for line in result.stdout.splitlines():
        if line.startswith("[gw"):
            workers.setdefault(line[line.index("[", 4) :].rpartition("[")[2], set()).add(line[:5])
    assert len(workers) == 5, result.stdout[-2000:]
    assert all(len(one) == 1 for one in workers.values()), workers
