"""What the clock takes for a step, for waiting and for rows; times themselves decide nothing."""

from __future__ import annotations

import pytest

from dp2ddp.costs.figures import Timed, read
from dp2ddp.runtime.process.server import Server
from tests.ranks import run_program

# each program is a child of one that has torch, and ends as the clock ends it, or by itself
PROGRAM = """
import os, pathlib, sys, time, torch
from torch.utils.data import DataLoader
from dp2ddp.costs.clock import Clock

def on_and_on():
    for step in range(100):
        clock.saw_rows(3, grad=True)
        first.step()
        clock.saw_rows(4, grad=True)
        second.step()
        if step == 3:
            clock.saw_rows(9, grad=False)
    raise AssertionError("it was to end at the fifth")

def four_steps():
    for _ in range(4): first.step()
    time.sleep(0.2)

def waits():
    class Slow(torch.utils.data.Dataset):
        def __len__(self): return 3
        def __getitem__(self, i): time.sleep(0.05); return i

    class Own(DataLoader):  # a loader within a loader is waited for once
        def __iter__(self):
            for batch in super().__iter__():
                time.sleep(0.05)
                yield batch

    first.step(); first.step()
    for loader in (DataLoader(Slow()), Own(Slow()), [1, 2, 3]):
        for batch in loader:
            pass
        first.step()

for program in (on_and_on, four_steps, waits):
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0, program
        continue
    folder = pathlib.Path(sys.argv[1], program.__name__)
    folder.mkdir()
    clock = Clock(folder, 0, warm_up=2, steps=3, virtual=True)
    weights = [torch.zeros(2, requires_grad=True) for _ in range(2)]
    first, second = (torch.optim.SGD([one], lr=0.1) for one in weights)
    for one in weights:
        one.grad = torch.ones(2)
    try:
        program()
    finally:
        clock.finish()
    sys.exit()
"""


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory, server: Server) -> dict[str, Timed]:
    folder, program = tmp_path_factory.mktemp("clock"), tmp_path_factory.mktemp("program") / "programs.py"
    program.write_text(PROGRAM)
    result = run_program(server, folder, program, folder)
    assert result.returncode == 0, result.stderr
    return {found.name: read(found, range(1), Timed)[0] for found in folder.iterdir()}


def test_a_step_is_one_of_the_optimizer_that_steps_first(timed: dict[str, Timed]) -> None:
    found = timed["on_and_on"]
    assert found.steps == 5
    assert found.rows == (7, 7, 7)
    assert found.evaluated == (False, False, True)
    assert min(found.seconds) > 0
    assert found.resident > 10**7


def test_a_program_that_ends_by_itself_keeps_its_steps(timed: dict[str, Timed]) -> None:
    found = timed["four_steps"]
    assert (found.steps, len(found.seconds)) == (4, 2)
    assert sum(found.seconds) < 0.2  # what comes behind the last step is no part of one


def test_waiting_is_the_time_in_next_also_of_loaders_of_ones_own(timed: dict[str, Timed]) -> None:
    found = timed["waits"]
    plain, own, none = found.waiting
    assert plain >= 0.15
    assert own >= 0.3
    assert none == 0
    assert all(wait <= step for wait, step in zip(found.waiting, found.seconds, strict=True))
