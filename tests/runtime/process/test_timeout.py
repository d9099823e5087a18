"""How long something that runs may stand still, on a clock of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dp2ddp.runtime.process import timeout
from dp2ddp.runtime.process.timeout import LONGEST, Timeout, processor_time

BURN = "import time\nwhile time.process_time() < 0.5: pass\n"
WAIT = "print(flush=True); import sys; sys.stdin.read()"


class Machine:
    """One process, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.taken, self.load = 100.0, 50.0, 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(os, "getloadavg", lambda: (self.load, 0.0, 0.0))
        monkeypatch.setattr(os, "cpu_count", lambda: 2)
        monkeypatch.setattr(timeout, "processor_time", lambda pid: self.taken)

    def go_on(self, limit: Timeout, seconds: float, share: float) -> None:
        """Look at it once a second."""
        for _ in range(round(seconds)):
            self.now += 1
            self.taken += share
            limit.look([1])


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.mark.parametrize(("share", "is_over"), [(0.0, True), (0.05, True), (0.2, False), (1.0, False)])
def test_who_computes_is_alive_and_who_looks_and_sleeps_is_not(
    machine: Machine, share: float, is_over: bool
) -> None:
    limit = Timeout(60)
    machine.go_on(limit, 61, share)
    assert limit.is_over() is is_over


def test_who_shares_a_processor_with_many_computes_with_less(machine: Machine) -> None:
    """Seventeen processes for each processor: none of them gets a tenth of it."""
    machine.load = 34.0
    limit = Timeout(60)
    machine.go_on(limit, 61, 0.05)
    assert not limit.is_over()
    machine.go_on(limit, 100, 0.02)
    assert limit.is_over()


def test_who_stops_computing_has_the_whole_time_again(machine: Machine) -> None:
    limit = Timeout(60)
    machine.go_on(limit, 600, 1)
    machine.go_on(limit, 50, 0)
    assert not limit.is_over()
    machine.go_on(limit, 15, 0)
    assert limit.is_over()
    assert not limit.is_over(allowance=60)
    assert limit.why == "nothing moved for 60 seconds"
    limit.moved()
    assert not limit.is_over()


def test_who_computes_for_ever_is_given_up(machine: Machine) -> None:
    limit = Timeout(10)
    machine.go_on(limit, 10 * LONGEST - 1, 1)
    assert not limit.is_over()
    machine.go_on(limit, 2, 1)
    assert limit.is_over()
    assert limit.why.startswith("no step, no backward and no batch for 300 seconds, though it computes")


def test_no_timeout_waits_for_ever(machine: Machine) -> None:
    limit = Timeout(None)
    machine.go_on(limit, 10**4, 0)
    assert not limit.is_over()


# ---- real processes


@pytest.fixture
def child(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the parameter, then waits."""
    with subprocess.Popen(
        [sys.executable, "-c", request.param + WAIT], stdin=-1, stdout=-1, text=True
    ) as child:
        child.stdout.readline()
        yield child
        child.stdin.close()


@pytest.mark.parametrize(
    "child",
    [BURN, f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}])\n"],
    indirect=True,
    ids=["its own", "of a child that has ended"],
)
def test_processor_time_is_that_of_a_process_and_its_children(child: subprocess.Popen[str]) -> None:
    assert processor_time(child.pid) > 0.4
    assert processor_time(2**22 + 1) == 0.0  # no such process


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_a_process_with_a_gpu_may_spin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "nvidia0"
    device.touch()
    with subprocess.Popen(
        [sys.executable, "-c", f"device = open({str(device)!r})\n{BURN}{WAIT}"],
        stdin=-1,
        stdout=-1,
        text=True,
    ) as child:
        child.stdout.readline()
        assert processor_time(child.pid) > 0.4
        monkeypatch.setattr(timeout, "_GPUS", str(tmp_path / "nvidia"))
        assert processor_time(child.pid) == 0.0
        child.communicate()
