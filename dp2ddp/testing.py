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

    Without `converted` the script is converted first. All else is named as the options of the command are.
    Returns the report, with one verdict for each number of devices; an AssertionError shows it where they differ.
    Raises RunError if one of the runs fails or hangs, HazardError if the script cannot be converted without its owner,
    ValueError if two options do not go together.
    """
    __tracebackhide__ = True  # pytest shows the test's line
    from dp2ddp.report.comparison import report_text
    from dp2ddp.trial.wanted import Wanted
    from dp2ddp.trial.whole import verify

    numbers = (devices,) if isinstance(devices, int) else tuple(devices or ())
    wanted = Wanted(
        script=Path(script),
        converted=None if converted is None else Path(converted),
        devices=numbers,
        arguments=tuple(arguments),
        converted_arguments=None if converted_arguments is None else tuple(converted_arguments),
        steps=steps,
        every=every,
        only_gradients=only_gradients,
        aligned=aligned,
        launcher=launcher,
        accept=tuple(accept),
        patience=timeout,
        as_module=as_module,
    )
    try:
        report, failure = verify(wanted)
    except HazardError as error:
        raise HazardError(f"{error}\n{error.report}", error.report) from None
    if failure:
        raise failure
    if not report.same:
        raise AssertionError(report_text(report))
    return report
