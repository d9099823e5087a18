"""Verifying scripts of the documents, one after the other beside one server of runs."""

from __future__ import annotations

from pathlib import Path

from dp2ddp.comparison.verdict import Verdict
from dp2ddp.report.facts import facts
from dp2ddp.runtime.process.server import Server
from tests.verdicts import verdict_of_port


def verified(
    server: Server, folder: Path, arguments: tuple[str, ...] = (), world: int = 2, timeout: float = 120.0
) -> Verdict:
    """What verify says of train.py and train_ddp.py there."""
    pair = folder / "train.py", folder / "train_ddp.py"
    return verdict_of_port(server, *pair, world, arguments=arguments, timeout=timeout)


def findings(verdict: Verdict) -> str:
    return "\n".join(map(str, facts(verdict)))
