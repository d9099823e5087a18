"""Every rule there is, by code."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

from dp2ddp.codemod.rule import DescribedRule, all_rules
from dp2ddp.review import rules
from dp2ddp.review.check_rule import CheckRule


def described_rules() -> list[DescribedRule]:
    """The rules of the conversion and of the check, by code."""
    return sorted((*all_rules(), *check_rules()), key=lambda rule: rule.code)


@lru_cache
def check_rules() -> tuple[CheckRule, ...]:
    """Every rule of the check, by code: a rule exists by standing in a file of rules/."""
    names = sorted(each.name for each in pkgutil.iter_modules(rules.__path__))
    members = (vars(importlib.import_module(f"{rules.__name__}.{name}")) for name in names)
    own = (each for found in members for each in found.values() if isinstance(each, type))
    kinds = {each for each in own if issubclass(each, CheckRule) and hasattr(each, "code")}
    return tuple(sorted((kind() for kind in kinds), key=lambda rule: rule.code))
