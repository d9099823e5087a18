"""What docs/hf_trainer.md says of transformers' Trainer: gradients under DataParallel and on ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from dp2ddp import verify
from dp2ddp.runtime.process.server import Server
from tests.cli.forked import forked

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "hf_trainer.md"
ROW = re.compile(r"^\| (.+?) \| (same|from step (\d+)) \|", re.MULTILINE)
SAME = "same"
SCRIPT = Path(__file__).with_name("trainers.py")
# read, not imported: transformers takes seconds, of every process that collects tests
NAMES = [name for _, name in re.findall(r"""^    (["'])(.+)\1: lambda""", SCRIPT.read_text(), re.MULTILINE)]

pytestmark = pytest.mark.skipif(
    not all(find_spec(name) for name in ("transformers", "peft")), reason="needs transformers and peft"
)
Gradients = dict[int, dict[str, "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"]]


@pytest.fixture(scope="module")
def runs(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where each start has left its gradients."""
    folders = {mode: tmp_path_factory.mktemp(mode) for mode in ("dp", "ddp")}
    for mode, folder in folders.items():
        script = str(SCRIPT)
        result = forked(server, folder, "run", script, "--mode", mode, "-n", 2, "--", str(folder))
        assert result.exit_code == 0, result.output[-3000:]
    return folders


def gradients(folder: Path, name: str) -> Gradients:
    by_step: Gradients = {}
    with np.load(folder / f"{NAMES.index(name)}.npz") as file:
        for key in file.files:
            step, _, parameter = key.partition(":")
            by_step.setdefault(int(step), {})[parameter] = file[key]
    return by_step


def differences(dp: Gradients, ddp: Gradients) -> Iterator[tuple[int, float]]:
    """By step, the largest one, in parts of the step's largest gradient."""
    assert dp.keys() == ddp.keys()
    for step, expected in sorted(dp.items()):
        assert expected.keys() == ddp[step].keys()
        scale = max(np.abs(each).max() for each in expected.values())
        yield step, max(np.abs(each - ddp[step][name]).max() for name, each in expected.items()) / scale


@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_from_which_step_gradients_differ(name: str, runs: dict[str, Path]) -> None:
    found = differences(gradients(runs["dp"], name), gradients(runs["ddp"], name))
    first = next((f"from step {step}" for step, size in found if size > 1e-10), SAME)
    said = {cell: word for cell, word, _ in ROW.findall(PAGE.read_text(encoding="utf-8"))}
    assert first == said[name]


@pytest.mark.parametrize(
    "name", ["`label_smoothing_factor`", "`compute_loss_func` that divides by `num_items_in_batch`"]
)
def test_data_parallel_s_gradients_are_w_times_too_large(name: str, runs: dict[str, Path]) -> None:
    """To 1e-6: the label smoother sums in float32, whatever the model is in."""
    dp, ddp = (gradients(runs[mode], name)[1] for mode in ("dp", "ddp"))
    for parameter, expected in ddp.items():
        np.testing.assert_allclose(dp[parameter], 2 * expected, rtol=1e-6, atol=1e-12)


@pytest.mark.slow
def test_the_example_trains_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (verdict,) = verify(str(ROOT / "examples" / "hf_trainer" / "train.py"), devices=2, timeout=500.0).verdicts
    assert verdict.same
    assert verdict.float64.steps == 12
