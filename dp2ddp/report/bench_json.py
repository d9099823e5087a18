"""The result of `bench` as JSON; docs/json.md and bench.schema.json say what each key means."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from dp2ddp.costs.figures import Figures
from dp2ddp.costs.readings import Sent
from dp2ddp.costs.result import Benchmark, Measured

SCHEMA = "dp2ddp.bench/1"


def as_document(benchmark: Benchmark) -> str:
    """The whole result, for eyes too."""
    return json.dumps(document(benchmark), indent=2, allow_nan=False)


def document(benchmark: Benchmark) -> dict[str, Any]:
    """The result as plain data (docs/json.md)."""
    return {
        "schema": SCHEMA,
        "script": benchmark.script,
        "port": benchmark.port or None,
        "launch": benchmark.launch,
        "convert": benchmark.convert or None,
        "setting": dataclasses.asdict(benchmark.setting),
        "measured": [_measured(measured) for measured in benchmark.measured],
        "seconds": benchmark.seconds,
        "remarks": list(benchmark.remarks),
        "failure": benchmark.failure or None,
        "surroundings": dict(benchmark.surroundings),
    }


def _measured(measured: Measured) -> dict[str, Any]:
    return {
        "world": measured.world,
        "speed_up": measured.speed_up,
        "sameness": {
            "proof": measured.sameness.proof,
            "steps": measured.sameness.steps,
            "text": measured.sameness.text or None,
        },
        "dp": _figures(measured, measured.dp),
        "ddp": _figures(measured, measured.ddp),
        "one": measured.one_device and _figures(measured, measured.one_device),
    }


def _figures(measured: Measured, figures: Figures) -> dict[str, Any]:
    own = figures is not measured.one_device
    return {
        "virtual": figures.virtual,
        "steps": figures.steps,
        "left_out": figures.left_out,
        "step": dataclasses.asdict(figures.step),
        "step_seconds": list(figures.seconds),
        "rows": figures.rows,
        "samples_per_second": figures.rate,
        "over_one_device": measured.over_one(figures) if own else None,
        "efficiency": measured.efficiency(figures) if own else None,
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
