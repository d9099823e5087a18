"""The HTML report: whole, escaped, small; what a browser makes of it is in test_html_in_browser.py."""

from __future__ import annotations

import html.parser
import json
import re
import urllib.parse
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dp2ddp.comparison.aligned import Aligned
from dp2ddp.errors import SourceError
from dp2ddp.report.charts import Chart, Curve, linear
from dp2ddp.report.report_files import check_target, write_report
from dp2ddp.report.script_changes import diff_lines
from tests.report.forms import markdown, page
from tests.report.made_up import CHANGE, EVIL, different, evil, report, same


class Elements(html.parser.HTMLParser):
    """Every element with its attributes, and the text outside of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def test_the_verdict_comes_first() -> None:
    good, bad = page(report(same())), page(report(same(2), different(3)))
    assert Elements(good).text.index("SAME") < Elements(good).text.index("2 devices")
    assert "<title>DIFFERENT" in bad
    assert bad.index("parts from DataParallel at step 7") < bad.index('id="w2"') < bad.index('id="w3"')


def test_a_page_without_float32_says_so() -> None:
    double = replace(same(), float32=None)
    assert "not run" in Elements(page(report(double, different(3)))).text


def test_what_was_printed_and_left_behind_is_shown_as_a_difference() -> None:
    text = page(report(different()))
    assert '<del><span class="sign" aria-label="removed">−</span>0,1.0</del>' in text
    assert "Epoch 20: loss 1.0952" in text
    assert "Epoch 1: loss" not in text  # far above the first line that differs


def test_a_page_asks_nothing_of_the_network() -> None:
    found = Elements(page(report(different())))
    links = [
        value
        for _, attributes in found.found
        for name, value in attributes.items()
        if name in ("src", "href")
    ]
    assert links
    assert all(str(link).startswith(("#", "data:")) for link in links)
    assert not found.named("iframe")
    assert "url(" not in page(report(different()))


def test_texts_of_scripts_stay_texts() -> None:
    text = page(evil())
    found = Elements(text)
    assert "<script>alert" not in text
    assert not found.named("img")
    assert len([each for each in found.named("script") if "type" not in each]) == 1  # ours
    assert text.count("&lt;script&gt;alert(1)") > 15
    assert "{{7*7}}" in text


def test_the_result_is_in_the_page_as_json() -> None:
    text = page(evil())
    (document,) = re.findall(
        r'<script type="application/json" id="dp2ddp-verify">(.*?)</script>', text, re.DOTALL
    )
    assert json.loads(document)["script"] == EVIL


def test_no_peak_is_lost_between_columns() -> None:
    values = np.zeros(2000)
    values[1234] = 1.0
    drawn = [
        Chart(
            "key",
            "",
            "",
            "",
            np.arange(steps),
            [Curve("difference", "float64", values[:steps])],
            linear(0, 1),
            "{:.1e}",
        )
        for steps in (2000, 3)
    ]
    assert [len(each.points["steps"]) for each in drawn] == [360, 3]
    assert "1.0e+00" in drawn[0].points["lines"][0][1]


def test_two_hundred_parameters_and_two_thousand_steps_make_a_small_page() -> None:
    worlds = (different(4, 2000, 200, parted=500), different(2, 2000, 200), different(3, 2000, 200))
    text = page(report(*worlds))
    assert len(text) < 2_000_000


def test_each_edit_stands_beside_its_reason() -> None:
    kinds = [(line.kind, line.text) for line in diff_lines(CHANGE)]
    wrap = kinds.index(("new", "net = ExactDDP(net)"))
    assert kinds[wrap + 1][0] == "reason"
    assert "DDP201" in kinds[wrap + 1][1]
    assert kinds[kinds.index(("new", "join_process_group()")) + 1][1].startswith("line 3: each rank joins")


@pytest.mark.parametrize(
    ("name", "words"),
    [("a.pdf", "ends in .html"), ("no/a.html", "there is no folder"), (".", "ends in .html"), ("d.md", "a folder")],
)  # fmt: skip
def test_a_report_that_cannot_be_written_is_refused_at_once(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "d.md").mkdir()
    with pytest.raises(SourceError, match=words) as caught:
        check_target(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_both_forms_are_written_by_their_endings(tmp_path: Path) -> None:
    for name, start in (("a.html", "<!DOCTYPE html>"), ("a.md", "<!-- a report of dp2ddp")):
        check_target(tmp_path / name)
        write_report(report(same()), tmp_path / name)
        assert (tmp_path / name).read_text().lstrip().startswith(start)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "a.md"]


def test_a_run_that_failed_makes_a_report_that_says_so() -> None:
    for verdicts in ((), (same(),)):
        failed = replace(
            report(*verdicts), failure="train.py: hangs in ddp mode on rank 1 of 3\n  rank 0 waits"
        )
        assert "<title>FAILED" in page(failed)
        assert "SAME" not in page(failed)
        assert "rank 0 waits" in page(failed)
        assert markdown(failed).startswith("## \N{WARNING SIGN}")


def test_learning_rates_are_told_in_a_sentence_and_each_stands_in_the_csv() -> None:
    verdict = same()
    rates = verdict.float64.series.learning_rates
    grouped = replace(verdict.float64.series, learning_rates=np.concatenate([rates, rates, rates / 8], 2))
    low, high = rates.min() / 8, rates.max()
    text = page(report(replace(verdict, float64=replace(verdict.float64, series=grouped))))
    assert f"Learning rate: {low:.6g} to {high:.6g}, the same in both runs." in text
    assert "learning rate rank 0, group 2" in urllib.parse.unquote(text)


def test_a_script_whose_gradients_are_of_no_parameter_has_a_page() -> None:
    """torch.autograd.grad with respect to the inputs: there are losses, and no parameter is furthest apart."""
    verdict = same()
    none = np.zeros((len(verdict.float64.series.steps), 0))
    series = replace(verdict.float64.series, names=(), gradients=none, parameters=none)
    text = page(report(replace(verdict, float64=replace(verdict.float64, series=series))))
    assert "Difference at each step" in text


def test_a_port_with_other_random_numbers_shows_both_of_its_runs() -> None:
    verdict = replace(different(), aligned=Aligned(same().float64))
    text = page(report(verdict))
    assert 'class="line aligned64"' in text
    assert 'class="line aligned64"' not in page(report(different()))
