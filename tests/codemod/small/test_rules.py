"""Every example of every rule of the new codemod."""

from __future__ import annotations

import pytest

from dp2ddp.codemod.apply import edit_text
from dp2ddp.codemod.plan import FilePlan, plan_file
from dp2ddp.codemod.rule import Example, Flags, Notes, Rewrites, Rule, Untouched, all_rules, code_of
from tests.codemod.nodes import nodes_of, spelled
from tests.codemod.small.scripts import module

RULES = all_rules()
EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.code}-{index}")
    for rule in RULES
    for index, example in enumerate(rule.examples)
]


def plan_of(text: str, *rules: Rule) -> FilePlan:
    return plan_file(module(text), rules, ())


def rewritten(plan: FilePlan) -> str:
    return edit_text(plan.module, plan.edits) if plan.edits else plan.module.source.text


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_an_example_holds(rule: Rule, example: Example) -> None:
    found = plan_of(code_of(example.before), rule)
    hazards, notes = found.plan.hazards, found.plan.notes
    match example:
        case Rewrites():
            assert rewritten(found) == code_of(example.after)
            assert not hazards
        case Untouched():
            assert rewritten(found) == found.module.source.text
            assert not hazards
            assert not notes
        case Notes():
            assert rewritten(found) == found.module.source.text
            assert any(example.message in note.because for note in notes)
        case Flags():
            assert any(example.message in hazard.because for hazard in hazards)


WITH_EXAMPLES = [rule for rule in RULES if rule.examples]


@pytest.mark.parametrize("rule", WITH_EXAMPLES, ids=lambda rule: rule.code)
class TestEveryRule:
    def test_it_shows_what_it_does_and_what_it_leaves_alone(self, rule: Rule) -> None:
        assert any(isinstance(example, (Rewrites, Flags, Notes)) for example in rule.examples)
        assert any(isinstance(example, Untouched) for example in rule.examples)

    def test_its_nodes_are_those_of_its_examples(self, rule: Rule) -> None:
        found: set[tuple[str, str]] = set()
        for example in rule.examples:
            planned = plan_of(code_of(example.before), rule)
            found |= set(nodes_of(planned.module, planned.plan))  # type: ignore[arg-type]  # a model's module does
        edited, flagged = ({name for kind, name in found if kind == which} for which in ("edit", "flag"))
        assert list(rule.nodes) == sorted(spelled(edited or flagged))

    def test_its_page_has_the_fixed_headings(self, rule: Rule) -> None:
        headings = [line for line in rule.page().splitlines() if line.startswith("## ")]
        assert headings == ["## What it does", "## Why", "## Safety", "## References"]

    def test_its_file_is_named_after_it(self, rule: Rule) -> None:
        words = rule.name.replace("-", "_")
        assert type(rule).__module__.rpartition(".")[2] == f"{rule.code.lower()}_{words}"


def test_codes_are_unique() -> None:
    codes = [rule.code for rule in RULES]
    assert sorted(set(codes)) == codes
