"""A call keeps its arguments when a helper takes its place, however they are written: by position or by keyword."""

from __future__ import annotations

import bz2
import codecs
import gzip
import inspect
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.parallel
import torch.utils.data
from dp2ddp.templates import checkpoints, files, functions, loader, model, overlapping, parts, streams, turns

PART_NAMES = ("rank0", "files", "trackers", "held", "streams")
# WholeBatchDDP is not among them: it takes no `dim`, and no program gets it that gives one.
STANDS_FOR: dict[Callable[..., Any], Callable[..., Any]] = {
    checkpoints.save_on_rank0: torch.save,
    files.open_on_rank0: open,
    model.WholeBatch: torch.nn.DataParallel,
    overlapping.WholeBatchParallel: torch.nn.DataParallel,
    parts.WholeBatchInParts: torch.nn.DataParallel,
    turns.WholeBatchInTurns: torch.nn.DataParallel,
    model.data_parallel_on_ranks: torch.nn.parallel.data_parallel,
    functions.scatter_on_ranks: torch.nn.parallel.scatter,
    functions.scatter_kwargs_on_ranks: torch.nn.parallel.scatter_gather.scatter_kwargs,
    functions.replicate_on_ranks: torch.nn.parallel.replicate,
    functions.parallel_apply_on_ranks: torch.nn.parallel.parallel_apply,
    functions.data_parallel_in_turns: torch.nn.parallel.data_parallel,
    functions.parallel_apply_in_turns: torch.nn.parallel.parallel_apply,
    functions.gather_on_ranks: torch.nn.parallel.gather,
    loader.Rank0Loader: torch.utils.data.DataLoader,
    streams.set_device_states: torch.cuda.set_rng_state_all,
    streams.get_device_state: torch.cuda.get_rng_state,
    streams.set_device_state: torch.cuda.set_rng_state,
    streams.fork_streams: torch.random.fork_rng,
}


@pytest.mark.parametrize("helper", STANDS_FOR, ids=lambda each: each.__name__)
def test_a_helper_has_the_names_of_what_it_stands_for(helper: Callable[..., Any]) -> None:
    own = inspect.signature(helper).parameters
    names = [
        name
        for name, each in inspect.signature(STANDS_FOR[helper]).parameters.items()
        if each.kind is each.POSITIONAL_OR_KEYWORD and not name.startswith("_")
    ]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in own.values())
    places = [name for name in own if name in names]
    assert places == names[: len(places)]
    assert places == names or takes_any


def helpers_that_pass_on() -> dict[str, inspect.Signature]:
    """Those that hand keywords of the script to a function that they are given."""
    found = {}
    for part in PART_NAMES:
        home = __import__(f"dp2ddp.templates.{part}", fromlist=[part])
        for name, each in vars(home).items():
            if inspect.isfunction(each) and each.__module__ == home.__name__:
                signature = inspect.signature(each)
                first = next(iter(signature.parameters.values()), None)
                is_given = first is not None and "Callable" in str(first.annotation)
                if is_given and any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values()):
                    found[name] = signature
    return found


def test_what_passes_keywords_on_keeps_no_name_for_itself() -> None:
    found = helpers_that_pass_on()
    assert len(found) >= 9
    for name, signature in found.items():
        first = next(iter(signature.parameters.values()))
        assert first.kind is first.POSITIONAL_ONLY, f"{name}({first.name}=...) is its own"


class Frame:
    """As pandas has it: an argument of the script's has a name that a helper could want."""

    def to_sql(self, path: str, method: str, function: str, kind: str) -> tuple[str, ...]:
        return path, method, function, kind


def test_a_method_may_take_what_is_called_method() -> None:
    given = {"method": "multi", "function": "f", "kind": "k"}
    assert files.write_on_rank0(Frame().to_sql, "a", **given) == ("a", "multi", "f", "k")


OPENERS = [
    (gzip.open, "filename"),
    (gzip.GzipFile, "filename"),
    (bz2.open, "filename"),
    (lzma.open, "filename"),
    (codecs.open, "filename"),
    (io.FileIO, "file"),
    (zipfile.ZipFile, "file"),
    (tarfile.open, "name"),
]


@pytest.mark.parametrize(
    ("opener", "word"), OPENERS, ids=[f"{f.__module__}.{f.__name__}" for f, _ in OPENERS]
)
def test_a_path_is_found_by_the_librarys_word(opener: Callable[..., Any], word: str, tmp_path: Path) -> None:
    path = tmp_path / "by_word"
    files.open_by_on_rank0(opener, **{word: path, "mode": "w"}).close()
    files.open_by_on_rank0(opener, mode="w", **{word: tmp_path / "turned"}).close()
    files.open_by_on_rank0(opener, tmp_path / "by_place", "w").close()
    assert {each.name for each in tmp_path.iterdir()} == {"by_word", "turned", "by_place"}
    files.open_by_on_rank0(opener, **{word: path}).close()


def test_an_archive_may_lie_in_memory() -> None:
    buffer = io.BytesIO()
    files.open_by_on_rank0(tarfile.open, fileobj=buffer, mode="w").close()
    assert buffer.getvalue()
