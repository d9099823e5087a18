"""One trial: a script on W devices, in scratch copies; its runs compared.

DataParallel, float64   forked        the reference
DDP, float64            torchrun      the converted script as a user will start it
DataParallel, float32   forked        shown beside it
DDP, float32            forked

And where the numbers of such a pair are further apart than a few roundings, DataParallel once more, an ulp away: what
rounding alone makes of this training (verify/tolerance.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dp2ddp.runtime.run import Run
from dp2ddp.runtime.server import Server
from dp2ddp.trial.judge import Pair, judge
from dp2ddp.trial.prepare import Kind, Prepared, prepare
from dp2ddp.trial.runs import run_all
from dp2ddp.trial.subject import Subject
from dp2ddp.verify.tolerance import FLOAT32, FLOAT64
from dp2ddp.verify.verdict import Verdict


def try_on(
    subject: Subject, world: int, server: Server, scratch: Path, see: Callable[[str], None]
) -> Verdict:
    """Run both on `world` devices and compare; RunError if one of them fails."""
    trial = _Trial(subject, world, server, scratch, see)
    dp, ddp, dp32, ddp32 = trial.run(
        Kind("dp", "float64"), Kind("ddp", "float64"), Kind("dp", "float32"), Kind("ddp", "float32")
    )
    pairs = (
        Pair(dp, ddp, FLOAT64, port=subject.port is not None),
        Pair(dp32, ddp32, FLOAT32, port=subject.port is not None),
    )
    double, single = trial.beside_noise(pairs)
    return judge(subject, double, single, server, scratch)


@dataclass(frozen=True)
class _Trial:
    """The runs of a script on a number of devices."""

    subject: Subject
    world: int
    server: Server
    scratch: Path
    see: Callable[[str], None]

    def run(self, *kinds: Kind) -> list[tuple[Prepared, Run]]:
        prepared = [prepare(self.subject, kind, self.world, self.scratch) for kind in kinds]
        runs = run_all(self.subject, prepared, self.server, self.see)
        return list(zip(prepared, runs, strict=True))

    def beside_noise(self, pairs: Sequence[Pair]) -> list[Pair]:
        """The pairs whose bits differ further than rounding's own size, with a run that tells what rounding makes."""
        unsure = [pair for pair in pairs if pair.may_be_rounding]
        runs = self.run(*(Kind("dp", pair.reference.stage.dtype, nudged=True) for pair in unsure))
        noise = {id(pair): run for pair, (_, run) in zip(unsure, runs, strict=True)}
        return [pair.beside(noise[id(pair)]) if id(pair) in noise else pair for pair in pairs]
