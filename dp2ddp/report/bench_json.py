"""The result of `bench` as JSON; json_types.py says what is in it."""

from __future__ import annotations

from typing import Any

from dp2ddp.costs.figures import Figures
from dp2ddp.costs.result import Benchmark, Measured
from dp2ddp.report import json_types as types
from dp2ddp.report.json_types import filled


def as_document(benchmark: Benchmark) -> str:
    """The whole result, for eyes too."""
    return types.text(document(benchmark))


def document(benchmark: Benchmark) -> dict[str, Any]:
    """The result as plain data (docs/json.md)."""
    return types.plain(
        types.BenchDocument,
        benchmark,
        schema="dp2ddp.bench/1",
        port=benchmark.port or None,
        convert=benchmark.convert or None,
        measured=[_measured(measured) for measured in benchmark.measured],
        failure=benchmark.failure or None,
        surroundings=dict(benchmark.surroundings),
    )


def _measured(measured: Measured) -> types.MeasuredJson:
    return filled(
        types.MeasuredJson,
        measured,
        sameness=filled(types.SamenessJson, measured.sameness, text=measured.sameness.text or None),
        dp=_figures(measured, measured.dp),
        ddp=_figures(measured, measured.ddp),
        on_one_device=measured.one_device and _figures(measured, measured.one_device),
    )


def _figures(measured: Measured, figures: Figures) -> types.FiguresJson:
    own = figures is not measured.one_device
    return filled(
        types.FiguresJson,
        figures,
        step_seconds=figures.seconds,
        samples_per_second=figures.rate,
        over_one_device=measured.over_one(figures) if own else None,
        efficiency=measured.efficiency(figures) if own else None,
        waiting_seconds=figures.waiting,
        cpu_seconds=figures.cpu,
        resident_bytes=figures.resident,
        device_bytes=figures.devices,
        counted=None if figures.collectives is None else _counted(figures),
    )


def _counted(figures: Figures) -> types.CountedJson:
    return filled(
        types.CountedJson,
        figures,
        moved_bytes=figures.moved,
        parameter_bytes=figures.parameters,
    )
