"""What a run's texts say of its scratch folder and of the converted script, in the words of the original."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Spelling:
    """Words of one run, and what they would be in the user's folder, with the user's script."""

    words: tuple[tuple[str, str], ...] = ()

    def plain(self, text: str) -> str:
        """A text with the original names in the place of the run's own."""
        for here, original in self.words:
            text = text.replace(here, original)
        return text
