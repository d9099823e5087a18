"""A failed run in words: which mode and rank, what it was, and where each rank is if it hung."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from dp2ddp.runtime.hang.stacks import RankPosition
from dp2ddp.runtime.process.run import Failure, Run
from dp2ddp.runtime.stage import Mode
from dp2ddp.words import counted

_WHAT = {"crash": "failed", "hang": "hangs", "memory": "runs out of memory"}
_ADVICE = {  # of what Python says, and today's torch and Python of old code
    "EOFError: EOF when reading a line": (
        "The script asks for input(), and stdin is empty here: pass the answer as an argument"
    ),
    "invalid index of a 0-dim tensor": "Old code: `loss.data[0]` is `loss.item()` since torch 0.5",
    "Iter' object has no attribute 'next'": "Old code: `iterator.next()` is `next(iterator)`",
    "module 'collections' has no attribute": "Old code: it is in collections.abc since Python 3.10",
    "has no attribute 'clip_grad_norm'": "Old code: it is clip_grad_norm_ now",
    "module 'torch.nn.init' has no attribute": (
        "Old code: its functions end with an underscore now: xavier_uniform_"
    ),
}


_FULL = ("No space left on device", "Disk quota exceeded", "PytorchStreamWriter failed writing")
MORE_SPACE = (
    "set TMPDIR to a folder with more space (TMPDIR=/large dp2ddp ...), or have the script write less "
    "(arguments behind --, --steps)"
)


@dataclass(frozen=True)
class Original:
    """Where the lines of a converted script were before."""

    name: str  # of the original, as the user named it
    converted: str  # file name
    lines: Mapping[int, int]  # of the converted script -> of the original, where no edit changed them

    @classmethod
    def of(cls, name: str, before: str, converted: str, after: str) -> Original:
        """The lines of `after` that are lines of `before`."""
        matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
        blocks = matcher.get_matching_blocks()
        return cls(name, converted, {b + i + 1: a + i + 1 for a, b, size in blocks for i in range(size)})


@dataclass(frozen=True)
class BeforeFailure:
    """What is known of the time before a failure, and what to do about it."""

    sentences: tuple[str, ...] = ()
    advice: str = ""


class Line(TypedDict):
    """A line of the script that a rank was at, as data."""

    file: str
    line: int
    function: str


class Position(TypedDict):
    """Where a rank stood, as data."""

    rank: int
    text: str  # all of it in words
    collective: str | None
    doing: str
    source: str
    frames: list[Line]  # innermost first
    ended: str


class Failed(TypedDict):
    """A run that hung or failed, as data; a text may be empty."""

    script: str
    kind: str  # crash, hang, memory
    mode: Mode
    dtype: str
    world: int
    rank: int | None
    error: str
    parting: str
    before: list[str]
    advice: str
    ranks: list[Position]
    output: str


def ran_out_of_space(run: Run) -> bool:
    """Whether a run failed because the disk is full that its scratch copy lies on."""
    text = run.failure.text if run.failure else ""
    return run.stage.scratch is not None and any(said in text for said in _FULL)


def failure_text(run: Run, original: Original | None = None, before: BeforeFailure = BeforeFailure()) -> str:
    """One line; where there are others, one more for each rank, where they part, what was before, what to do now."""
    assert run.failure is not None
    failure = run.failure
    advice = next((f". {advice}" for said, advice in _ADVICE.items() if said in failure.text), "")
    if ran_out_of_space(run):
        advice = f", where its scratch copy lies: {MORE_SPACE}"
    first = f"{run.stage.name}: {_WHAT[failure.kind]} {_where(run, failure)}: {failure.text}{advice}"
    positions = [_position_text(position, original) for position in failure.positions]
    behind = [f"before that: {sentence}" for sentence in before.sentences]
    now = f"what now: {before.advice}" if before.advice else ""
    return "\n  ".join([first, *positions, *filter(None, [failure.parting]), *behind, *filter(None, [now])])


def _position_text(position: RankPosition, original: Original | None) -> str:
    """With the original's line of the innermost frame."""
    text, frame = str(position), next(iter(position.frames), None)
    if original is None or frame is None or Path(frame.file).name != original.converted:
        return text
    line = original.lines.get(frame.line)
    return text.replace(str(frame), f"{frame} (line {line} of {original.name})", 1) if line else text


def failure_document(
    run: Run, output: str = "", original: Original | None = None, before: BeforeFailure = BeforeFailure()
) -> Failed:
    """The same as data, with the end of what the rank said on stderr; docs/json.md."""
    assert run.failure is not None
    failure = run.failure
    return {
        "script": run.stage.name,
        "kind": failure.kind,
        "mode": run.stage.mode,
        "dtype": run.stage.dtype,
        "world": run.stage.world,
        "rank": failure.rank,
        "error": failure.text,
        "parting": failure.parting,
        "before": list(before.sentences),
        "advice": before.advice,
        "ranks": [_position(position, original) for position in failure.positions],
        "output": output,
    }


def _position(position: RankPosition, original: Original | None) -> Position:
    return {
        "rank": position.rank,
        "text": _position_text(position, original),
        "collective": position.collective,
        "doing": position.doing,
        "source": position.source,
        "frames": [
            {"file": Path(each.file).name, "line": each.line, "function": each.function}
            for each in position.frames
        ],
        "ended": position.ended,
    }


def _where(run: Run, failure: Failure) -> str:
    if run.stage.mode == "dp":
        return f"in dp mode on {counted(run.stage.world, 'device')}"
    rank = "" if failure.rank is None else f"on rank {failure.rank} of "
    return f"in ddp mode {rank or 'on '}{counted(run.stage.world, 'rank') if not rank else run.stage.world}"
