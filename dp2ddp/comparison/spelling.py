"""What a run's texts say of its scratch folder and of the converted script, in the words of the original."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ADDRESS = re.compile(r"(?<= at )0x[0-9a-f]+")  # <function main at 0x7f17ba96d800>: another in each process


@dataclass(frozen=True)
class Spelling:
    """Words of one run, and what they would be in the user's folder, with the user's script."""

    words: tuple[tuple[str, str], ...] = ()

    def plain(self, text: str) -> str:
        """A text with the original names in the place of the run's own, and without places in memory."""
        for here, original in self.words:
            text = text.replace(here, original)
        return _ADDRESS.sub("<address>", text)
