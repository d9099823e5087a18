"""The small helpers' wrapper against DataParallel's numbers, on 2 and 3 ranks over gloo (one run for all tests)."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from scenarios import SCENARIOS  # noqa: E402

pytestmark = pytest.mark.torchrun


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """found(world): what every rank found, in rank order."""
    folder = tmp_path_factory.mktemp("ranks")
    run = subprocess.run(
        [sys.executable, str(HERE / "scenario_program.py"), str(folder), "2,3"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return functools.cache(
        lambda world: [json.loads((folder / f"{world}_{rank}.json").read_text()) for rank in range(world)]
    )


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("case", SCENARIOS)
def test_every_number_is_dataparallels(found: Any, case: str, world: int) -> None:
    for answers in found(world):
        answer = answers[f"{case} WholeBatchParallel float64"]
        assert "failed" not in answer, answer["failed"]
        assert answer["compared"] > 0
        assert answer["difference"] < 1e-12


@pytest.mark.parametrize("case", SCENARIOS)
def test_two_ranks_have_the_same_bits_in_float32(found: Any, case: str) -> None:
    for answers in found(2):
        answer = answers[f"{case} WholeBatchParallel float32"]
        assert "failed" not in answer, answer["failed"]
        assert answer["other_bits"] == 0
