"""Files of values alone: tensors of safetensors, JSON, tables; and what libraries note in them of their start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from dp2ddp.comparison.contents import is_of_start, library_file
from tests.comparison.unlike import difference


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_safetensors_are_compared_as_tensors(tmp_path: Path, dtype: torch.dtype) -> None:
    save_file = pytest.importorskip("safetensors.torch").save_file
    weights = torch.arange(1.0, 5.0, dtype=torch.float64)
    made = {
        "a": {"weight": weights, "count": torch.tensor(3)},
        "rounded": {"weight": weights * (1 + 1e-12), "count": torch.tensor(3)},
        "other": {"weight": weights * 1.125, "count": torch.tensor(3)},
        "fewer": {"weight": weights},
    }
    for name, tensors in made.items():
        tensors = {key: each.to(dtype) if key == "weight" else each for key, each in tensors.items()}
        save_file(tensors, tmp_path / f"{name}.safetensors", {"format": "pt"})
    a, rounded, other, fewer = (tmp_path / f"{name}.safetensors" for name in made)
    save_file(
        {key: each.to(dtype) for key, each in made["fewer"].items()},
        tmp_path / "tf.safetensors",
        {"format": "tf"},
    )
    assert difference(a, rounded, 1e-10) == ""
    assert difference(a, other, 1e-10) == "['weight'] differs by 1.2e-01"
    assert "only under DataParallel: ['count']" in difference(a, fewer, 1e-10)
    assert "'tf' instead of 'pt'" in difference(fewer, tmp_path / "tf.safetensors", 1e-10)
    broken = _written(tmp_path / "broken.safetensors", "no tensors")
    assert "cannot be read" in difference(a, broken, 1e-10)


@pytest.mark.parametrize(
    ("suffix", "expected", "actual"),
    [
        pytest.param("json", '{"loss": [1.0, 1e-17]}', '{"loss": [1.0, 3e-17]}', id="rounding beside one"),
        pytest.param("json", '{"a": 1, "b": 2.5}', '{"b": 2.5, "a": 1}', id="order of keys"),
        pytest.param("json", '{"eval_runtime": 3.5}', '{"eval_runtime": 0.25}', id="time"),
        pytest.param("json", '{"train_runtime": "3.5"}', '{"train_runtime": "0.25"}', id="time as text"),
        pytest.param("json", '{"epoch_time": [3.5, 4.0]}', '{"epoch_time": [0.25, 1.0]}', id="list of times"),
        pytest.param(
            "json", '{"Timing/G": {"mean": 3.5}}', '{"Timing/G": {"mean": 0.2}}', id="means of times"
        ),
        pytest.param(
            "csv", "loss,time\n1.0,2.5\n1e-17,2.5\n", "loss,time\n1.0,3.5\n5e-17,4.5\n", id="column of times"
        ),
        pytest.param("json", '{"total_flos": 12.0}', '{"total_flos": 14.0}', id="operations"),
        pytest.param("json", '{"a": 1}\n{"seconds": 2}\n', '{"a": 1}\n{"seconds": 3}\n', id="a value a line"),
        pytest.param("jsonl", '{"mem": NaN}\n', '{"mem": NaN}\n\n', id="not a number"),
        pytest.param("csv", "p,q\n1.0,2\n1e-17,2\n", "p,q\n1.0,2\n5e-17,2\n", id="column"),
        pytest.param("csv", "1.0,a\n1e-17,b\n", "1.0,a\n5e-17,b\n", id="column without a name"),
    ],
)
def test_values_that_are_the_same(tmp_path: Path, suffix: str, expected: str, actual: str) -> None:
    a, b = (_written(tmp_path / f"{at}.{suffix}", text) for at, text in enumerate((expected, actual)))
    assert difference(a, b, 1e-10) == ""


@pytest.mark.parametrize(
    ("suffix", "expected", "actual", "words"),
    [
        pytest.param("json", '{"n": [1000000]}', '{"n": [1000001]}', "['n'][0] is 1000001", id="count"),
        pytest.param("json", '{"loss": 0.5}', '{"loss": 0.75}', "['loss'] is 0.75 instead of 0.5", id="number"),
        pytest.param("json", '{"loss": [0.5, 1.0]}', '{"loss": [0.75, 1.0]}', "['loss'] differs by", id="list"),
        pytest.param("json", '{"runtime": 1.5}', '{"time_steps": 1.5}', "other keys", id="keys"),
        pytest.param("json", '{"time": [0.5]}', '{"time": [0.5, 0.75]}', "['time'] has 2 items", id="times"),
        pytest.param("csv", "p,q\n1.0,2\n", "p,q\n1.0,3\n", "['q'][0] is 3 instead of 2", id="cell"),
        pytest.param("csv", "p,q\n1.0,2\n", "p,q\n1.0,2\n1.0,2\n", "['rows'] has 2 items", id="rows"),
        pytest.param("csv", "p,q\n1.0,2\n", "p,q\n1.0\n", "['rows'][0] is 1", id="cells"),
        pytest.param("json", '{"a": 1', '{"a": 1}', "cannot be read", id="broken"),
    ],
)  # fmt: skip
def test_values_that_differ(tmp_path: Path, suffix: str, expected: str, actual: str, words: str) -> None:
    a, b = (_written(tmp_path / f"{at}.{suffix}", text) for at, text in enumerate((expected, actual)))
    assert words in difference(a, b, 1e-10)


def test_tensors_under_the_name_of_a_time_are_compared(tmp_path: Path) -> None:
    for name, value in (("a", 1.0), ("b", 2.0)):
        torch.save({"time": torch.full((3000,), value), "seconds": value}, tmp_path / f"{name}.pt")
    assert difference(tmp_path / "a.pt", tmp_path / "b.pt", 1e-10) == "['time'] differs by 1.0e+00"


def test_what_a_trainer_notes_of_its_start_is_left_out_and_nothing_else(tmp_path: Path) -> None:
    row = library_file("out/checkpoint-8/trainer_state.json")
    files = [
        _written(
            tmp_path / f"{size}-{loss}.json", json.dumps({"train_batch_size": size, "best_metric": loss})
        )
        for size, loss in ((8, 0.5), (4, 0.5), (4, 0.25))
    ]
    assert difference(files[0], files[1], 1e-10, library=row) == ""
    assert "train_batch_size" in difference(files[0], files[1], 1e-10)
    assert "best_metric" in difference(files[0], files[2], 1e-10, library=row)


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        ("out/checkpoint-8/rng_state.pth", True),
        ("checkpoint-8/rng_state_1.pth", True),
        ("state/random_states_0.pkl", True),
        ("out/rng_state.pth", False),
        ("out/checkpoint-8/optimizer.pt", False),
        ("out/training_args.bin", False),
    ],
)
def test_only_a_ranks_random_state_is_left_out_as_a_whole(path: str, whole: bool) -> None:
    assert is_of_start(path) is whole
