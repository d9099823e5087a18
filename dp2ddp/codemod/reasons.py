"""A reason as a value: a program asks for its name (`--json`), a person reads its sentence, and no sentence decides.

It stands beside the rule whose page it belongs to, and wherever it is said (reports, `check`, libcst's tool) it is said
so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Reason:
    """Why something is a hazard or a note, or why it is changed in this way and no other."""

    name: str  # does not change when somebody finds better words
    sentence: str  # {holes} are for the words of a place
    advice: str = ""  # what to do about a hazard

    def of(self, **words: object) -> Reason:
        """The same of one place."""
        return replace(self, sentence=self.sentence.format(**words), advice=self.advice.format(**words))

    def __str__(self) -> str:
        return self.sentence
