"""Two runs side by side, DataParallel and DDP: their records compared, and what that asks to be run once more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dp2ddp.comparison.compare import Comparison, Difference, compare
from dp2ddp.comparison.differences import GRADIENTS
from dp2ddp.comparison.tolerance import HIDING, Tolerance
from dp2ddp.errors import RunError
from dp2ddp.runtime.process.run import Run
from dp2ddp.runtime.run_folder import read_status
from dp2ddp.trace.records import Trace, read_trace
from dp2ddp.trial.prepare import Prepared

GROSS = 1e-3  # 1e10 ulps at the first step; a model so ill-conditioned could not be trained in float32
_ALIKE = 1e-3  # losses in single precision
_EXACT = ("layout", "learning rate", "steps")


@dataclass(frozen=True)
class Pair:
    """DataParallel and DDP in one precision, over; perhaps DataParallel an ulp away."""

    left: tuple[Prepared, Run]
    right: tuple[Prepared, Run]
    tolerance: Tolerance
    nudged: Run | None = None
    port: bool = False  # made by hand

    @property
    def reference(self) -> Run:
        """DataParallel's run."""
        return self.left[1]

    @property
    def other(self) -> Run:
        """The run of the DDP version."""
        return self.right[1]

    @cached_property
    def traces(self) -> tuple[Trace, tuple[Trace, ...]]:
        """The records of the reference and of each rank; those of backward passes where no optimizer takes a step."""
        reference, *ranks = (
            _trace(self.reference, 0),
            *(_trace(self.other, rank) for rank in self.other.stage.ranks),
        )
        passes = [trace.passes for trace in (reference, *ranks)]
        known = [each for each in passes if each is not None]
        if len(known) == len(passes) and any(map(len, known)):
            reference, *ranks = known
        return reference, tuple(ranks)

    @cached_property
    def compared(self) -> Comparison:
        """Their records compared, by natural noise if DataParallel was run once more."""
        reference, ranks = self.traces
        nudged = _trace(self.nudged, 0) if self.nudged else None
        if nudged and reference.unstepped:
            nudged = nudged.passes or nudged
        return compare(reference, ranks, self._tolerance, nudged, port=self.port)

    @property
    def _tolerance(self) -> Tolerance:
        """Beside half precision that both ask for, float32 is coarser; in float64 runs it is left out."""
        reference, ranks = self.traces
        dtypes = {
            frozenset(dtype for line in each.lines for dtype in line["precision"])
            for each in (reference, *ranks)
        }
        is_shared = self.tolerance.dtype != "float64" and len(dtypes) == 1
        return self.tolerance.under_autocast(dtypes.pop()) if is_shared else self.tolerance

    @property
    def is_gross(self) -> bool:
        """Whether the very first gradients are so far apart that no rounding comes near: no need to measure it."""
        first = self.compared.first
        return first is not None and first.kind in GRADIENTS and first.step == 0 and first.size > GROSS

    @property
    def may_be_rounding(self) -> bool:
        """Whether there is a difference that natural noise may explain."""
        first = self.compared.first
        return (
            first is not None and math.isfinite(first.size) and first.kind not in _EXACT and not self.is_gross
        )

    @property
    def may_hide_a_fault(self) -> bool:
        """Whether noise has grown so far that each step has to be judged by itself; and can be."""
        comparison = self.compared
        in_order = all(steps == tuple(range(comparison.steps)) for steps in comparison.matched)
        steps = comparison.stepped and comparison.hides_from is not None
        return comparison.same and steps and in_order and self._same_names

    @property
    def _same_names(self) -> bool:
        reference, ranks = self.traces
        unique = all(len(set(layout.names)) == len(layout.names) for layout in reference.layouts)
        names = {each.names for each in reference.layouts}
        return unique and all({each.names for each in rank.layouts} == names for rank in ranks)

    def may_be_unsteady(self, single: Pair | None) -> bool:
        """Whether DataParallel may train differently each time: it has begun otherwise in single precision, or rounding
        grows far."""
        first = self.compared.first
        if first is None or single is None:
            return first is not None or self.may_hide_a_fault
        double, other = (
            [loss for line in each.traces[0].lines[: first.step + 1] for loss in line["losses"]]
            for each in (self, single)
        )
        close = (math.isclose(a, b, rel_tol=_ALIKE) for a, b in zip(double, other, strict=False))
        return len(double) != len(other) or not all(close)

    def parting_from(self, again: tuple[Prepared, Run]) -> Difference | None:
        """Where DataParallel parts from itself, by more than a race between its threads rounds."""
        first = Pair(self.left, again, self.tolerance).compared.first
        return None if first is None or first.size <= HIDING else first


def _trace(run: Run, rank: int) -> Trace:
    """The record of a rank; one that broke off says nothing of the steps behind it, so there is no verdict."""
    stage = run.stage
    trace = read_trace(Path(str(stage.trace)), rank)
    status = read_status(Path(run.stage.run_folder), rank)
    # behind its record a rank says how it ended (boot.py); one that was killed has no end
    came_to_its_end = status is not None and status.code is not None
    broken = trace.end.broken if trace.end else "the record has no end" * came_to_its_end
    if broken:
        raise RunError(
            f"{stage.name}: rank {rank} ({stage.mode}, {stage.dtype}) could not be watched to its end: "
            f"{broken}; this is a fault of dp2ddp, please report it"
        )
    return trace
