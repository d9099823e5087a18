"""Planted faults are found, at their step and with their cause; harmless variants are left in peace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from covering import covering

from dp2ddp.comparison.causes.catalogue import catalogue
from dp2ddp.runtime.process.server import Server
from tests.mutations.faults import FAULTS
from tests.mutations.harmless import HARMLESS
from tests.mutations.results import Result, alarm
from tests.mutations.suite import Suite, port

# what each commit plants: every cause once, and in every port; `--all` plants all
FEW = set(covering(FAULTS, lambda fault: {*fault.causes.split("|"), ("port", fault.base)}))
FEW_HARMLESS = covering(HARMLESS, lambda change: {change.base, change.name.partition(": ")[2]})
BASES = sorted({fault.base for fault in FAULTS} | {change.base for change in HARMLESS})


def test_the_suite_is_as_large_as_promised() -> None:
    assert len(BASES) >= 10
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 60
    assert len({change.name for change in HARMLESS}) == len(HARMLESS) >= 60
    assert sum(bool(fault.missed) for fault in FAULTS) <= 0.1 * len(FAULTS)


def test_every_fault_changes_its_port_and_has_its_cause_in_the_catalogue() -> None:
    for fault in FAULTS:
        assert fault.change.text != port(fault.base), fault.name
        assert set(fault.causes.split("|")) <= catalogue().keys(), fault.name


@pytest.fixture(scope="module")
def suite(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    with Suite(server, tmp_path_factory.mktemp("runs"), 2) as suite:
        yield suite


@pytest.fixture(scope="module", params=BASES)
def base(suite: Suite, request: pytest.FixtureRequest) -> str:
    """With its reference made: the copies of that last longer than the test that first asks for them."""
    suite.reference(request.param)
    return str(request.param)


@pytest.fixture(scope="module")
def results(suite: Suite, base: str, wants_all: bool) -> list[Result]:
    faults = [fault for fault in FAULTS if fault.base == base and (wants_all or fault in FEW)]
    verdicts = suite.judge_all([fault.change for fault in faults])
    return [Result(fault, verdict) for fault, verdict in zip(faults, verdicts, strict=True)]


@pytest.mark.torchrun
def test_a_fault_is_found_at_the_first_step_that_it_touches(results: list[Result]) -> None:
    assert [result.line for result in results if not result.is_detected] == []


@pytest.mark.torchrun
def test_the_likeliest_cause_is_the_right_one(results: list[Result]) -> None:
    wrong = [result for result in results if not result.is_right]
    assert [result.line for result in wrong if result.code != result.fault.missed] == []
    assert [result.line for result in results if result.is_right and result.fault.missed] == []


@pytest.mark.torchrun
def test_a_harmless_variant_is_no_difference(base: str, suite: Suite, wants_all: bool) -> None:
    changes = [change for change in (HARMLESS if wants_all else FEW_HARMLESS) if change.base == base]
    verdicts = suite.judge_all(changes)
    alarms = {change.name: alarm(v) for change, v in zip(changes, verdicts, strict=True) if alarm(v)}
    assert alarms == {}


# Uneven chunks, at every step and at the last of an epoch, and a port that wraps twice.
ON_THREE = (
    "mean of means",
    "the short chunk is padded",
    "words counted, W forgotten",
    "unfrozen without a new wrap",
)
HARMLESS_ON_THREE = ("mlp: strided rows", "masked: mask by hand")


@pytest.mark.torchrun
def test_a_few_of_them_on_three_devices(server: Server, tmp_path: Path) -> None:
    """All of them: `python -m tests.mutations --world 3`."""
    faults = [fault for fault in FAULTS if fault.name in ON_THREE]
    variants = [change for change in HARMLESS if change.name in HARMLESS_ON_THREE]
    with Suite(server, tmp_path, 3) as suite:
        results = [Result(fault, suite.judge(fault.change)) for fault in faults]
        alarms = [alarm(suite.judge(change)) for change in variants]
    assert len(results) == len(ON_THREE)
    assert [result.line for result in results if not (result.is_detected and result.is_right)] == []
    assert alarms == [None] * len(HARMLESS_ON_THREE)
