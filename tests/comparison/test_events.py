"""TensorBoard files: what they say is compared, not when they say it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.tensorboard import SummaryWriter

from dp2ddp.comparison.events import event_lines
from dp2ddp.comparison.output_comparison import compare_files
from dp2ddp.comparison.tolerance import FLOAT64
from dp2ddp.copies.leavings import FilesLeft
from dp2ddp.copies.linked import copy_by_links


def written(folder: Path, loss: float = 0.25, speed: float = 31.0) -> FilesLeft:
    """A run's folder with one file of events."""
    (folder / "original").mkdir(parents=True)
    workspace = copy_by_links(folder / "original", folder / "copy", {}, (), ())
    with SummaryWriter(str(workspace.folder / "runs")) as writer:
        writer.add_scalar("train/loss", loss, 3)
        writer.add_scalar("steps_per_sec", speed, 3)
        writer.add_histogram("weights", np.array([loss, 2.0]), 4)
        writer.add_text("note", "hello", 5)
        writer.add_scalar("new", 1.5, 6, new_style=True)
    return workspace.left_behind()


def test_each_event_is_a_line(tmp_path: Path) -> None:
    leavings = written(tmp_path)

    assert event_lines(leavings.folder / leavings.written[0]) == [
        "train/loss, step 3: 0.25",
        "steps_per_sec, step 3: <time>",
        "weights, step 4: histogram 0.25 2.0 2.0 2.25",
        "note/text_summary, step 5: hello",
        "new, step 6: 1.5",
    ]


def test_the_time_that_loading_took_is_a_time(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        for tag in ("train/time", "train/data", "data"):
            writer.add_scalar(tag, 1.5, 0)
    (path,) = tmp_path.iterdir()

    assert event_lines(path) == [
        "train/time, step 0: <time>",
        "train/data, step 0: <time>",
        "data, step 0: 1.5",
    ]


def test_a_record_that_was_cut_off_ends_the_file(tmp_path: Path) -> None:
    leavings = written(tmp_path)
    path = leavings.folder / leavings.written[0]
    path.write_bytes(path.read_bytes()[:-20])

    assert event_lines(path)[-1] == "note/text_summary, step 5: hello"


@pytest.mark.parametrize(
    ("changed", "same"),
    [({"loss": 0.25 * (1 + 1e-7)}, True), ({"speed": 28.0}, True), ({"loss": 0.2501}, False)],
    ids=["rounding", "a speed", "another loss"],
)
def test_values_are_compared(tmp_path: Path, changed: dict[str, Any], same: bool) -> None:
    compared = compare_files(written(tmp_path / "a"), written(tmp_path / "b", **changed), FLOAT64)

    assert compared.same == same
    assert same or compared.different[0].what.startswith(
        "line 1: 'train/loss, step 3: 0.25' under DataParallel"
    )
