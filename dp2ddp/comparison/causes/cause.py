"""What may be wrong with a port."""

from __future__ import annotations

from dataclasses import dataclass

# of the catalogue: what a port that draws other random numbers shows, and aligned runs take away
OTHER_RANDOM_NUMBERS = frozenset({"other-seed", "other-order", "other-inputs", "other-random-numbers"})


@dataclass(frozen=True)
class Cause:
    """One likely cause, and the figures that speak for it."""

    code: str  # an entry of the catalogue
    title: str  # what is wrong, one sentence, in the user's words
    evidence: tuple[str, ...]  # figures: "gradients are 2.000 times as long: W"
    advice: str  # what to change
    weight: float  # how well the signature fits, 0..1
    edits: tuple[str, ...] = ()  # of our own conversion: rule and line, "DDP304 train_ddp.py:33"


@dataclass(frozen=True)
class Finding:
    """What a family of signatures says: a code of the catalogue, how well it fits, and the figures."""

    code: str
    weight: float
    evidence: tuple[str, ...]


def finding(code: str, weight: float, *evidence: str) -> Finding:
    """A finding with its figures, each a short text."""
    return Finding(code, weight, evidence)
