"""The Markdown report: what a reviewer wants, and nothing of a script that GitHub would act on."""

from __future__ import annotations

from dataclasses import replace

from dp2ddp.report.comparison import report_text
from tests.report.forms import markdown
from tests.report.made_up import EVIL, different, evil, failed, report, same


def test_the_verdict_comes_first_then_what_a_terminal_shows() -> None:
    both = report(same(2), different(3))
    lines = markdown(both).splitlines()
    assert lines[:3] == ["## \N{CROSS MARK} DIFFERENT", "", "```text"]
    shown = report_text(both).splitlines()
    assert lines[3] == shown[0]
    assert {line for line in shown if len(line) <= 120} <= {*lines}
    assert max(map(len, lines[: lines.index("```")])) <= 120


def test_what_is_long_is_folded() -> None:
    text = markdown(report(different()))
    assert text.count("<details>") == text.count("</details>") == 5
    assert "\n+net = ExactDDP(net)\n" in text
    assert "DDP201" in text


def test_texts_of_scripts_stand_in_fences_alone() -> None:
    outside, fence = [], ""
    for line in markdown(evil()).splitlines():
        marks = line[: len(line) - len(line.lstrip("`"))]
        if len(marks) >= 3 and (not fence or line == fence):
            fence = "" if fence else marks
        elif not fence:
            outside.append(line)
    assert not fence
    heads = {"## \N{CROSS MARK} DIFFERENT", "", "</details>"}
    titles = [line for line in outside if line not in heads]
    assert all(line.startswith("<details><summary>") and EVIL not in line for line in titles)


def test_a_fence_is_longer_than_any_within() -> None:
    verdict = different()
    stdout = replace(verdict.stdout, first=(1, "a", "b"))
    text = markdown(report(replace(verdict, stdout=stdout, printed=("`" * 5, EVIL))))
    assert "``````diff" in text


def test_a_long_difference_fits_in_a_comment() -> None:
    verdict = different()
    printed = "\n".join(f"line {number} " + "x" * 500 for number in range(5000))
    stdout = replace(verdict.stdout, first=(1, "a", "b"))
    change = replace(report().changes[0], after="\n".join(f"new {n}" * 20 for n in range(5000)))
    long = replace(verdict, stdout=stdout, printed=(printed, printed.replace("x", "y")))
    assert len(markdown(report(long, changes=(change,)))) < 65_536


def test_each_rank_of_a_hang_has_a_line_of_its_own() -> None:
    text = markdown(failed("hang"))
    ranks = text[text.index("Where each rank stands") :].splitlines()
    assert [line[: len("rank 0")] for line in ranks[4:6]] == ["rank 0", "rank 1"]
