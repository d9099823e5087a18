"""Move PyTorch training scripts from nn.DataParallel to DistributedDataParallel, and prove the sameness.

What the commands do, as functions (docs/api.md):

convert, write_conversion   the codemod: a script in, a `Conversion` out; and its files
check                       what is wrong in files, or in the way of DDP: a `CheckResult`
verify                      both versions run and compared: a `Report`
bench                       both versions timed: a `Benchmark`
write_report                any of them as a page to read, or for a pull request

Nothing is loaded before it is used, and torch never into this process.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes as long to import as Python to start; type checkers know the name
if TYPE_CHECKING:
    # each as itself: so type checkers know that it is public
    from typing import Any

    from dp2ddp.api import BenchmarkError as BenchmarkError
    from dp2ddp.api import VerificationError as VerificationError
    from dp2ddp.api import bench as bench
    from dp2ddp.api import check as check
    from dp2ddp.api import convert as convert
    from dp2ddp.api import verify as verify
    from dp2ddp.api import write_conversion as write_conversion
    from dp2ddp.api import write_report as write_report
    from dp2ddp.codemod.conversion import Conversion as Conversion
    from dp2ddp.costs.figures import Benchmark as Benchmark
    from dp2ddp.errors import ConversionError as ConversionError
    from dp2ddp.errors import Dp2DdpError as Dp2DdpError
    from dp2ddp.errors import HazardError as HazardError
    from dp2ddp.errors import MissingError as MissingError
    from dp2ddp.errors import OptionError as OptionError
    from dp2ddp.errors import RunError as RunError
    from dp2ddp.errors import SourceError as SourceError
    from dp2ddp.errors import UnmatchedAcceptanceError as UnmatchedAcceptanceError
    from dp2ddp.progress import Progress as Progress
    from dp2ddp.progress import RunState as RunState
    from dp2ddp.report.comparison import Report as Report
    from dp2ddp.review.checking import CheckResult as CheckResult

__version__ = "0.1.0"

_PLACES = {
    "dp2ddp.api": "BenchmarkError VerificationError bench check convert verify write_conversion write_report",
    "dp2ddp.codemod.conversion": "Conversion",
    "dp2ddp.costs.figures": "Benchmark",
    "dp2ddp.errors": "ConversionError Dp2DdpError HazardError MissingError OptionError RunError SourceError "
    "UnmatchedAcceptanceError",
    "dp2ddp.progress": "Progress RunState",
    "dp2ddp.report.comparison": "Report",
    "dp2ddp.review.checking": "CheckResult",
}

__all__ = ["__version__", *(name for names in _PLACES.values() for name in names.split())]


def __getattr__(name: str) -> Any:
    """Any: whatever the name stands for; type checkers read the imports above."""
    place = next((place for place, names in _PLACES.items() if name in names.split()), None)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(place), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
