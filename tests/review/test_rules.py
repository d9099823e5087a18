"""Every example of every rule of the check, and what all of them have in common."""

from __future__ import annotations

import re

import pytest

from dp2ddp.codemod.rule import Example, Flags, Rewrites, Untouched, code_of
from dp2ddp.codemod.writing.apply import edit_text
from dp2ddp.review.check_rule import CheckRule, Problem, check_rules
from dp2ddp.review.hits import problems_of
from dp2ddp.review.own_file import OwnFile
from tests.review.finding import script_of

RULES = check_rules()
EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.code}-{index}")
    for rule in RULES
    for index, example in enumerate(rule.examples)
]


def problems_in(script: OwnFile, rule: CheckRule) -> list[Problem]:
    return [problem for _, problem in problems_of(script, [rule])]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_an_example_holds(rule: CheckRule, example: Example) -> None:
    script = script_of(code_of(example.before))

    problems = problems_in(script, rule)

    match example:
        case Flags():
            texts = [f"{problem.message} {problem.advice}" for problem in problems]
            assert all(any(said in text for text in texts) for said in example.messages)
        case Untouched():
            assert not problems
        case Rewrites():
            edits = [edit for problem in problems for edit in problem.fix]
            after = edit_text(script.module, edits)
            assert after == code_of(example.after)
            assert not problems_in(script_of(after), rule), "what is mended is not found any more"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
class TestEveryRule:
    def test_it_shows_a_wrong_script_and_a_right_one(self, rule: CheckRule) -> None:
        assert any(isinstance(example, (Flags, Rewrites)) for example in rule.examples)
        assert any(isinstance(example, Untouched) for example in rule.examples)
        assert rule.fixes == any(isinstance(example, Rewrites) for example in rule.examples)

    def test_its_page_has_the_fixed_headings_and_a_public_thread(self, rule: CheckRule) -> None:
        page = rule.page()
        headings = [line for line in page.splitlines() if line.startswith("## ")]

        assert headings == ["## What it does", "## Why", "## Safety", "## References"]
        assert re.search(
            r"https://(github\.com/[^/]+/[^/]+/(issues|pull)/\d+|discuss\.pytorch\.org/t/)", page
        )

    def test_it_is_named_after_its_class(self, rule: CheckRule) -> None:
        assert rule.name == re.sub("(?<!^)(?=[A-Z])", "-", type(rule).__name__).lower()


def test_codes_are_unique_and_of_the_family() -> None:
    codes = [rule.code for rule in RULES]

    assert sorted(set(codes)) == codes
    assert all(code.startswith("DDP6") for code in codes)
