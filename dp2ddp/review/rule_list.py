"""Every rule there is, by code."""

from __future__ import annotations

from functools import lru_cache

from dp2ddp.codemod.rule import DescribedRule, all_rules, rules_in
from dp2ddp.review.check_rule import CheckRule
from dp2ddp.review.rules.refused_by_torch import TABLE


def described_rules() -> list[DescribedRule]:
    """The rules of the conversion and of the check, by code."""
    return sorted((*all_rules(), *check_rules()), key=lambda rule: rule.code)


@lru_cache
def check_rules() -> tuple[CheckRule, ...]:
    """Every rule of the check, by code: a rule exists by being a file in rules/, or in the table of refused calls."""
    rules = (*rules_in("dp2ddp.review.rules", CheckRule), *(rule() for rule in TABLE))
    return tuple(sorted(rules, key=lambda rule: rule.code))
