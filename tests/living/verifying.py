"""Verifying scripts of the documents, one after the other beside one server of runs."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from dp2ddp.comparison.verdict import Verdict
from dp2ddp.options import VerifyOptions
from dp2ddp.progress import SILENT
from dp2ddp.report.facts import facts
from dp2ddp.runtime.process.server import Server
from dp2ddp.trial.subject import subject_of
from dp2ddp.trial.trial import run_trial


def verified(
    server: Server, folder: Path, arguments: tuple[str, ...] = (), world: int = 2, timeout: float = 120.0
) -> Verdict:
    """What verify says of train.py and train_ddp.py there."""
    options = VerifyOptions(
        script=folder / "train.py", converted=folder / "train_ddp.py", arguments=arguments, timeout=timeout
    )
    subject = replace(subject_of(options), folder=folder, torchrun=False, float32=False)
    with tempfile.TemporaryDirectory() as name:
        return run_trial(subject, world, server, Path(name).resolve(), SILENT)


def findings(verdict: Verdict) -> str:
    return "\n".join(map(str, facts(verdict)))
