"""What the JSON of `verify` and of `bench` is made of; docs/json.md tells more of each key.

Seconds and bytes. New keys may come at any time; none changes its meaning, or goes, without a new number in `schema`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from dp2ddp.comparison.causes.cause import Cause
from dp2ddp.comparison.verdict import HeldMemory
from dp2ddp.costs.figures import Spread
from dp2ddp.costs.readings import Sent
from dp2ddp.costs.result import Setting
from dp2ddp.runtime.hang.stacks import Frame


def said(text: str, **limits: Any) -> Meta:
    """What a key means, and what its numbers may be."""
    return Meta(description=text, **limits)


def schema(of: type[VerifyDocument] | type[BenchDocument]) -> dict[str, Any]:
    """The JSON Schema of a document."""
    made: dict[str, Any] = msgspec.json.schema(of)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


Count = Annotated[int, Meta(ge=0)]
Convert = Annotated[
    str | None, said("the command that writes our conversion; null for a version of the user's own")
]
Launch = Annotated[str, said("the command that starts the converted script")]
Script = Annotated[str, said("as it was named on the command line")]
Seconds = Annotated[float, said("the whole command")]
Surroundings = Annotated[Mapping[str, str], said("the command, versions, seeds, digests of both scripts")]


class DifferenceJson(Struct):
    """How far apart one thing is at one step."""

    kind: Annotated[str, said("gradient, parameter, loss, learning rate, buffer, steps, layout, ...")]
    name: str
    step: Count
    rank: Count
    size: Annotated[float | None, said("relative; null: missing on one side, or not a number")]
    ratio: Annotated[float | None, said("of the norms, DDP / DataParallel")]
    ulps: Annotated[float | None, said("units in the last place")]
    noise: Annotated[float | None, said("natural noise of this kind, up to this step")]
    noise_ratio: Annotated[float | None, said("size / noise")]
    allowed: Annotated[float | None, said("what size may be")]


class NaturalNoiseJson(Struct):
    """How far apart two DataParallel runs come that start an ulp apart, at the end."""

    gradients: float
    parameters: float
    losses: float
    ratio: Annotated[float | None, said("difference / natural noise, where it is largest")]
    allowed_ratio: float
    hides_from: Annotated[Count | None, said("first step at which a fault could hide in the noise")]


class NoisyJson(Struct):
    """Elements whose gradient is nothing but rounding."""

    noisy: Count = field(name="elements")
    noise: float = field(name="largest")


class PeakJson(Struct):
    """The largest difference of one parameter."""

    size: Annotated[float | None, said("relative; null: missing on one side, or not a number")]
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

    steps: Annotated[Count, said("steps that all took")]
    parameters: Annotated[Count, said("parameters")]
    losses: LossesJson
    apart: Annotated[list[ApartJson], said("parameters that came apart at all, the furthest first")]


class ComparisonJson(Struct):
    """Steps of DataParallel and of every rank, compared in one precision."""

    same: Annotated[bool, said("within what is allowed")]
    identical: Annotated[bool, said("to the last bit")]
    steps: Count
    rank_steps: list[Count]
    stepped: Annotated[bool, said("false: no optimizer takes a step; a step here is a backward pass")]
    parts: Annotated[
        list[Literal["gradient", "parameter", "loss", "buffer"]],
        said("what there was of each to compare and to judge"),
    ] = field(name="compared")
    identical_steps: Count
    identical_buffers: bool
    rows: Annotated[list[list[Count]], said("of each forward under DataParallel: rows on each device")]
    rank_rows: Annotated[
        list[list[Count]], said("of each forward in training, where a port's steps have other sums of rows")
    ]
    largest: DifferenceJson | None
    first: Annotated[DifferenceJson | None, said("the first one that is not allowed")]
    also: Annotated[list[DifferenceJson], said("others of that step")]
    ranks_that_agree: Annotated[list[list[Count]], said("at the first difference: ranks with the same bits")]
    so_far: NoisyJson = field(name="noisy")
    worst: Annotated[DifferenceJson | None, said("the largest one in terms of natural noise")]
    natural_noise: Annotated[
        NaturalNoiseJson | None, said("null where no difference asked for a second DataParallel run")
    ]
    series: SeriesJson | None


class AlignedJson(Struct):
    """Both runs with the same batches and dropout."""

    same: Annotated[bool, said("then training differs in nothing but random numbers")]
    unshared: Annotated[
        list[str], said("where the ranks' own orders do not share out an epoch, a sentence each")
    ]
    unlike: Annotated[list[str], said("tensors that began with no other draw of DataParallel's distribution")]
    weights_taken: Annotated[Count, said("tensors that ranks were given as DataParallel began with them")]
    comparison: ComparisonJson = field(name="float64")
    stdout: Annotated[StdoutJson | None, said("null: not looked at")]
    printing_ranks: Annotated[list[Count], said("ranks other than 0 that printed")]
    files: Annotated[FilesJson | None, said("null: not looked at")]


class LineJson(Struct):
    """A line that differs."""

    line: Annotated[int, Meta(ge=1)]
    dp: str
    ddp: str


class StdoutJson(Struct):
    """Lines printed by DataParallel and by rank 0."""

    same: bool
    lines: Annotated[Count, said("lines compared")]
    rounded: Annotated[Count, said("lines with numbers that agree but for rounding")]
    masked: Annotated[Count, said("lines with times or paths")]
    first: Annotated[LineJson | None, said("the first line that differs")]
    others: Annotated[list[LineJson], said("one of each further sort of line that differs")]


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

    world: Annotated[int, said("number of devices", ge=1)]
    same: Annotated[bool, said("all that is compared agrees, and only rank 0 was heard")]
    only_gradients: Annotated[bool, said("whether float64 alone was judged")]
    lockstep: Annotated[
        bool, said("each step was judged by itself: rounding grows so far here that a fault could hide in it")
    ]
    hidden: Annotated[
        list[str], said("faults that judging the aligned runs would hide; then it is not the same")
    ]
    unshared: Annotated[list[str], said("what two runs of the original do not share, though these do")]
    unsteady: Annotated[
        DifferenceJson | None,
        said("where DataParallel, run twice, parts from itself; then nothing can be judged"),
    ]
    aligned: Annotated[
        AlignedJson | None, said("a port that differs, run again with DataParallel's random numbers")
    ]
    float64: Annotated[ComparisonJson, said("judged")]
    float32: Annotated[ComparisonJson | None, said("its first step is judged; null: not trained in it")]
    stdout: StdoutJson
    printing_ranks: Annotated[list[Count], said("ranks other than 0 that printed")]
    files: FilesJson
    codes: Annotated[tuple[int, int], said("exit codes: DataParallel, torchrun")]
    last_words: Annotated[list[str], said("of DataParallel's stderr, where its exit code is not 0")]
    seconds: Annotated[tuple[float, float], said("of the two float64 runs")]
    in_turn: Annotated[bool, said("not all runs went at once, as there was not memory enough")]
    memory: Annotated[list[HeldMemory], said("of each run, in the order in which they ended well")]
    causes: Annotated[list[Cause], said("likely causes, the likeliest first")]
    unchecked: Annotated[list[str], said("what the script asks for, and virtual devices leave out")]
    remarks: Annotated[list[str], said("sentences")]


class PositionJson(Struct):
    """Where a rank stood."""

    rank: Annotated[int, said("-1: the process that starts the ranks")]
    text: Annotated[str, said("all of it in words")]
    collective: Annotated[str | None, said("what it waits in")]
    doing: Annotated[str, said("what else it does: a function that its line called")]
    source: Annotated[str, said("its line")]
    frames: Annotated[list[Frame], said("of the script, innermost first")]
    ended: Annotated[str, said("how, if it is no longer there")]


class FailedJson(Struct):
    """A run that hung or failed; a text may be empty."""

    script: Annotated[str, said("which of the two")]
    kind: Annotated[Literal["crash", "hang", "memory"], said("memory: the machine had too little of it")]
    mode: Literal["dp", "ddp"]
    dtype: Literal["float64", "float32"]
    world: int
    rank: Annotated[
        int | None, said("that failed first, or does not wait for the others; null: nobody can tell")
    ]
    error: Annotated[str, said("the last line of the traceback, or what ended it")]
    parting: Annotated[str, said("the first collective that not all ranks call, in words")]
    before: Annotated[list[str], said("of ranks that waited for each other: how far each had come")]
    advice: Annotated[str, said("what to do about it")]
    ranks: list[PositionJson]
    output: Annotated[str, said("the end of what the rank that failed (else rank 0) said on stderr")]


class AcceptedJson(Struct):
    """A hazard of the conversion that a person answered."""

    code: str
    file: Annotated[str | None, said("null: the script itself")]
    cell: int | None
    line: int
    column: int
    why: Annotated[str, said("the name of the reason")]
    because: str
    advice: str
    by: Literal["comment", "option"]
    reason: Annotated[str, said("as the person gave it; may be empty")]
    text: Annotated[str, said("all of it in one line")]


class VerifyDocument(Struct):
    """What `dp2ddp verify --json` prints: the result of one verification."""

    schema: Literal["dp2ddp.verify/2"]
    script: Script
    same: Annotated[bool, said("whether all verdicts say so; then the exit code is 0")]
    outcome: Annotated[
        Literal["same", "different", "nothing compared", "failed"],
        said("nothing compared: no step, no line, no file in either version; the exit code is 3, too"),
    ]
    launch: Launch
    convert: Convert
    seconds: Seconds
    failure: Annotated[str | None, said("why there is no verdict on a further number of devices")]
    failed: Annotated[FailedJson | None, said("the run that failed: which one, and where each rank stood")]
    accepted: list[AcceptedJson]
    surroundings: Surroundings
    verdicts: Annotated[list[VerdictJson], said("one for each number of devices")]


class CountedJson(Struct):
    """What a step sends."""

    collectives: Annotated[Mapping[str, Sent], said("by kind, of the rank with the most bytes")]
    copies: Annotated[
        Mapping[str, Sent], said("between DataParallel's devices: weights, inputs, outputs, gradients")
    ]
    parameters: Annotated[float, said("of the parameters that the first optimizer steps")] = field(
        name="parameter_bytes"
    )


class FiguresJson(Struct):
    """One mode on one number of devices."""

    virtual: Annotated[bool, said("on virtual devices: no time is a GPU's")]
    steps: Annotated[int, said("measured, of all rounds")]
    left_out: Annotated[int, said("steps with an evaluation in them")]
    step: Spread
    seconds: Annotated[list[float], said("of each measured step")] = field(name="step_seconds")
    rows: Annotated[float, said("a step, given to the wrapped model with gradients on; of all ranks")]
    rate: Annotated[float, said("rows / mean step")] = field(name="samples_per_second")
    waiting: Annotated[float, said("a step, in loaders, on the rank that waits longest")] = field(
        name="waiting_seconds"
    )
    cpu: Annotated[float, said("a step, of all processes and loader workers")] = field(name="cpu_seconds")
    resident: Annotated[list[int], said("the most that each process held in memory; 0: not known")] = field(
        name="resident_bytes"
    )
    devices: Annotated[list[int], said("the most that lived on each device; empty: not counted")] = field(
        name="device_bytes"
    )
    counted: Annotated[CountedJson | None, said("null: of a run that was only timed")]


class SamenessJson(Struct):
    """Whether both train the same, in runs of their own."""

    proof: Literal["same", "different", "not verified"]
    steps: Annotated[int, said("that were compared")]
    text: Annotated[str | None, said("what differs")]


class MeasuredJson(Struct):
    """Both modes on one number of devices."""

    world: Annotated[int, said("devices, and ranks")]
    speed_up: Annotated[float, said("mean step of DataParallel / mean step of DDP")]
    sameness: SamenessJson
    dp: FiguresJson
    ddp: FiguresJson


class BenchDocument(Struct):
    """What `dp2ddp bench --json` prints: what was measured."""

    schema: Literal["dp2ddp.bench/2"]
    script: Script
    port: Annotated[str | None, said("a version of the user's own; null: our conversion was measured")]
    launch: Launch
    convert: Convert
    setting: Setting
    measured: Annotated[list[MeasuredJson], said("one for each number of devices")]
    seconds: Seconds
    remarks: Annotated[list[str], said("what a reader of the figures has to know")]
    failure: Annotated[str | None, said("why there is nothing about a further number of devices")]
    surroundings: Surroundings
