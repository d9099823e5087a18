"""The forms of a result, as reports hold them."""

from __future__ import annotations

from typing import Any

from dp2ddp.report.report_files import report_text


def page(result: Any) -> str:
    return report_text(result, ".html")


def markdown(result: Any) -> str:
    """Without the line by which it is known."""
    return report_text(result, ".md").partition("\n")[2]
