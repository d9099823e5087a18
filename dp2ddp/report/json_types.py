"""What the JSON of `verify` and of `bench` is made of; docs/json.md says what each key means.

Seconds and bytes. New keys may come at any time; none changes its meaning, or goes, without a new number in `schema`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from dp2ddp.comparison.causes.cause import Cause
from dp2ddp.comparison.verdict import HeldMemory
from dp2ddp.costs.figures import Sent, Setting, Spread
from dp2ddp.runtime.hang.stacks import Frame


def schema(of: type[VerifyDocument] | type[BenchDocument]) -> dict[str, Any]:
    """The JSON Schema of a document."""
    made: dict[str, Any] = msgspec.json.schema(of)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


Count = Annotated[int, Meta(ge=0)]


class DifferenceJson(Struct):
    """How far apart one thing is at one step."""

    kind: str
    name: str
    step: Count
    rank: Count
    size: float | None
    ratio: float | None
    ulps: float | None
    noise: float | None
    noise_ratio: float | None
    allowed: float | None


class NaturalNoiseJson(Struct):
    """How far apart two DataParallel runs come that start an ulp apart, at the end."""

    gradients: float
    parameters: float
    losses: float
    ratio: float | None
    allowed_ratio: float
    hides_from: Count | None


class NoisyJson(Struct):
    """Elements whose gradient is nothing but rounding."""

    noisy: Count = field(name="elements")
    noise: float = field(name="largest")


class PeakJson(Struct):
    """The largest difference of one parameter."""

    size: float | None
    step: Count


class ApartJson(Struct):
    """A parameter that came apart."""

    name: str
    gradient: PeakJson | None
    parameter: PeakJson | None


class LossesJson(Struct):
    """DataParallel, then each rank."""

    first: list[float | None]
    last: list[float | None]


class SeriesJson(Struct):
    """What the charts of a report draw, in short."""

    steps: Count
    parameters: Count
    losses: LossesJson
    apart: list[ApartJson]


class ComparisonJson(Struct):
    """Steps of DataParallel and of every rank, compared in one precision."""

    same: bool
    identical: bool
    steps: Count
    rank_steps: list[Count]
    stepped: bool
    parts: list[Literal["gradient", "parameter", "loss", "buffer"]] = field(name="compared")
    identical_steps: Count
    identical_buffers: bool
    rows: list[list[Count]]
    rank_rows: list[list[Count]]
    largest: DifferenceJson | None
    first: DifferenceJson | None
    also: list[DifferenceJson]
    ranks_that_agree: list[list[Count]]
    so_far: NoisyJson = field(name="noisy")
    worst: DifferenceJson | None
    natural_noise: NaturalNoiseJson | None
    series: SeriesJson | None


class AlignedJson(Struct):
    """Both runs with the same batches and dropout."""

    same: bool
    unshared: list[str]
    unlike: list[str]
    weights_taken: Count
    comparison: ComparisonJson = field(name="float64")
    stdout: StdoutJson | None
    printing_ranks: list[Count]
    files: FilesJson | None


class LineJson(Struct):
    """A line that differs."""

    line: Annotated[int, Meta(ge=1)]
    dp: str
    ddp: str


class StdoutJson(Struct):
    """Lines printed by DataParallel and by rank 0."""

    same: bool
    lines: Count
    rounded: Count
    masked: Count
    first: LineJson | None
    others: list[LineJson]


class DifferentFileJson(Struct):
    """A file that differs."""

    path: str
    what: str


class FilesJson(Struct):
    """What both left behind."""

    same: bool
    files: Count = field(name="count")
    different: list[DifferentFileJson]


class VerdictJson(Struct):
    """Both runs on one number of devices, compared."""

    world: Annotated[int, Meta(ge=1)]
    same: bool
    only_gradients: bool
    lockstep: bool
    hidden: list[str]
    unshared: list[str]
    unsteady: DifferenceJson | None
    aligned: AlignedJson | None
    float64: ComparisonJson
    float32: ComparisonJson | None
    stdout: StdoutJson
    printing_ranks: list[Count]
    files: FilesJson
    codes: tuple[int, int]
    last_words: list[str]
    seconds: tuple[float, float]
    in_turn: bool
    memory: list[HeldMemory]
    causes: list[Cause]
    unchecked: list[str]
    remarks: list[str]


class PositionJson(Struct):
    """Where a rank stood."""

    rank: int
    text: str
    collective: str | None
    doing: str
    source: str
    frames: list[Frame]
    ended: str


class FailedJson(Struct):
    """A run that hung or failed; a text may be empty."""

    script: str
    kind: Literal["crash", "hang", "memory"]
    mode: Literal["dp", "ddp"]
    dtype: Literal["float64", "float32"]
    world: int
    rank: int | None
    error: str
    parting: str
    before: list[str]
    advice: str
    ranks: list[PositionJson]
    output: str


class AcceptedJson(Struct):
    """A hazard of the conversion that a person answered."""

    code: str
    file: str | None
    cell: int | None
    line: int
    column: int
    why: str
    because: str
    advice: str
    by: Literal["comment", "option"]
    reason: str
    text: str


class VerifyDocument(Struct):
    """What `dp2ddp verify --json` prints: the result of one verification."""

    schema: Literal["dp2ddp.verify/2"]
    script: str
    same: bool
    outcome: Literal["same", "different", "nothing compared", "failed"]
    launch: str
    convert: str | None
    seconds: float
    failure: str | None
    failed: FailedJson | None
    accepted: list[AcceptedJson]
    surroundings: Mapping[str, str]
    verdicts: list[VerdictJson]


class CountedJson(Struct):
    """What a step sends."""

    collectives: Mapping[str, Sent]
    copies: Mapping[str, Sent]
    parameters: float = field(name="parameter_bytes")


class FiguresJson(Struct):
    """One mode on one number of devices."""

    virtual: bool
    steps: int
    left_out: int
    step: Spread
    seconds: list[float] = field(name="step_seconds")
    rows: float
    rate: float = field(name="samples_per_second")
    waiting: float = field(name="waiting_seconds")
    cpu: float = field(name="cpu_seconds")
    resident: list[int] = field(name="resident_bytes")
    devices: list[int] = field(name="device_bytes")
    counted: CountedJson | None


class SamenessJson(Struct):
    """Whether both train the same, in runs of their own."""

    proof: Literal["same", "different", "not verified"]
    steps: int
    text: str | None


class MeasuredJson(Struct):
    """Both modes on one number of devices."""

    world: int
    speed_up: float
    sameness: SamenessJson
    dp: FiguresJson
    ddp: FiguresJson


class BenchDocument(Struct):
    """What `dp2ddp bench --json` prints: what was measured."""

    schema: Literal["dp2ddp.bench/2"]
    script: str
    port: str | None
    launch: str
    convert: str | None
    setting: Setting
    measured: list[MeasuredJson]
    seconds: float
    remarks: list[str]
    failure: str | None
    surroundings: Mapping[str, str]
