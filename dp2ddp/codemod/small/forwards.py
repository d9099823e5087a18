"""What forwards and hooks write to."""

from __future__ import annotations

from dp2ddp.codemod.model.program import Program


def fills_something(program: Program) -> bool:
    """Whether a forward or a hook writes to anything but locals and plain attributes of self."""
    return False
