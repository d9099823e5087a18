"""What bench makes of a verdict, and which options go together."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dp2ddp.costs.result import Sameness
from dp2ddp.trial.options import VerifyOptions
from dp2ddp.trial.timing import Timing, _sameness
from tests.report.made_up import different, same

SUBJECT: Any = SimpleNamespace(script=Path("train.py"), port=Path("port.py"), launch="torchrun port.py")


def test_a_verdict_is_about_the_training() -> None:
    verdict = same()
    assert _sameness(SUBJECT, verdict) == Sameness("same", verdict.float64.steps)
    loud = _sameness(SUBJECT, dataclasses.replace(verdict, printing_ranks=(1,)))
    assert loud == Sameness("same", verdict.float64.steps, "port.py prints other lines, on 2 devices")
    assert loud.words.endswith("steps): port.py prints other lines, on 2 devices")
    found = _sameness(SUBJECT, different())
    assert found.proof == "different"
    assert found.text.startswith("port.py parts from train.py under DataParallel at step")


def test_nothing_that_was_compared_proves_nothing() -> None:
    verdict = same()
    none = dataclasses.replace(verdict, float64=dataclasses.replace(verdict.float64, steps=0))
    assert _sameness(SUBJECT, none).words == "not verified"


def test_a_run_has_to_be_longer_than_its_warm_up() -> None:
    wanted = VerifyOptions(script=Path("train.py"))
    with pytest.raises(ValueError, match="--steps 5 leaves none to measure"):
        Timing(wanted, warm_up=5, steps=5)
    assert Timing(wanted, warm_up=5, steps=6).rounds == 2
