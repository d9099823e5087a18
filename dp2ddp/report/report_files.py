"""Reports as files: the ending says which form; written whole or not at all."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dp2ddp.errors import SourceError
from dp2ddp.report.conversion_report import ConversionReport
from dp2ddp.source.writing import write_atomically

if TYPE_CHECKING:
    from dp2ddp.costs.result import Benchmark
    from dp2ddp.report.comparison import Report

PAGES = (".html", ".htm")
ENDINGS = (*PAGES, ".md")
# What each kind of result is made into: (module, function). Loaded when it is needed: converting has no numpy.
_WRITERS = {
    "ConversionReport": ("conversion_page", "conversion_markdown"),
    "Report": ("html_page", "markdown"),
    "Benchmark": ("bench_page", "bench_markdown"),
}


def check_target(path: Path) -> None:
    """Before a run that may take long: whether a report can be written there at all."""
    if path.suffix.lower() not in ENDINGS:
        raise SourceError(f"{path}: a report ends in {', '.join(ENDINGS)}")
    if path.is_dir():
        raise SourceError(f"{path}: is a folder; name a file for the report")
    if not path.parent.is_dir():
        raise SourceError(f"{path}: there is no folder {path.parent} for the report; make it first")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise SourceError(f"{path}: the report cannot be written there: {error.strerror}") from error


def write_report(result: ConversionReport | Report | Benchmark, path: Path) -> None:
    """Write the result of convert, verify or bench; the file's ending says in which form."""
    write_atomically(path, report_text(result, path.suffix.lower()).encode("utf-8", "replace"))


def report_text(result: ConversionReport | Report | Benchmark, ending: str) -> str:
    """The whole file that ends so."""
    page, markdown = _WRITERS[type(result).__name__]
    name, function = (page, "page") if ending in PAGES else (markdown, "markdown")
    text: str = getattr(importlib.import_module(f"dp2ddp.report.{name}"), function)(result)
    return text
