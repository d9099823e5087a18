"""What is told when a run of a trial fails."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dp2ddp.errors import RunError
from dp2ddp.trial.runs import tell
from tests.report.made_up import failed_run


@pytest.mark.parametrize(("kind", "before"), [("hang", []), ("crash", ["Traceback: all of it"])])
def test_a_hang_has_no_traceback_in_front_of_where_its_ranks_stand(
    kind: str, before: list[str], tmp_path: Path
) -> None:
    (tmp_path / "rank1.err").write_text("Traceback: all of it\n")
    made = failed_run(kind)
    run = dataclasses.replace(made, stage=dataclasses.replace(made.stage, desk=str(tmp_path)))
    seen: list[str] = []
    with pytest.raises(RunError, match="rank 0 waits in barrier") as caught:
        tell(run, seen.append)
    assert seen == before
    assert caught.value.details is not None
    assert caught.value.details["output"] == "Traceback: all of it"
