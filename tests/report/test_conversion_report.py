"""The reports of convert: what they tell, first what matters; nothing of a script acts in them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dp2ddp.codemod.rule import all_rules
from dp2ddp.report.conversion_report import conversion_json, next_steps
from dp2ddp.report.html_form import coloured
from dp2ddp.report.report_files import write_report
from tests.codemod.scripts import converted
from tests.report.forms import markdown, page
from tests.report.made_up import EVIL
from tests.report.made_up_conversions import HAZARDS, PLAIN, report
from tests.report.test_html_page import Elements

FORMS = {"page": page, "markdown": markdown}


@pytest.mark.parametrize(
    ("name", "word"),
    [("plain", "CONVERTED"), ("idiomatic", "CONVERTED"), ("hazards", "OPEN"), ("nothing", "UNCHANGED")],
)
def test_the_outcome_comes_first(name: str, word: str) -> None:
    assert f"<title>{word} · train.py · dp2ddp convert</title>" in page(report(name))
    assert f" {word}: train.py" in markdown(report(name)).splitlines()[0]


@pytest.mark.parametrize("form", FORMS)
def test_each_edit_and_each_rule_is_there(form: str) -> None:
    found = report("plain")
    text = FORMS[form](found)
    shown = Elements(text).text if form == "page" else re.sub(r"&#(\d+);", lambda m: chr(int(m[1])), text)
    assert len(found.conversion.edits) > 4
    for edit in found.conversion.edits:
        assert edit.because in shown
    summaries = {rule.code: rule.summary() for rule in all_rules()}
    for code in {edit.code for edit in found.conversion.edits}:
        assert code in shown
        assert summaries[code] in shown


@pytest.mark.parametrize("form", FORMS)
def test_an_open_hazard_has_its_place_and_what_to_do_and_nothing_is_started(form: str) -> None:
    text = FORMS[form](report("hazards"))
    assert "breakpoint() waits for a person" in text
    assert "train.py:7:" in text
    assert "take it out" in text
    assert "# dp2ddp: accept[DDP906] why" in text
    assert "--accept DDP906:7" in text
    assert "torchrun" not in text.partition('<script type="application/json"')[0]
    assert "by --accept: a person" in text
    assert "by a comment: never reached" in text
    assert "gone_library" in text
    assert "zoo.py" in text


def test_the_line_of_a_hazard_is_shown() -> None:
    excerpt = HAZARDS.splitlines()[6].replace("<", "&lt;").replace(">", "&gt;")
    assert excerpt.partition("'")[0] in page(report("hazards")).partition('class="excerpt">')[2]


def test_a_style_says_what_is_no_longer_the_same() -> None:
    found = report("idiomatic")
    assert found.conversion.differences
    for each in found.conversion.differences:
        assert each.name in page(found)
        assert each.name in markdown(found)


def test_nothing_to_convert_needs_no_next_step() -> None:
    assert list(next_steps(report("nothing"))) == []
    assert "What to do next" not in page(report("nothing")) + markdown(report("nothing"))


def test_the_next_step_is_the_proof_then_the_start() -> None:
    commands = [step.command for step in next_steps(report("plain"))]
    assert commands == [
        "dp2ddp verify train.py -n 3",
        "torchrun --standalone --nproc-per-node 3 train_ddp.py",
    ]


def test_what_verify_would_not_choose_itself_is_compared_as_it_was_written() -> None:
    for name, requested in (("plain", True), ("idiomatic", False)):
        made = report(name)
        asked = type(made)(made.conversion, made.written, made.surroundings, requested)
        assert next(next_steps(asked)).command == "dp2ddp verify train.py --converted train_ddp.py -n 3"


def test_helpers_that_their_owner_has_changed_are_compared_as_they_are() -> None:
    made = report("plain")
    assert made.conversion.helpers
    helpers = replace(made.conversion.helpers, kept=("init_distributed",))
    changed = replace(made, conversion=replace(made.conversion, helpers=helpers))
    assert next(next_steps(changed)).command == "dp2ddp verify train.py --converted train_ddp.py -n 3"


def test_a_conversion_in_place_has_no_original_to_compare_with() -> None:
    assert [step.command.split()[0] for step in next_steps(report("plain", "train.py"))] == ["torchrun"]


def test_what_came_from_stdin_has_no_original_either() -> None:
    made = replace(report("plain"), conversion=converted(PLAIN))
    assert [step.command.split()[0] for step in next_steps(made)] == ["torchrun"]


def test_what_was_not_written_says_so() -> None:
    first, verifying, _ = next_steps(report("plain", None))
    assert first.purpose.startswith("Nothing was written yet")
    assert verifying.command == "dp2ddp verify train.py -n 3"


def test_texts_of_scripts_stay_texts() -> None:
    text = page(report("hazards"))
    assert "<script>alert" not in text
    assert "<img" not in text
    found = Elements(text)
    assert EVIL in found.text
    assert all(
        str(link["href"]).startswith(("#", "data:")) for link in (*found.named("a"), *found.named("link"))
    )
    shown = re.sub(r"(`{3,})diff\n.*?\n\1", "", markdown(report("hazards")), flags=re.DOTALL)
    assert "<script>" not in shown
    assert "<img" not in shown


def test_the_page_holds_the_json_document() -> None:
    made = report("hazards")
    (data,) = re.findall(r'<script type="application/json" id="dp2ddp-convert">(.*)</script>', page(made))
    assert json.loads(data) == json.loads(conversion_json(made.conversion, made.written))


def test_endings_say_the_form(tmp_path: Path) -> None:
    for name, start in (("a.html", "<!DOCTYPE html>\n"), ("a.md", "## \N{WHITE HEAVY CHECK MARK} CONVERTED")):
        write_report(report("plain"), tmp_path / name)
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert text.removeprefix("<!-- a report of dp2ddp, which the next one overwrites -->\n").startswith(
            start
        )


class TestColours:
    def test_what_stands_where(self) -> None:
        (line,) = coloured("for x in range(3):  # three")
        shown = re.findall(r'<span class="py-(\w)\w*">(.*?)</span>', line)
        assert {text: kind for kind, text in shown if kind in "kmc" or text == "range"} == {
            "for": "k", "range": "n", "3": "m", "# three": "c"
        }  # fmt: skip

    def test_a_long_string_is_coloured_in_all_its_lines(self) -> None:
        assert [line.startswith('<span class="py-s') for line in coloured('"""a\nb\n c"""\n')] == [True] * 3

    def test_what_counts_lines_otherwise_has_no_colours(self) -> None:
        assert coloured("a\x0cb\n'c'") == ["a", "b", "&#39;c&#39;"]

    @pytest.mark.parametrize("text", ["def (", "'''", "x = $1", "", "\n\n", "a = 1\n\n\n"])
    def test_what_is_no_python_loses_nothing(self, text: str) -> None:
        assert [Elements(str(line)).text for line in coloured(text)] == text.splitlines()

    def test_no_letter_is_lost_or_acts(self) -> None:
        text = PLAIN + HAZARDS
        for line, html in zip(text.splitlines(), coloured(text), strict=True):
            assert Elements(str(html)).text == line
            assert {tag for tag, _ in Elements(str(html)).found} <= {"span"}
