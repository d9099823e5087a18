"""Every example of every rule of the exact style, and what the rules of all styles have in common."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import pytest

from dp2ddp.codemod.looks.wrapper import Choice
from dp2ddp.codemod.plans.plan import plan_file
from dp2ddp.codemod.plans.planned import Plan
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import (
    Example,
    Flags,
    Notes,
    Rewrites,
    Rule,
    Untouched,
    all_rules,
    code_of,
    diff,
    flags,
    notes,
    pick_rules,
    rules_of_style,
)
from dp2ddp.codemod.writing.apply import edit_text
from dp2ddp.errors import OptionError
from dp2ddp.styles import EXACT
from tests.codemod.programs import module

RULES = rules_of_style(EXACT)
CASES = Path(__file__).with_name("rule_cases")
KINDS = {"diff": diff, "flags": flags, "notes": notes, "untouched": Untouched}


def all_examples(rule: Rule) -> list[Example]:
    """Those of its page, and further cases: behind `== KIND` what a rule's file would give `KIND(...)`."""
    file = CASES / f"{rule.code}.txt"
    _, *parts = re.split(r"^== (\w+)\n", file.read_text() if file.exists() else "", flags=re.MULTILINE)
    return [*rule.examples, *(KINDS[kind](text) for kind, text in zip(parts[::2], parts[1::2], strict=True))]


EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.code}-{index}")
    for rule in RULES
    for index, example in enumerate(all_examples(rule))
]


def plan_of(text: str, *rules: Rule) -> Plan:
    return plan_file(module(text), rules, ())


def rewritten(plan: Plan) -> str:
    return edit_text(plan.module, plan.text_edits) if plan.edits else plan.module.source.text


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_an_example_holds(rule: Rule, example: Example) -> None:
    found = plan_of(code_of(example.before), rule)
    hazards, notes = found.hazards, found.notes
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
            assert all(any(said in note.because for note in notes) for said in example.messages)
        case Flags():
            assert all(any(said in hazard.because for hazard in hazards) for said in example.messages)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
class TestEveryRule:
    def test_it_shows_what_it_does_and_what_it_leaves_alone(self, rule: Rule) -> None:
        assert any(isinstance(example, (Rewrites, Flags, Notes)) for example in rule.examples)
        assert any(isinstance(example, Untouched) for example in rule.examples)

    def test_its_page_has_the_fixed_headings(self, rule: Rule) -> None:
        headings = [line for line in rule.page().splitlines() if line.startswith("## ")]

        assert headings == ["## What it does", "## Why", "## Safety", "## References"]

    def test_its_file_is_named_after_it(self, rule: Rule) -> None:
        words = rule.name.replace("-", "_")

        assert type(rule).__module__.rpartition(".")[2] == f"{rule.code.lower()}_{words}"


def test_codes_are_unique() -> None:
    codes = [rule.code for rule in all_rules()]

    assert sorted(set(codes)) == codes


def test_no_two_reasons_have_one_name() -> None:
    """Programs know a reason by it; the only one of a rule is called as the rule is."""
    homes = {name: home for name, home in sys.modules.items() if name.startswith("dp2ddp.codemod.")}
    reasons = {each for home in homes.values() for each in vars(home).values() if isinstance(each, Reason)}
    names = [each.name for each in reasons] + [each.reason for each in Choice]

    assert len(names) > 60
    assert sorted(set(names)) == sorted(names)
    assert all(re.fullmatch("[a-z0-9]+(-[a-z0-9]+)+|debugger", name) for name in names)


def test_the_order_of_the_rules_does_not_matter() -> None:
    text = "import torch\n" + "\n".join(map(_body, RULES))
    expected = rewritten(plan_of(text, *RULES))
    for seed in range(20):
        shuffled = list(RULES)
        random.Random(seed).shuffle(shuffled)
        assert rewritten(plan_of(text, *shuffled)) == expected


def _body(rule: Rule) -> str:
    return "\n".join(
        code_of(example.before) for example in all_examples(rule) if isinstance(example, Rewrites)
    )


def test_a_comment_silences_a_rule_on_its_line() -> None:
    wrap = "import os\nimport torch\nnet = torch.nn.DataParallel(net)\n"
    text = f'{wrap}os.mkdir("a")  # dp2ddp: ignore[DDP503]\nos.mkdir("b")\n'
    planned = plan_of(text, *pick_rules(RULES, ("DDP503",), ()))

    assert [edit.line for edit in planned.edits] == [5]


def test_families_pick_rules() -> None:
    assert {rule.code[:4] for rule in pick_rules(RULES, ("DDP1",), ())} == {"DDP1"}
    assert "DDP101" not in {rule.code for rule in pick_rules(RULES, (), ("DDP1",))}


def test_an_unknown_code_is_an_error() -> None:
    with pytest.raises(OptionError, match="DDP777: no such rule"):
        pick_rules(RULES, ("DDP777",), ())
