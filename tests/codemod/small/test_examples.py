"""The examples on the pages of the rules are true."""

from __future__ import annotations

import pytest

from dp2ddp.codemod.apply import edit_text
from dp2ddp.codemod.rule import Example, Flags, Notes, Rewrites, Untouched, code_of
from dp2ddp.codemod.small.convert import OF_OTHERS
from dp2ddp.codemod.small.plan import plan_file
from dp2ddp.codemod.small.rule import Rule, all_rules
from tests.codemod.small.scripts import module

EXAMPLES = [(rule, example) for rule in all_rules() for example in rule.examples]


@pytest.mark.parametrize(
    ("rule", "example"), EXAMPLES, ids=[f"{rule.code}-{place}" for place, (rule, _) in enumerate(EXAMPLES)]
)
def test_examples(rule: Rule, example: Example) -> None:
    plan = plan_file(module(code_of(example.before)), [rule], ()).plan
    hazards, notes = ([each.because for each in kind] for kind in (plan.hazards, plan.notes))
    match example:
        case Flags(message=message):
            assert any(message in said for said in hazards), hazards
        case Notes(message=message):
            assert not hazards
            assert any(message in said for said in notes), notes
        case Rewrites(before=before, after=after):
            assert not hazards
            home = module(code_of(before))
            assert edit_text(home, plan_file(home, [rule], ()).edits) == code_of(after)
        case Untouched():
            assert (hazards, notes, plan.edits) == ([], [], ())


def test_the_rules_that_look_at_other_programs_are_there() -> None:
    assert {*OF_OTHERS} <= {rule.code for rule in all_rules()}
