"""What a diagnosis says of one likely cause."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """Something that may be wrong, and how well it fits what was found."""

    code: str  # "sum-for-mean": its entry in docs/causes.md
    title: str  # what is wrong, one sentence, in the user's words
    evidence: tuple[str, ...]  # figures: "gradients are 2.000 times as long: W"
    advice: str  # what to change
    weight: float  # how well the signature fits, 0..1
    edits: tuple[str, ...] = ()  # of our own conversion: "DDP301 train_ddp.py:88"
