"""Where and how it was verified."""

from __future__ import annotations

import json

from dp2ddp.report.comparison import Report
from dp2ddp.report.json_form import as_text
from dp2ddp.report.surroundings import surroundings
from tests.report.forms import markdown, page

COMMAND = ["/bin/dp2ddp", "verify", "train.py", "--", "--api-key", "SECRET", "hf_token=SECRET", "--lr", "0.1"]
SHOWN = "dp2ddp verify train.py -- --api-key '***' 'hf_token=***' --lr 0.1"


def test_the_command_is_shown_without_secrets() -> None:
    for rows in (surroundings(COMMAND, (), 0), surroundings(COMMAND, ())):
        assert dict(rows)["command"] == SHOWN


def test_no_form_of_a_report_has_them() -> None:
    report = Report(
        "train.py",
        (),
        "torchrun",
        1.0,
        surroundings=dict(surroundings(COMMAND, (), 0)),
        failure="train.py: fails",
    )
    for text in (page(report), markdown(report), json.dumps(as_text(report))):
        assert "SECRET" not in text
    assert "--lr 0.1" in page(report)
    assert "--lr 0.1" in markdown(report)
