"""Processes end with the one that started them, also where that ended first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from dp2ddp.runtime.processes import parent_variable

ASKS = (
    "from dp2ddp.runtime.processes import die_with_parent; import os; die_with_parent(); "
    "print([name for name in os.environ if name.startswith('DP2DDP')])"
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own signal")


@linux
def test_a_parent_that_has_ended_ends_its_child() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    variable = dict.fromkeys(parent_variable(), str(ended.pid))
    assert ask(variable) == (-signal.SIGKILL, "")


@linux
def test_a_parent_that_lives_keeps_it_and_the_script_sees_nothing_of_it() -> None:
    assert ask(parent_variable()) == (0, "[]\n")
    assert ask({}) == (0, "[]\n")


def ask(variable: dict[str, str]) -> tuple[int, str]:
    command = [sys.executable, "-c", ASKS]
    result = subprocess.run(
        command, env={**os.environ, **variable}, capture_output=True, text=True, check=False
    )
    return result.returncode, result.stdout
