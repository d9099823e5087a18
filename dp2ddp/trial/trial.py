"""One trial: four runs of a script on W devices, in scratch copies, compared.

DataParallel, float64   forked        the reference
DDP, float64            torchrun      the converted script as a user will start it
DataParallel, float32   forked        shown beside it
DDP, float32            forked
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dp2ddp.runtime.server import Server
from dp2ddp.runtime.stage import Mode
from dp2ddp.trial.judge import judge, own_code
from dp2ddp.trial.prepare import prepare
from dp2ddp.trial.runs import run_all
from dp2ddp.trial.subject import Subject
from dp2ddp.verify.verdict import Verdict


def try_on(
    subject: Subject, world: int, server: Server, scratch: Path, see: Callable[[str], None]
) -> Verdict:
    """Run both on `world` devices and compare; RunError if one of them fails."""
    kinds: list[tuple[Mode, str]] = [
        ("dp", "float64"),
        ("ddp", "float64"),
        ("dp", "float32"),
        ("ddp", "float32"),
    ]
    prepared = [prepare(subject, mode, world, dtype, scratch) for mode, dtype in kinds]
    runs = run_all(subject, prepared, server, see)
    return judge(prepared, runs, server, scratch, own_code(subject))
