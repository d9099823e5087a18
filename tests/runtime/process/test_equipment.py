"""What a run gets before its script begins."""

from pathlib import Path

import pytest

from dp2ddp.runtime.process.run import watch
from dp2ddp.runtime.process.server import Server
from tests.ranks import stage_of


@pytest.mark.parametrize(("dtype", "said"), [("float64", "large from 0"), ("float32", "large from 9")])
def test_outputs_of_a_short_test_stay_in_parts_where_they_are_judged(
    tmp_path: Path, server: Server, dtype: str, said: str
) -> None:
    (tmp_path / "ddp_helpers.py").write_text("LARGE = 9\n")
    script = tmp_path / "train.py"
    script.write_text("from ddp_helpers import LARGE\nprint(f'large from {LARGE}')\n")
    stage = stage_of(script, "ddp", world=1, dtype=dtype, trace=str(tmp_path / "trace"))
    (run,) = watch([server.start(stage)], 60)
    assert said in run.output(0)
