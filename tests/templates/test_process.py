"""A process that joined nothing is a world of one; random streams; messages that cannot be sent."""

from __future__ import annotations

import os
import pickle
import random
import sys
from typing import Any

import numpy
import pytest
import torch
from dp2ddp.templates.process import (
    RANK_PROCESS,
    alone,
    choose_backend,
    drop_reducer,
    exchange,
    is_rank_process,
    join_process_group,
    leave_process_group,
    mute_output,
    own_rank,
    pickle_or_explain,
    random_streams,
    report_exception,
    set_random_streams,
    world_size,
)


def test_without_torchrun_joining_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    before = sys.stdout, sys.stderr, sys.excepthook, torch.get_rng_state().sum()
    join_process_group()
    leave_process_group()
    assert (sys.stdout, sys.stderr, sys.excepthook, torch.get_rng_state().sum()) == before
    assert not torch.distributed.is_initialized()
    assert (world_size(), own_rank(), exchange("own")) == (1, 0, ["own"])


def test_a_child_of_a_rank_does_not_join(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", RANK_PROCESS: str(os.getppid())}.items():
        monkeypatch.setenv(name, value)
    join_process_group()  # would wait for the other rank for ever
    assert not is_rank_process()
    assert world_size() == 1


def test_alone_is_over_after_the_block_also_by_an_exception() -> None:
    with pytest.raises(KeyError), alone():
        raise KeyError
    assert world_size() == 1


@pytest.mark.parametrize(("ranks", "devices", "backend"), [(2, 2, "cpu:gloo,cuda:nccl"), (2, 1, "gloo")])
def test_nccl_only_if_every_rank_has_its_own_device(
    monkeypatch: pytest.MonkeyPatch, ranks: int, devices: int, backend: str
) -> None:
    chosen: list[int] = []
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    assert choose_backend() == backend
    assert chosen == [1 % devices]


def draw() -> list[float]:
    return [random.random(), float(torch.rand(())), float(numpy.random.rand())]


def test_streams_go_on_from_where_they_were_also_after_pickling() -> None:
    streams = pickle.loads(pickle.dumps(random_streams()))
    first = draw()
    assert draw() != first
    set_random_streams(streams)
    assert draw() == first


def test_streams_that_are_not_named_stay() -> None:
    streams = random_streams()
    first, second = draw(), draw()
    set_random_streams({"random": streams["random"]})
    assert [a == b for a, b in zip(draw(), first, strict=True)] == [True, False, False]
    assert first != second


def test_what_cannot_be_pickled_becomes_its_reason() -> None:
    found: Any = pickle.loads(pickle_or_explain(lambda: None))
    assert isinstance(found, pickle.PicklingError)
    assert "lambda" in str(found)


def test_a_quiet_rank_still_reports_what_ends_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "__stderr__", sys.stderr)
    monkeypatch.setenv("RANK", "3")
    report_exception(ValueError, ValueError("the\nreason"), None)
    assert "[rank3]: ValueError: the\n[rank3]: reason\n" in capsys.readouterr().err


def test_a_quiet_rank_stays_quiet_when_the_script_goes_back_to_the_first_stdout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("stdout", "stderr", "__stdout__", "excepthook"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    mute_output()
    assert sys.__stdout__ is sys.stdout
    assert sys.stdout.name == os.devnull
    sys.stdout.close()


def test_dropping_a_reducer_twice_is_fine() -> None:
    class Wrapped:
        reducer = None

    wrapped = Wrapped()
    vars(wrapped).update(reducer=1, logger=2)
    drop_reducer(wrapped)  # type: ignore[arg-type]
    drop_reducer(wrapped)  # type: ignore[arg-type]
    assert not vars(wrapped)


def test_the_traceback_of_a_rank_has_the_scripts_own_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "__stderr__", sys.stderr)
    monkeypatch.setenv("RANK", "1")
    try:
        torch.nn.Sequential(torch.nn.Linear(2, 2))(torch.ones(3, 3))
    except RuntimeError as error:
        caught = error
    report_exception(RuntimeError, caught, caught.__traceback__)
    short = capsys.readouterr().err
    monkeypatch.setenv("FULL_TRACEBACK", "1")
    report_exception(RuntimeError, caught, caught.__traceback__)
    full = capsys.readouterr().err
    assert short.count("File ") == 1
    assert "test_process.py" in short
    assert "container.py" in full
    assert short.splitlines()[-1] == full.splitlines()[-1]
