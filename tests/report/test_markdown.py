"""The Markdown report: what a reviewer wants, and nothing of a script that GitHub would act on."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from dp2ddp.comparison.output_comparison import UnlikeLine
from dp2ddp.report.facts import facts
from dp2ddp.report.markdown_form import plain
from tests.report.forms import markdown
from tests.report.made_up import EVIL, different, evil, failed, report, same


def test_the_verdict_comes_first_then_a_table_for_each_number_of_devices() -> None:
    lines = markdown(report(same(2), different(3))).splitlines()
    assert lines[0].startswith("## \N{CROSS MARK} DIFFERENT: train")
    assert [line for line in lines if line.startswith("### ")] == [
        "### \N{WHITE HEAVY CHECK MARK} 2 devices",
        "### \N{CROSS MARK} 3 devices",
        "### What to do next",
        "### What changed in the script",
    ]
    start = lines.index("| --- | --- | --- |")
    rows = len(list(facts(same(2))))
    table = lines[start + 1 : start + 1 + rows]
    assert {line[: line.index("|", 1) + 1] for line in table} == {"| ok |", "| – |"}  # nothing is wrong
    assert lines[start + 1 + rows] == ""


def test_causes_stand_open_and_differences_folded() -> None:
    text = markdown(report(different()))
    assert "**Likely: Gradients are summed over the ranks" in text
    assert "- **to change:** Divide the loss" in text
    assert text.count("<details>") == text.count("</details>") == 4
    assert "\n+net = ExactDDP(net)\n" in text
    assert "DDP201" in text


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a|b", "a&#124;b"),
        ("<b>", "&#60;b&#62;"),
        ("@team", "&#64;team"),
        ("two\nlines", "two lines"),
        ("*b* _i_ a_b [l](u)", "&#42;b&#42; &#95;i&#95; a_b &#91;l&#93;(u)"),
        ("# a", "&#35; a"),
        ("- a", "&#45; a"),
        ("1. a", "1&#46; a"),
        ("#12 :tada: http://a", "&#35;12 &#58;tada: http&#58;//a"),
        ("1.5e-3 apart: train.py:8 (2 x)", "1.5e-3 apart: train.py:8 (2 x)"),
    ],
)
def test_words_mean_themselves(text: str, same: str) -> None:
    assert plain(text) == same


def test_texts_of_scripts_stay_texts() -> None:
    text = markdown(evil())
    outside, fenced = [], False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if not fenced:
            outside.append(
                re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", line)
            )  # code: a command to be copied
    assert not fenced
    assert not [line for line in outside if "<script" in line or "<img" in line]


def test_a_fence_is_longer_than_any_within() -> None:
    verdict = different()
    stdout = replace(verdict.stdout, first=UnlikeLine(1, "a", "b"))
    text = markdown(report(replace(verdict, stdout=stdout, printed=("`" * 5, EVIL))))
    assert "``````diff" in text


def test_a_long_difference_fits_in_a_comment() -> None:
    verdict = different()
    printed = "\n".join(f"line {number} " + "x" * 500 for number in range(5000))
    stdout = replace(verdict.stdout, first=UnlikeLine(1, "a", "b"))
    change = replace(report().changes[0], after="\n".join(f"new {n}" * 20 for n in range(5000)))
    long = replace(verdict, stdout=stdout, printed=(printed, printed.replace("x", "y")))
    assert len(markdown(report(long, changes=(change,)))) < 65_536


def test_each_rank_of_a_hang_has_a_line_of_its_own() -> None:
    lines = markdown(failed("hang")).splitlines()
    start = lines.index("### Where each rank stands")
    assert "rank 0" not in lines[start + 2]
    assert [line[: len("- rank 0")] for line in lines[start + 4 : start + 6]] == ["- rank 0", "- rank 1"]
