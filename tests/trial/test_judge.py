"""What is judged must have been seen."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dp2ddp.comparison.compare import Difference, compare
from dp2ddp.comparison.contents import Spelling
from dp2ddp.comparison.tolerance import FLOAT32, FLOAT64
from dp2ddp.errors import RunError
from dp2ddp.runtime.process.run import Run
from dp2ddp.runtime.run_folder import RankStatus, write_status
from dp2ddp.runtime.stage import Stage
from dp2ddp.trace.records import End
from dp2ddp.trace.writer import Writer
from dp2ddp.trial.all_trials import how_it_ended
from dp2ddp.trial.judge import came_closer
from dp2ddp.trial.outside import PairOutside
from dp2ddp.trial.pair import Pair
from tests.comparison.traces import GRADIENT, trace
from tests.report.made_up import same


@pytest.mark.parametrize(
    ("moved", "step", "closer"),
    [(1.0, 0, True), (0.99, 0, False), (1.0, 5, False)],
    ids=["the same", "as far apart, and called rounding", "ended before"],
)
def test_hashes_are_the_reason_only_where_float32_came_closer(
    tmp_path: Path, moved: float, step: int, closer: bool
) -> None:
    """Another eps of Adam differs in float32 as far, where a bias in front of BatchNorm makes all of it rounding."""
    reference = trace(tmp_path / "dp", [GRADIENT])
    ranks = [
        trace(tmp_path / "ddp", [GRADIENT], parameters=[-moved * GRADIENT], rank=rank) for rank in range(2)
    ]
    single = compare(reference, ranks, FLOAT32, port=True)
    assert came_closer(single, Difference("parameter", 0.02, step, 0, "conv.weight")) is closer


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


@pytest.mark.parametrize("came_to_its_end", [True, False])
def test_a_rank_that_came_to_its_end_has_a_record_of_it(tmp_path: Path, came_to_its_end: bool) -> None:
    """One that was killed cannot: that is told beside the verdict (comparison/compare.py)."""
    sides: list[Any] = []
    for mode in ("dp", "ddp"):
        folder = tmp_path / mode
        Writer(folder / "rank0")
        write_status(folder, 0, RankStatus(1, 0 if came_to_its_end else None))
        stage = Stage("train.py", mode, 1, ".", str(folder), "train.py", trace=str(folder))  # type: ignore[arg-type]
        sides.append((None, Run(stage, (0,), 1.0, None)))
    pair = Pair(sides[0], sides[1], FLOAT64)
    if came_to_its_end:
        with pytest.raises(RunError, match="rank 0 .* not be watched to its end: the record has no end"):
            _ = pair.compared
    else:
        assert any("ended without a word" in each for each in pair.compared.remarks)


def outside(folder: Path, *words: tuple[str, str], reference: Any = None, server: Any = None) -> Any:
    """Of a pair that has been compared."""
    spelling = Spelling(words)
    options, pair = SimpleNamespace(timeout=7), SimpleNamespace(reference=reference)
    made = PairOutside(SimpleNamespace(options=options), pair, server, folder)  # type: ignore[arg-type]
    vars(made).update(_tolerance=FLOAT64, _spellings=(spelling, spelling))
    return made


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "nothing moved for 7 seconds; a longer --timeout gives it longer"),
        (1, "could not be compared; see above"),
    ],
)
def test_files_that_could_not_be_compared_are_an_error(code: int | None, words: str, tmp_path: Path) -> None:
    server: Any = SimpleNamespace(call=lambda name, request, timeout: code if timeout == 7 else 0)
    with pytest.raises(RunError, match=f"the files that torch wrote .*{words}"):
        outside(tmp_path, server=server)._values([("model.pt", "a", "b")])


@pytest.mark.parametrize(
    ("code", "words"), [(2, ("usage: train.py", "train.py: error: --data is missing")), (0, ())]
)
def test_what_argparse_misses_is_told_where_both_end_with_its_exit_code(
    tmp_path: Path, code: int, words: tuple[str, ...]
) -> None:
    (tmp_path / "rank0.err").write_text("usage: train.py\n\n/scratch/train.py: error: --data is missing\n")
    run = Run(Stage("train.py", "dp", 2, ".", str(tmp_path), "train.py"), (code,), 1.0, None)
    found = outside(tmp_path, ("/scratch/", ""), reference=run).last_words
    assert found == words
    ended = how_it_ended(dataclasses.replace(same(), codes=(code, code), last_words=found))
    assert ended == (". It ends with exit code 2: train.py: error: --data is missing" if code else "")
