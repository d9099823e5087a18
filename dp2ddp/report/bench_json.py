"""The result of `bench` as JSON; docs/json.md and bench.schema.json say what each key means."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from dp2ddp.bench.figures import Figures
from dp2ddp.bench.readings import Sent
from dp2ddp.bench.result import Benchmark, Measured

SCHEMA = "dp2ddp.bench/1"


def as_document(found: Benchmark) -> str:
    """The whole result, for eyes too."""
    return json.dumps(document(found), indent=2, allow_nan=False)


def document(found: Benchmark) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "script": found.script,
        "port": found.port or None,
        "launch": found.launch,
        "convert": found.convert or None,
        "setting": dataclasses.asdict(found.setting),
        "measured": [_measured(one) for one in found.measured],
        "seconds": found.seconds,
        "remarks": list(found.remarks),
        "failure": found.failure or None,
        "surroundings": dict(found.surroundings),
    }


def _measured(one: Measured) -> dict[str, Any]:
    return {
        "world": one.world,
        "speed_up": one.speed_up,
        "sameness": {
            "proof": one.sameness.proof,
            "steps": one.sameness.steps,
            "text": one.sameness.text or None,
        },
        "dp": _figures(one, one.dp),
        "ddp": _figures(one, one.ddp),
        "one": one.one and _figures(one, one.one),
    }


def _figures(one: Measured, figures: Figures) -> dict[str, Any]:
    own = figures is not one.one
    return {
        "virtual": figures.virtual,
        "steps": figures.steps,
        "left_out": figures.left_out,
        "step": dataclasses.asdict(figures.step),
        "step_seconds": list(figures.seconds),
        "rows": figures.rows,
        "samples_per_second": figures.rate,
        "over_one_device": one.over_one(figures) if own else None,
        "efficiency": one.efficiency(figures) if own else None,
        "waiting_seconds": figures.waiting,
        "cpu_seconds": figures.cpu,
        "resident_bytes": list(figures.resident),
        "device_bytes": list(figures.devices),
        "counted": None if figures.collectives is None else _counted(figures),
    }


def _counted(figures: Figures) -> dict[str, Any]:
    return {
        "collectives": _sent(figures.collectives or {}),
        "copies": _sent(figures.copies),
        "moved_bytes": figures.moved,
        "synchronisations": dict(figures.synchronisations),
        "parameter_bytes": figures.parameters,
    }


def _sent(kinds: dict[str, Sent]) -> dict[str, Any]:
    return {kind: dataclasses.asdict(each) for kind, each in kinds.items()}
