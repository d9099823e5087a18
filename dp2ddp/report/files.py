"""Reports as files: the ending says which form; written whole or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from dp2ddp.bench.result import Benchmark
from dp2ddp.errors import SourceError
from dp2ddp.report.comparison import Report
from dp2ddp.source.writing import write_atomically


def _page(report: Report) -> str:
    from dp2ddp.report.page import page  # jinja2 takes 40 ms to load

    return page(report)


def _markdown(report: Report) -> str:
    from dp2ddp.report.markdown import markdown

    return markdown(report)


def _bench_page(found: Benchmark) -> str:
    from dp2ddp.report.bench_page import page

    return page(found)


def _bench_markdown(found: Benchmark) -> str:
    from dp2ddp.report.bench_markdown import markdown

    return markdown(found)


BENCH_FORMS: Mapping[str, Callable[[Benchmark], str]] = {
    ".html": _bench_page,
    ".htm": _bench_page,
    ".md": _bench_markdown,
}
FORMS: Mapping[str, Callable[[Report], str]] = {".html": _page, ".htm": _page, ".md": _markdown}


def check_target(path: Path) -> None:
    """Before a run that may take long: whether a report can be written there at all."""
    if path.suffix.lower() not in FORMS:
        raise SourceError(f"{path}: a report ends in {', '.join(FORMS)}")
    if path.is_dir():
        raise SourceError(f"{path}: is a folder; name a file for the report")
    if not path.parent.is_dir():
        raise SourceError(f"{path}: there is no folder {path.parent} for the report; make it first")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise SourceError(f"{path}: the report cannot be written there: {error.strerror}") from error


def write_report(report: Report, path: Path) -> None:
    write_atomically(path, FORMS[path.suffix.lower()](report).encode("utf-8", "replace"))


def write_benchmark(found: Benchmark, path: Path) -> None:
    write_atomically(path, BENCH_FORMS[path.suffix.lower()](found).encode("utf-8", "replace"))
