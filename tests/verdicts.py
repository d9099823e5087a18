"""What verify says of two versions, without what a command line and torchrun add: torch imported once in each rank."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dp2ddp.codemod.conversion import Conversion
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.options import VerifyOptions
from dp2ddp.progress import SILENT
from dp2ddp.report.comparison import Report
from dp2ddp.report.json_form import as_data
from dp2ddp.runtime.process.server import Server
from dp2ddp.trial.subject import Subject, Version, subject_of
from dp2ddp.trial.trial import run_trial

TIMEOUT = 120.0  # seconds without progress; the machine may be busy
Document = dict[str, Any]  # JSON, schema dp2ddp.verify/2


def forked_verdicts(
    server: Server, script: Path, converted: Path, worlds: Sequence[int], **options: Any
) -> list[Document]:
    """The verdict about a version as JSON says it, for each number of devices; `options` as of `verdict_of_port`."""
    verdicts = [verdict_of_port(server, script, converted, world, **options) for world in worlds]
    said: list[Document] = as_data(Report(script.name, tuple(verdicts), "", 0.0))["verdicts"]
    return said


def verdict_of_port(
    server: Server, script: Path, converted: Path, world: int = 2, float32: bool = False, **options: Any
) -> Verdict:
    """The verdict about a version that lies beside its script; `options` are those of VerifyOptions."""
    subject = subject_of(VerifyOptions(script=script, converted=converted, **options))
    subject = replace(subject, folder=script.parent, torchrun=False, float32=float32)
    with tempfile.TemporaryDirectory() as scratch:
        return run_trial(subject, world, server, Path(scratch).resolve(), SILENT)


def forked_verdict(
    server: Server,
    conversion: Conversion,
    folder: Path,
    world: int = 2,
    *,
    arguments: tuple[str, ...] = (),
    float32: bool = False,
    **more: Any,
) -> Verdict:
    """The verdict about the conversion of a script in its folder; `more` is what else Subject is told."""
    script = conversion.before.path
    assert script
    subject = Subject(
        options=VerifyOptions(script, arguments=arguments, timeout=TIMEOUT),
        script=script,
        name=str(script.relative_to(folder)),
        version=Version(
            conversion.entry.data,
            script.name if conversion.is_project else "train_ddp.py",
            conversion.files_beside,
        ),
        folder=folder,
        torchrun=False,
        float32=float32,
        **more,
    )
    with tempfile.TemporaryDirectory() as scratch:
        return run_trial(subject, world, server, Path(scratch).resolve(), SILENT)
