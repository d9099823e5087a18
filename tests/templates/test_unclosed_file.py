"""A file that a script opens and never closes is complete when the run has ended."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dp2ddp.templates import rank_zero_output


def test_what_is_left_in_an_unclosed_file_is_written_at_exit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    at_exit: list[Callable[[], Any]] = []
    monkeypatch.setattr(rank_zero_output, "world_size", lambda: 2)
    monkeypatch.setattr(rank_zero_output, "exchange", lambda value: [value, None])
    monkeypatch.setattr(
        rank_zero_output.atexit, "register", lambda function, *args: at_exit.append(lambda: function(*args))
    )
    path = tmp_path / "log.csv"

    file = rank_zero_output.open_on_rank_zero(path, "w")
    rows = csv.writer(file)
    rows.writerow([1, 2])
    assert path.read_text() == ""
    for function in at_exit:
        function()

    assert path.read_text() == "1,2\n"
    file.file.close()
