"""What a rule of the check is: one file with a code, a page, examples, and a question that it asks of one script."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from dp2ddp.codemod.edits import TextEdit
from dp2ddp.codemod.rule import DescribedRule, all_rules, rules_in
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level


@dataclass(frozen=True, eq=False)
class Problem:
    """Something that is wrong: what stands there, what to do about it, and the edits that do it without any risk."""

    node: ast.AST
    message: str
    advice: str
    fix: tuple[TextEdit, ...] = ()  # nothing that could change a training that runs


class CheckRule(DescribedRule):
    """A rule of the check. Subclasses are final: one a file, named after what is found.

    A `Flags` example is a script in which it is found, `Rewrites` is one that `--fix` mends, `Untouched` is a
    right one.
    """

    flagged_as = "Found"
    level: ClassVar[Level]
    fixes: ClassVar[bool] = False  # whether `--fix` mends some of it
    shown_once: ClassVar[bool] = False  # of what is one decision for a whole repository, people read one line

    def find(self, script: DDPScript) -> Iterator[Problem]:
        """The problems of one script, each proven from its text."""
        raise NotImplementedError

    @classmethod
    def about(cls) -> str:
        return "`dp2ddp check` finds it" + (", `--fix` mends it where that is safe." if cls.fixes else ".")


def described_rules() -> list[DescribedRule]:
    """The rules of the conversion and of the check, by code."""
    return sorted((*all_rules(), *check_rules()), key=lambda rule: rule.code)


@lru_cache
def check_rules() -> tuple[CheckRule, ...]:
    """Every rule of the check, by code: a rule exists by being a file in rules/."""
    return tuple(rules_in("dp2ddp.review.rules", CheckRule))
