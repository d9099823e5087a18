"""A failed run in words: what old code is called now, so that the original can be mended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dp2ddp.report.failure_text import Original, failure_text
from dp2ddp.runtime.hang.stacks import Frame, RankPosition
from dp2ddp.runtime.process.run import Failure, Run
from dp2ddp.runtime.stage import Stage

STAGE = Stage(script="/a/train.py", mode="dp", world=2, folder="/a", run_folder="/b", name="train.py")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("IndexError: invalid index of a 0-dim tensor. Use `tensor.item()`", "`loss.item()`"),
        ("AttributeError: '_SingleProcessDataLoaderIter' object has no attribute 'next'", "`next(iterator)`"),
        ("AttributeError: module 'collections' has no attribute 'Iterable'", "collections.abc"),
        ("AttributeError: module 'torch.nn.init' has no attribute 'xavier_uniform'", "xavier_uniform_"),
    ],
)
def test_old_code_is_told_what_it_is_called_now(error: str, advice: str) -> None:
    text = failure_text(Run(STAGE, (1,), 1.0, Failure("crash", 0, error)))
    assert text.startswith(f"train.py: failed in dp mode on 2 devices: {error}. Old code: ")
    assert advice in text


def test_a_rank_of_a_conversion_stands_at_a_line_of_the_original_too() -> None:
    before, after = "import torch\nloop()\nsave()\n", "import torch\njoin()\nloop()\nsave_once()\n"
    original = Original.of("train.py", before, "train_ddp.py", after)
    positions = (
        RankPosition(0, (Frame("/a/train_ddp.py", 3, "<module>"),), collective="barrier"),
        RankPosition(1, (Frame("/a/train_ddp.py", 4, "<module>"),), collective="barrier"),
        RankPosition(2, (Frame("/a/data.py", 3, "<module>"),), collective="barrier"),
    )
    run = Run(replace(STAGE, mode="ddp"), (None,), 1.0, Failure("hang", None, "nothing moved", positions))
    assert failure_text(run, original).splitlines()[1:] == [
        "  rank 0 waits in barrier at train_ddp.py:3 (line 2 of train.py)",
        "  rank 1 waits in barrier at train_ddp.py:4",
        "  rank 2 waits in barrier at data.py:3",
    ]


def test_any_other_error_stands_alone() -> None:
    text = failure_text(Run(STAGE, (1,), 1.0, Failure("crash", 0, "ValueError: no data")))
    assert text == "train.py: failed in dp mode on 2 devices: ValueError: no data"
