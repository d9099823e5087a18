"""Whether ranks take the samples of DataParallel's epochs, by what their own samplers would have given."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from dp2ddp.comparison.aligned import is_other_draw, unshared
from dp2ddp.trace.aligned_orders import Weights

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
    lines = [json.dumps([[8, 0, 0], batch]) for batch in reference]
    (tmp_path / "reference.jsonl").write_text("\n".join(lines) + "\n")
    for part, samples in enumerate(ranks):
        (tmp_path / f"own-{part}.jsonl").write_text(json.dumps([[8, 0, 0], 2, part, samples]) + "\n")
    found = unshared(tmp_path)
    assert (words is None) == (found == ())
    assert words is None or words in found[0]


def test_orders_of_their_own_on_each_rank(tmp_path: Path) -> None:
    (tmp_path / "reference.jsonl").write_text(json.dumps([[4, 0, 0], [2, 0, 3, 1]]) + "\n")
    for rank, samples in enumerate(([1, 3, 2, 0], [0, 3, 1, 2])):
        (tmp_path / f"own-{rank}.jsonl").write_text(json.dumps([[4, 0, 0], 1, 0, samples]) + "\n")
    assert "an order of its own" in unshared(tmp_path)[0]


def moments(values: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    return float(values.mean()), float((values**2).mean()), float((values**4).mean())


RANDOM = np.random.Generator(np.random.PCG64(0))
DRAWS = {
    "normal": lambda n: RANDOM.normal(0, 0.1, n),
    "uniform of the same size": lambda n: RANDOM.uniform(-0.1732, 0.1732, n),
    "normal, ten times as large": lambda n: RANDOM.normal(0, 1.0, n),
    "normal, half as large": lambda n: RANDOM.normal(0, 0.05, n),
    "zeros": np.zeros,
    "ones": np.ones,
}


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """Whichever tests this process ran before."""
    RANDOM.bit_generator.state = np.random.PCG64(0).state


@pytest.mark.parametrize("n", [4, 30, 1000, 50_000])
@pytest.mark.parametrize("kind", ["normal", "uniform of the same size"])
def test_two_draws_of_one_distribution_are_another_seed(kind: str, n: int) -> None:
    draws = [Weights("w", n, moments(DRAWS[kind](n)), moments(DRAWS[kind](n))) for _ in range(50)]
    assert (
        sum(map(is_other_draw, draws)) >= 49
    )  # a fourth moment of 30 numbers strays further once in a while


@pytest.mark.parametrize(
    ("expected", "actual", "n"),
    [
        ("normal", "uniform of the same size", 5000),
        ("normal", "normal, half as large", 300),
        ("normal", "normal, ten times as large", 48),
        ("normal", "zeros", 4),
        ("ones", "normal", 4),
        ("zeros", "ones", 4),
    ],
)
def test_draws_of_two_distributions_are_no_other_seed(expected: str, actual: str, n: int) -> None:
    assert not is_other_draw(Weights("w", n, moments(DRAWS[expected](n)), moments(DRAWS[actual](n))))
    assert not is_other_draw(Weights("w", n, moments(DRAWS[actual](n)), moments(DRAWS[expected](n))))


def test_two_checkpoints_of_one_training_are_no_other_seed() -> None:
    first = DRAWS["normal"](1000)
    other = first + 0.1 * DRAWS["normal"](1000)
    correlation = float(np.corrcoef(first, other)[0, 1])
    assert not is_other_draw(Weights("w", 1000, moments(first), moments(other), correlation))
    assert is_other_draw(Weights("w", 1000, moments(first), moments(DRAWS["normal"](1000)), 0.03))


def test_an_evaluation_may_take_its_samples_in_any_order(tmp_path: Path) -> None:
    lines = [json.dumps([[8, 0, 0], batch]) for batch in ([0, 1, 2, 3], [4, 5, 6, 7])]
    (tmp_path / "reference.jsonl").write_text("\n".join(lines) + "\n")
    for part, samples in enumerate(([6, 1, 4, 3], [0, 2, 7, 5])):
        (tmp_path / f"own-{part}.jsonl").write_text(json.dumps([[8, 0, 0], 2, part, samples]) + "\n")
    (tmp_path / "trained.jsonl").write_text(json.dumps([40, 0]) + "\n")
    assert unshared(tmp_path) == ()
    (tmp_path / "trained.jsonl").write_text(json.dumps([8, 0]) + "\n")
    assert "the ranks shuffle it" in unshared(tmp_path)[0]


def test_a_padded_part_is_in_order(tmp_path: Path) -> None:
    """Of 7 samples, 2 ranks have 4 each: the last one begins anew."""
    (tmp_path / "reference.jsonl").write_text(json.dumps([[7, 0, 0], [0, 1, 2, 3, 4, 5, 6]]) + "\n")
    for part, samples in enumerate(([0, 2, 4, 6], [1, 3, 5, 0])):
        (tmp_path / f"own-{part}.jsonl").write_text(json.dumps([[7, 0, 0], 2, part, samples]) + "\n")
    assert unshared(tmp_path) == ()
