"""Whether ranks take the samples of DataParallel's epochs, by what their own samplers would have given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dp2ddp.verify.aligned import unshared

SHUFFLED = [[3, 0, 5, 1], [7, 2, 4, 6]]


@pytest.mark.parametrize(
    ("reference", "ranks", "words"),
    [
        pytest.param(SHUFFLED, ([6, 1, 4, 3], [0, 2, 7, 5]), None, id="another order, shared out"),
        pytest.param(SHUFFLED, ([6, 1, 4, 3, 6], [0, 2, 7, 5, 1]), None, id="padded"),
        pytest.param(SHUFFLED[:1], ([6, 1, 4, 3], [0, 2, 7, 5]), None, id="DataParallel stopped early"),
        pytest.param(SHUFFLED, ([6, 1, 4, 3], [6, 1, 4, 3]), "leave out 0, 2, 5, 7", id="not shared out"),
        pytest.param([[3, 3, 3, 1], [3, 2, 3, 1]], ([6, 1, 4, 3], [0, 2, 7, 5]), "weights", id="weights"),
        pytest.param(SHUFFLED, ([0, 2, 4, 6], [1, 3, 5, 7]), "in order, DataParallel shuffles", id="a lost shuffle"),
        pytest.param(
            [[0, 1, 2, 3], [4, 5, 6, 7]], ([6, 1, 4, 3], [0, 2, 7, 5]), "ranks shuffle", id="a shuffle too many"
        ),
    ],
)  # fmt: skip
def test_the_samples_of_an_epoch(
    tmp_path: Path, reference: list[list[int]], ranks: tuple[list[int], list[int]], words: str | None
) -> None:
    lines = [json.dumps([8, 0, 0, batch]) for batch in reference]
    (tmp_path / "reference.jsonl").write_text("\n".join(lines) + "\n")
    for part, samples in enumerate(ranks):
        (tmp_path / f"own-{part}.jsonl").write_text(json.dumps([8, 0, 0, 2, part, samples]) + "\n")
    found = unshared(tmp_path)
    assert (words is None) == (found == ())
    assert words is None or words in found[0]


def test_orders_of_their_own_on_each_rank(tmp_path: Path) -> None:
    (tmp_path / "reference.jsonl").write_text(json.dumps([4, 0, 0, [2, 0, 3, 1]]) + "\n")
    for rank, samples in enumerate(([1, 3, 2, 0], [0, 3, 1, 2])):
        (tmp_path / f"own-{rank}.jsonl").write_text(json.dumps([4, 0, 0, 1, 0, samples]) + "\n")
    assert "an order of its own" in unshared(tmp_path)[0]
