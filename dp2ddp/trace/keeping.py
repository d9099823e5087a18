"""For which steps all values are kept: at the start, where faults show first, then ever more seldom.

Of all other steps there are hashes and sketches. So a record is bounded, whatever the number of steps.
"""

from __future__ import annotations

FULL_BYTES = 256 * 2**20
HEAD = 100  # steps
_PER_DOUBLING = 8  # steps with values for each doubling of the number of steps, behind the head


class Keeper:
    """Says which steps are kept whole, and counts what they take."""

    def __init__(self, budget: int) -> None:
        # a quarter is for the landmarks behind the head, of which large models could not have any otherwise
        self._left = {"head": budget - budget // 4, "landmarks": budget // 4}

    def keeps(self, step: int, size: int) -> bool:
        """Whether the step's tensors, of that many bytes, are kept whole; then they count."""
        part = "head" if step < HEAD else "landmarks"
        if part == "landmarks" and not _is_landmark(step):
            return False
        if size > self._left[part]:
            return False
        self._left[part] -= size
        return True


def _is_landmark(step: int) -> bool:
    return bool(step % max(1, (1 << step.bit_length() - 1) // _PER_DOUBLING) == 0)
