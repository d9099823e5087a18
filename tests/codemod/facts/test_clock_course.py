"""A clock is followed into functions, objects and containers, and out of them: which stay each rank's own."""

from __future__ import annotations

import textwrap

import pytest

from dp2ddp.codemod.facts.clocks import shared_clocks
from dp2ddp.codemod.facts.modules import Modules
from tests.codemod.scripts import project_of
from tests.codemod.small.clock_scripts import METER, OWN, SHARED


def clocks(text: str, **modules: str) -> tuple[list[int], int]:
    """The lines of the clocks that are shared, and how many clocks there are in all."""
    project = project_of(
        "import datetime, json, os, random, sys, time\nimport numpy\nimport torch\n" + text,
        **{name: "import time\n" + textwrap.dedent(one) for name, one in modules.items()},
    )
    found = Modules(project)
    shared = [one.node.lineno for script in found.scripts for one in shared_clocks(script, found)]
    names = ("time.time", "time.perf_counter")
    return shared, sum(1 for script in found.scripts for _ in script.calls_of(*names))


@pytest.mark.parametrize("text", OWN.values(), ids=OWN.keys())
def test_a_clock_that_is_shown_is_each_ranks_own(text: str) -> None:
    shared, count = clocks(text)
    assert count > 0
    assert shared == []


@pytest.mark.parametrize("text", SHARED.values(), ids=SHARED.keys())
def test_a_clock_that_decides_is_shared(text: str) -> None:
    shared, count = clocks(text)
    assert len(shared) == count


def test_a_meter_of_another_file() -> None:
    shown = METER + "def show(meter):\n    print(meter.avg)\n"
    text = (
        "from util import AverageMeter, show\nmeter = AverageMeter('t')\nt = time.time()\n"
        "meter.update(time.time() - t)\nshow(meter)\n"
    )
    assert clocks(text, util=shown) == ([], 2)
    decides = shown.replace("print(meter.avg)", "stop(meter.avg > 5)")
    assert len(clocks(text, util=decides)[0]) == 2


def test_a_name_of_another_file() -> None:
    assert (
        len(
            clocks(
                "from util import begin as since\nif since > 5:\n    quit()\n", util="begin = time.time()\n"
            )[0]
        )
        == 1
    )
    assert clocks("import util\nprint(util.begin)\n", util="begin = time.time()\n") == ([], 1)


def test_one_meter_decides_and_another_is_shown() -> None:
    text = (
        METER
        + """
shown, limit = AverageMeter("a"), AverageMeter("b")
a = time.time()
shown.update(time.time() - a)
b = time.time()
limit.update(time.time() - b)
print(shown.avg)
if limit.avg > 5:
    quit()
"""
    )
    shared, count = clocks(text)
    first = min(number for number, line in enumerate(text.split("\n"), 1) if line.startswith("b = "))
    assert count == 4
    assert [line - shared[0] for line in shared] == [0, 1]
    assert shared[0] == first + 3  # behind three lines of imports
