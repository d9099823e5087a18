"""The results of `verify` and of `bench` as JSON, and its JSON Schema; docs/json.md says what each key means.

`_KEYS` says which keys a value has; their types are those that its class declares. Seconds and bytes. New keys may come
at any time; none changes its meaning, or goes, without a new number in `schema`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache, reduce
from operator import attrgetter, or_
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from dp2ddp.comparison.aligned import Aligned
from dp2ddp.comparison.compare import Comparison, Difference
from dp2ddp.comparison.output_comparison import FileDifference, FilesComparison, TextComparison
from dp2ddp.comparison.series import Apart, Series
from dp2ddp.comparison.step_table import SoFar
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.costs.figures import Benchmark, Figures, Measured, Sameness
from dp2ddp.report.comparison import Report

_SCHEMAS = {Report: "dp2ddp.verify/2", Benchmark: "dp2ddp.bench/2"}
# Of each class, or else a key for each of its fields. `key=path`: where it is called otherwise; `key?`: null where the
# text is empty.
_KEYS: Mapping[type, str] = {
    Report: "script same outcome launch convert? seconds failure? failed accepted surroundings verdicts",
    Verdict: (
        "world same only_gradients lockstep hidden unshared unsteady aligned float64 float32 stdout printing_ranks "
        "files codes last_words seconds in_turn memory causes unchecked=float64.unchecked remarks=all_remarks"
    ),
    Aligned: (
        "same unshared=drawn.unshared unlike=drawn.unlike weights_taken=drawn.taken float64=comparison "
        "stdout printing_ranks files"
    ),
    Comparison: (
        "same identical steps rank_steps stepped compared=parts identical_steps identical_buffers rows rank_rows "
        "largest first also ranks_that_agree noisy=so_far worst natural_noise=noise_at_end series"
    ),
    Difference: "kind name step rank size ratio ulps noise noise_ratio allowed",
    SoFar: "elements=noisy largest=noise",
    Series: "steps=count parameters=width losses=ends apart",
    Apart: "name gradient parameter",
    TextComparison: "same lines rounded masked first others",
    FilesComparison: "same count=files different",
    FileDifference: "path what",
    Benchmark: "script port? launch convert? setting measured seconds remarks failure? surroundings",
    Measured: "world speed_up sameness dp ddp",
    Sameness: "proof steps text?",
    Figures: (
        "virtual steps left_out step step_seconds=seconds rows samples_per_second=rate waiting_seconds=waiting "
        "cpu_seconds=cpu resident_bytes=resident device_bytes=devices counted"
    ),
}


class _Key(NamedTuple):
    name: str
    path: str  # from the value on
    may_be_empty: bool  # then it is null


@cache
def _keys(kind: type) -> tuple[_Key, ...]:
    """() for what is no class of ours, but a plain value."""
    if not (is_dataclass(kind) or hasattr(kind, "_fields")):
        return ()
    pairs = (word.partition("=") for word in (_KEYS[kind].split() if kind in _KEYS else get_type_hints(kind)))
    return tuple(_Key(key.rstrip("?"), path or key.rstrip("?"), key.endswith("?")) for key, _, path in pairs)


# ---- a result


def as_text(result: Report | Benchmark) -> str:
    """The whole result, for eyes too."""
    return json.dumps(as_data(result), indent=2)


def as_data(result: Report | Benchmark) -> dict[str, Any]:
    """The result as plain data. JSON has no infinity: null says that one side is missing, or not a number."""
    return {"schema": _SCHEMAS[type(result)], **_plain(result)}


def _plain(value: Any) -> Any:
    kind: Any = type(value)
    if keys := _keys(kind):
        pairs = ((key, attrgetter(key.path)(value)) for key in keys)
        return {key.name: None if key.may_be_empty and not own else _plain(own) for key, own in pairs}
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    plain = value.item() if hasattr(value, "item") else value.value if isinstance(value, Enum) else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


# ---- its schema


def schema(of: type[Report] | type[Benchmark]) -> dict[str, Any]:
    """The JSON Schema of such a result."""
    document = msgspec.defstruct("Document", [("schema", Literal[_SCHEMAS[of]]), *_fields(of)])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(document)}


def _fields(kind: type) -> Iterator[tuple[str, Any]]:
    for key in _keys(kind):
        declared: Any = kind
        for name in key.path.split("."):
            own = getattr(declared, name, None)
            made = own.fget if isinstance(own, property) else None
            declared = get_type_hints(made)["return"] if made else get_type_hints(declared)[name]
        yield key.name, _type(declared) | None if key.may_be_empty else _type(declared)


@cache
def _struct(kind: type) -> type:
    return msgspec.defstruct(kind.__name__, list(_fields(kind)), namespace={"__doc__": kind.__doc__})


def _type(declared: Any) -> Any:
    """As JSON has it."""
    if declared is float:
        return float | None
    origin, of = get_origin(declared), get_args(declared)
    if origin is Literal or not of:
        return _struct(declared) if _keys(declared) else declared
    types = [_type(each) for each in of if each is not Ellipsis]
    if origin in (Union, UnionType):
        return reduce(or_, types)
    if origin is tuple and Ellipsis not in of:
        return tuple[tuple(types)]  # type: ignore[misc]
    return dict[types[0], types[1]] if len(types) == 2 else list[types[0]]  # type: ignore[valid-type]
