"""The results of `verify` and of `bench` as JSON; json_types.py says what is in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import fields

from dp2ddp.comparison.compare import Comparison
from dp2ddp.comparison.series import Series
from dp2ddp.comparison.tolerance import FACTOR
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.costs.figures import Benchmark, Figures
from dp2ddp.report.comparison import Report
from dp2ddp.report.json_types import BenchDocument, VerifyDocument

LAST = 1 << 60  # behind the last step


def as_text(result: Report | Benchmark) -> str:
    """The whole result, for eyes too."""
    return json.dumps(as_data(result), indent=2)


def as_data(result: Report | Benchmark) -> dict[str, Any]:
    """The result as plain data (docs/json.md).

    JSON has no infinity: null says that one side is missing, or not a number.
    """
    written = json.dumps(_filled(_DOCUMENTS[type(result)], result), default=_as_plain)
    data: dict[str, Any] = json.loads(written, parse_constant=lambda constant: None)
    return data


_DOCUMENTS: dict[type, type[Struct]] = {Report: VerifyDocument, Benchmark: BenchDocument}


def _as_plain(value: Any) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.value if isinstance(value, Enum) else value.item()  # of numpy


def _filled(kind: type[Struct], source: object, more: Mapping[str, object] | None = None) -> dict[str, Any]:
    """All keys of `kind`: of what `source` has under their names, of what is made of it below, and of `more`."""
    types, made = get_type_hints(kind), _MADE.get(type(source), lambda source: {})(source)
    own = {**made, **(more or {})}
    values = {name: own[name] if name in own else getattr(source, name) for name in types}
    return {each.encode_name: _part(types[each.name], values[each.name]) for each in fields(kind)}


def _part(kind: Any, value: Any) -> Any:
    """What has keys of its own is filled likewise; a text that may be null is null where it is empty."""
    if get_origin(kind) is Mapping:
        return {key: _part(get_args(kind)[1], each) for key, each in dict(value).items()}
    of = next((each for each in (kind, *get_args(kind)) if isinstance(each, type(Struct))), None)
    if of is None or value is None or isinstance(value, Mapping):
        return None if value == "" and type(None) in get_args(kind) else value
    if get_origin(kind) is list:
        return [_part(of, each) for each in value]
    return (
        dict(zip(get_type_hints(of), value, strict=True)) if isinstance(value, tuple) else _filled(of, value)
    )


# ---- keys that are made of more than one value


_NOISES = {"gradients": "gradient", "parameters": "parameter", "losses": "loss"}


def _of_comparison(comparison: Comparison) -> Mapping[str, object]:
    natural = comparison.natural
    if natural is None:
        return {"natural_noise": None}
    at_end = {key: natural.of(kind, LAST) for key, kind in _NOISES.items()}
    ratios = {"ratio": comparison.noise_ratio, "allowed_ratio": FACTOR, "hides_from": comparison.hides_from}
    return {"natural_noise": {**at_end, **ratios}}


def _of_series(series: Series) -> Mapping[str, object]:
    """What charts draw, in short."""
    ends = (losses.reshape(-1).tolist() for losses in (series.losses[:1], series.losses[-1:]))
    return {"steps": len(series.steps), "parameters": len(series.names), "losses": tuple(ends)}


_MADE: dict[type, Callable[[Any], Mapping[str, object]]] = {
    Report: lambda report: {"schema": "dp2ddp.verify/2"},
    Benchmark: lambda benchmark: {"schema": "dp2ddp.bench/2"},
    Verdict: lambda verdict: {
        "unchecked": verdict.float64.unchecked,
        "remarks": [*verdict.remarks, *verdict.float64.remarks],
    },
    Comparison: _of_comparison,
    Series: _of_series,
    Figures: lambda figures: {"counted": figures if figures.collectives is not None else None},
}
