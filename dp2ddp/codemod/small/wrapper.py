"""Which wrapper stands for DataParallel, once a program."""

from __future__ import annotations

from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.small.forwards import fills_something


def wrapper(program: Program) -> str:
    """The helper that takes DataParallel's place."""
    return "WholeBatchInTurns" if fills_something(program) else "WholeBatchParallel"
