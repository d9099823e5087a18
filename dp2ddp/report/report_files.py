"""Reports as files: the ending says which form; written whole or not at all."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp2ddp.errors import SourceError
from dp2ddp.report.conversion_report import ConversionReport
from dp2ddp.report.markdown_form import markdown
from dp2ddp.source.writing import write_together

if TYPE_CHECKING:
    from dp2ddp.costs.figures import Benchmark
    from dp2ddp.report.comparison import Report

PAGES = (".html", ".htm")
ENDINGS = (*PAGES, ".md")
# By these a report is known as ours, and may be overwritten by the next one.
_FIRST_LINE = "<!-- a report of dp2ddp, which the next one overwrites -->\n"  # which Markdown does not show
_GENERATOR = '<meta name="generator" content="dp2ddp">'  # report/page.html.j2
_HEAD = 4096  # bytes of a page, in which that stands
# What each kind of result is made into: a document, and JSON. Loaded when it is needed: converting has no numpy.
_MAKERS = {
    "ConversionReport": (
        ("conversion_report", "conversion_document"),
        ("conversion_report", "conversion_data"),
    ),
    "Report": (("comparison", "comparison_document"), ("json_form", "as_data")),
    "Benchmark": (("bench_report", "bench_document"), ("json_form", "as_data")),
}


def check_target(path: Path) -> None:
    """Before a run that may take long: whether a report can be written there at all, and overwrites nothing else."""
    if path.suffix.lower() not in ENDINGS:
        raise SourceError(f"{path}: a report ends in {', '.join(ENDINGS)}")
    if path.is_dir():
        raise SourceError(f"{path}: is a folder; name a file for the report")
    if not path.parent.is_dir():
        raise SourceError(f"{path}: there is no folder {path.parent} for the report; make it first")
    if path.is_file():
        _refuse_foreign(path, _read(path))
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise SourceError(f"{path}: the report cannot be written there: {error.strerror}") from error


def write_report(result: ConversionReport | Report | Benchmark, path: Path) -> None:
    """Write the result of convert, verify or bench; the file's ending says in which form.

    SourceError where another file lies that is no report of ours.
    """
    new = report_text(result, path.suffix.lower()).encode("utf-8", "replace")
    old = {path: _read(path)} if path.is_file() else {}
    for there in old.values():  # it may have come while the scripts ran
        _refuse_foreign(path, there)
    write_together({path: new}, old)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path}: the report cannot be written there: {error.strerror}") from error


def _refuse_foreign(path: Path, content: bytes) -> None:
    is_report = content.startswith(_FIRST_LINE.encode()) or _GENERATOR.encode() in content[:_HEAD]
    if content and not is_report:
        raise SourceError(
            f"{path}: exists, and is no report of dp2ddp; name another file for the report, or remove this one"
        )


def report_text(result: ConversionReport | Report | Benchmark, ending: str) -> str:
    """The whole file that ends so."""
    words, data = _MAKERS[type(result).__name__]
    document = _function(*words)(result)
    if ending not in PAGES:
        return _FIRST_LINE + markdown(document)
    page = _function("html_form", "page")  # jinja2 is loaded for pages only
    return str(page(document, _function(*data)(result)))


def _function(module: str, name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(importlib.import_module(f"dp2ddp.report.{module}"), name)
    return function
