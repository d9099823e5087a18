"""Keep the proof in your own tests: `assert_trains_the_same("train.py", converted="train_ddp.py")`.

Works with pytest and without. Nothing of torch is imported here; the runs have processes of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dp2ddp.errors import HazardError

if TYPE_CHECKING:
    from dp2ddp.report.comparison import Report


def assert_trains_the_same(
    script: str | Path,
    *,
    converted: str | Path | None = None,
    devices: int | Sequence[int] | None = None,
    arguments: Sequence[str] = (),
    converted_arguments: Sequence[str] | None = None,
    steps: int | None = None,
    every: int = 1,
    only_gradients: bool = False,
    aligned: bool = False,
    launcher: str | None = None,
    accept: Sequence[str] = (),
    timeout: float = 120.0,
    as_module: bool = False,
) -> Report:
    """Train the script with DataParallel and its DDP version, and compare every step, as `dp2ddp verify` does.

    script: the DataParallel script; with `as_module`, a module as `python -m` takes it.
    converted: your own DDP version; without it the script is converted first, in memory.
    devices: one or several numbers of devices; by default what the script names, or 2.
    arguments, converted_arguments: of the script, and of the DDP version where those are others.
    steps: end both after so many optimizer steps. every: compare all values at each so many-th step only.
    only_gradients: judge gradients and parameters, and show what is printed and left behind.
    aligned: give both the same random numbers (your own version may draw others).
    launcher: "torchrun" or "python", whichever starts your own version; by default what its text says.
    accept: answers to hazards, as `--accept` takes them ("DDP503:41").
    timeout: seconds without progress after which a run counts as a hang.

    Returns the report, with one verdict for each number of devices. Raises AssertionError with the report as its text
    where they differ, RunError if one of the runs fails or hangs, HazardError if the script cannot be converted without
    its owner, ValueError if two options do not go together.
    """
    __tracebackhide__ = True  # pytest shows the test's line
    from dp2ddp.api import verify
    from dp2ddp.report.comparison import report_text

    try:
        report = verify(
            script, converted=converted, devices=() if devices is None else devices, arguments=arguments,
            converted_arguments=converted_arguments, steps=steps, every=every, only_gradients=only_gradients,
            aligned=aligned, launcher=launcher, accept=accept, timeout=timeout, as_module=as_module,
        )  # fmt: skip
    except HazardError as error:
        raise HazardError(f"{error}\n{error.report}", error.report) from None
    if not report.same:
        raise AssertionError(report_text(report))
    return report
