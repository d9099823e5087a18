"""`verify --json` keeps to its schema, and docs/json.md tells of all of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from dp2ddp.comparison.aligned import Aligned, OwnDraws
from dp2ddp.comparison.compare import Comparison
from dp2ddp.comparison.noise import Noise
from dp2ddp.report.comparison import Report
from dp2ddp.report.json_form import as_text
from tests.report.made_up import different, evil, failed, report, same
from tests.report.schema import SCHEMA, keys, validate

DOCS = Path(__file__).resolve().parents[2] / "docs" / "json.md"


def with_noise(comparison: Comparison) -> Comparison:
    natural = Noise(2**-52, ending=3e-16)
    return replace(comparison, natural=natural, worst=comparison.first)


def noisy() -> Report:
    verdict = different()
    return report(replace(verdict, float64=with_noise(verdict.float64)))


def doubles_alone() -> Report:
    return report(replace(same(), float32=None))


def aligned() -> Report:
    verdict = replace(different(), aligned=Aligned(same().float64, OwnDraws(("rank 1 takes other samples",))))
    return report(verdict, replace(same(3), lockstep=True))


@pytest.mark.parametrize(
    "made",
    [
        lambda: report(same()), lambda: report(same(2), different(3)), evil, noisy, doubles_alone, report, failed,
        aligned,
    ],
    ids=["same", "different", "evil", "noise", "doubles alone", "none", "failed", "aligned"],
)  # fmt: skip
def test_a_document_keeps_to_the_schema(made: object) -> None:
    assert callable(made)
    validate(as_text(made()))


def test_lockstep_and_the_aligned_runs_are_told() -> None:
    first, second = json.loads(as_text(aligned()))["verdicts"]
    assert (first["lockstep"], second["lockstep"], second["aligned"]) == (False, True, None)
    assert first["aligned"]["same"] is False
    assert first["aligned"]["unshared"] == ["rank 1 takes other samples"]
    assert first["aligned"]["float64"]["steps"] == first["float64"]["steps"]


def test_the_schema_is_a_schema_and_refuses_what_it_does_not_name() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = json.loads(as_text(report(same())))
    document["verdicts"][0]["float64"]["new"] = 1
    with pytest.raises(jsonschema.ValidationError):
        validate(json.dumps(document))
    del document["verdicts"][0]["float64"]["new"], document["verdicts"][0]["codes"]
    with pytest.raises(jsonschema.ValidationError):
        validate(json.dumps(document))


def test_what_is_missing_or_no_number_is_null() -> None:
    verdict = different()
    assert verdict.float64.first is not None
    first = replace(verdict.float64.first, size=float("inf"))
    verdict = replace(verdict, float64=replace(verdict.float64, first=first))
    validate(as_text(report(verdict)))
    assert json.loads(as_text(report(verdict)))["verdicts"][0]["float64"]["first"]["size"] is None


def test_the_parameters_that_came_apart_are_told_the_furthest_first() -> None:
    found = json.loads(as_text(report(different())))["verdicts"][0]["float64"]["series"]
    sizes = [each["gradient"]["size"] for each in found["apart"]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == 12
    assert json.loads(as_text(report(same())))["verdicts"][0]["float64"]["series"]["apart"] == []


def test_the_documentation_names_every_key() -> None:
    text = DOCS.read_text()
    assert {key for key in keys() if f"`{key}`" not in text} == set()
