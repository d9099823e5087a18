"""What is judged must have been seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dp2ddp.comparison.tolerance import FLOAT64
from dp2ddp.errors import RunError
from dp2ddp.runtime.run import Run
from dp2ddp.runtime.stage import Stage
from dp2ddp.trace.records import End
from dp2ddp.trace.writer import Writer
from dp2ddp.trial.judge import Pair


def test_records_that_broke_off_alike_are_no_reason_to_say_the_same(tmp_path: Path) -> None:
    sides: list[Any] = []
    for mode in ("dp", "ddp"):
        folder = tmp_path / mode
        for rank in range(2):
            Writer(folder / f"rank{rank}").write_end(
                End(steps=0, broken="the record ends at step 0: full"), {}
            )
        stage = Stage("train.py", mode, 2, ".", "run", "train.py", trace=str(folder))  # type: ignore[arg-type]
        sides.append((None, Run(stage, (0,), 1.0, None)))
    with pytest.raises(
        RunError, match="rank 0 .* could not be watched to its end: the record ends at step 0"
    ):
        _ = Pair(sides[0], sides[1], FLOAT64).compared
