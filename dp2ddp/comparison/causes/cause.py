"""What may be wrong with a port."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

# of the catalogue: what a port that draws other random numbers shows, and aligned runs take away
OTHER_RANDOM_NUMBERS = frozenset({"other-seed", "other-order", "other-inputs", "other-random-numbers"})


@dataclass(frozen=True)
class Cause:
    """One likely cause of what differs."""

    code: Annotated[str, Meta(description="its entry in dp2ddp/comparison/causes/entries")]
    title: str  # what is wrong, one sentence, in the user's words
    evidence: tuple[str, ...]  # figures: "gradients are 2.000 times as long: W"
    advice: str  # what to change
    weight: Annotated[float, Meta(description="how well the signature fits", ge=0, le=1)]
    edits: Annotated[tuple[str, ...], Meta(description="of a conversion of ours: rule and line")]


@dataclass(frozen=True)
class Finding:
    """What a family of signatures says: a code of the catalogue, how well it fits, and the figures."""

    code: str
    weight: float
    evidence: tuple[str, ...]


def finding(code: str, weight: float, *evidence: str) -> Finding:
    """A finding with its figures, each a short text."""
    return Finding(code, weight, evidence)
