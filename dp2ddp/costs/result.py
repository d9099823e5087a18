"""The result of `dp2ddp bench`, as values; what is made of them is told by dp2ddp.report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

from dp2ddp.costs.figures import Figures

Proof = Literal["same", "different", "not verified"]


@dataclass(frozen=True)
class Sameness:
    """Whether both train the same: never looked at in a timed run, but in short runs of their own."""

    proof: Proof
    steps: int = 0  # that were compared
    text: str = ""  # what differs; of what trains the same, beside the training: lines, files

    @property
    def words(self) -> str:
        """Whether both trained the same, in words."""
        if self.proof == "not verified":
            return "not verified"
        words = f"{self.proof} (verified {self.steps} step{'' if self.steps == 1 else 's'})"
        return f"{words}: {self.text}" if self.text else words


@dataclass(frozen=True)
class Measured:
    """Both modes on one number of devices."""

    world: int
    dp: Figures
    ddp: Figures
    sameness: Sameness

    @property
    def speed_up(self) -> float:
        """Over DataParallel on the same number of devices."""
        return self.dp.step.mean / self.ddp.step.mean


@dataclass(frozen=True)
class Setting:
    """How it was measured."""

    warm_up: Annotated[int, Meta(description="steps dropped at the beginning of each run")]
    steps: Annotated[int, Meta(description="of a run, warm-up included")]
    rounds: Annotated[int, Meta(description="timed runs of each version")]
    processors: int


@dataclass(frozen=True)
class Benchmark:
    """Everything that was found about a script."""

    script: str
    port: str  # a version of the user's own; "" for our conversion
    launch: str
    convert: str
    setting: Setting
    measured: tuple[Measured, ...]
    seconds: float
    remarks: tuple[str, ...] = ()
    surroundings: Mapping[str, str] = field(default_factory=dict)
    failure: str = ""  # why there is nothing about a further number of devices
