"""Rows, which the script sees whole and each rank holds in part: some 130 functions, on 2 and 3 ranks over gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from parted_program import (  # noqa: E402  (found through the line above)
    ADDED_UP,
    BATCHES,
    MAKERS,
    ROW_WISE,
    WHOLE,
    cases,
)

WORLDS = (pytest.param(2, marks=pytest.mark.slow), 3)
ULPS = {"float32": 1e-4, "bfloat16": 5e-2}
# Loudly, since it would change a copy that nobody sees.
REFUSED = {
    "a view set": "would not reach all",
    "dlpack of a view": "would not reach all",
    "numpy of a view, written into": "read-only",
}
NOT_TORCHS = {
    ("numpy", "bfloat16"),
    ("distances", "bfloat16"),
}  # torch has no such function of the whole, either
NOT_OLDER_TORCHS = {
    (name, "bfloat16") for name in ("losses of each row", "mse", "a pair loss's gradient looked at")
}
OLDER = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (
    2,
    10,
)  # no second derivative of distances

pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, worlds: list[int]) -> dict[int, list[Any]]:
    """What every rank found, in rank order, by the number of ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    run = subprocess.run(
        [sys.executable, str(HERE / "parted_program.py"), str(folder), *map(str, worlds)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return {
        world: [json.loads((folder / f"{world}_{rank}.json").read_text()) for rank in range(world)]
        for world in worlds
    }


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(kind, name, id=f"{kind}: {name}")
        for kind, checks in (("row-wise", ROW_WISE), ("added up", ADDED_UP), ("whole", WHOLE))
        for name in checks
        if name not in REFUSED
    ],
)
def test_a_function_of_rows_is_that_of_the_whole_with_its_gradients_and_theirs(
    found: Any, world: int, kind: str, name: str
) -> None:
    for case, _ in cases(world):
        answers = [each[f"{kind}: {name}, {case}"] for each in found[world]]
        if (name, case) in NOT_TORCHS or OLDER and (name == "distances" or (name, case) in NOT_OLDER_TORCHS):
            continue
        assert not any("failed" in answer for answer in answers), answers[0]["failed"]
        assert max(answer["difference"] for answer in answers) <= ULPS.get(case, 1e-11), case
        assert all(answer["kinds"] for answer in answers), case
        if OLDER:
            continue  # it decomposes some functions otherwise: they are right, and cost more
        if kind != "whole" and case not in ("one row in all", "one row each"):
            assert not answers[0]["made whole"], case


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ADDED_UP)
def test_a_gradient_that_holds_a_factor_is_the_same_to_whoever_looks(
    found: Any, world: int, name: str
) -> None:
    for each in found[world]:
        answer = each[f"added up: {name}, a factor ahead"]
        assert "failed" not in answer, answer["failed"]
        assert answer["difference"] <= 1e-11


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_the_whole_to_the_script_and_nobody_writes_into_it(
    found: Any, world: int, kind: str, name: str
) -> None:
    for each in found[world]:
        answer = each[f"{kind} batch: {name}"]
        assert "failed" not in answer, answer["failed"]
        assert answer["difference"] < 1e-14
        assert answer["untouched"]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_a_copy_is_refused_on_every_rank(found: Any, world: int, name: str) -> None:
    for each in found[world]:
        assert REFUSED[name] in each[f"whole: {name}, uneven"]["failed"]


def test_the_checks_would_notice_rows_that_are_missing(found: Any) -> None:
    """Each check compares something: numbers, and mostly gradients."""
    answers = [answer for answer in found[3][0].values() if "numbers" in answer]
    assert len(answers) > 800
    assert sum(answer["numbers"] > 1 for answer in answers) > 0.7 * len(answers)
