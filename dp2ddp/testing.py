"""Keep the proof in your own tests: `assert_trains_the_same("train.py", converted="train_ddp.py")`.

Works with pytest and without. Nothing of torch is imported here; the runs have processes of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp2ddp.errors import HazardError
from dp2ddp.options import VerifyOptions, by_keyword

if TYPE_CHECKING:
    from dp2ddp.report.comparison import Report


@by_keyword(VerifyOptions)
def assert_trains_the_same(options: VerifyOptions) -> Report:
    """Train the script with DataParallel and its DDP version, and compare every step, as `dp2ddp verify` does.

    Returns the report, with one verdict for each number of devices. Raises AssertionError with the report as its text
    where they differ, RunError if one of the runs fails or hangs, HazardError if the script cannot be converted without
    its owner, ValueError if two options do not go together.
    """
    __tracebackhide__ = True  # pytest shows the test's line
    from dp2ddp.api import verify
    from dp2ddp.report.comparison import report_text

    try:
        report = verify(**vars(options))
    except HazardError as error:
        raise HazardError(f"{error}\n{error.report}", error.report) from None
    if not report.same:
        raise AssertionError(report_text(report))
    return report
