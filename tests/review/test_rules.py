"""Every example of every rule of the check, and what all of them have in common."""

from __future__ import annotations

import re

import pytest

from dp2ddp.codemod.rule import Example, Flags, Untouched, code_of
from dp2ddp.review.check_rule import CheckRule, check_rules
from tests.review.finding import problems_in

RULES = check_rules()
EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.code}-{index}")
    for rule in RULES
    for index, example in enumerate(rule.examples)
]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_an_example_holds(rule: CheckRule, example: Example) -> None:
    problems = problems_in(code_of(example.before), rule)

    match example:
        case Flags():
            texts = [f"{problem.message} {problem.advice}" for problem in problems]
            assert all(any(said in text for text in texts) for said in example.messages)
        case Untouched():
            assert not problems


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
class TestEveryRule:
    def test_it_shows_a_wrong_script_and_a_right_one(self, rule: CheckRule) -> None:
        assert any(isinstance(example, Flags) for example in rule.examples)
        assert any(isinstance(example, Untouched) for example in rule.examples)

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
