"""What the rules of the check say of a text."""

from __future__ import annotations

from dp2ddp.codemod.rule import code_of
from dp2ddp.review.check_rule import CheckRule, check_rules
from dp2ddp.review.hits import check_file
from dp2ddp.review.own_file import OwnFile
from dp2ddp.review.problems import PlacedProblem
from dp2ddp.source.files import SourceFile


def script_of(text: str) -> OwnFile:
    return OwnFile(SourceFile(None, text))


def found_in(text: str) -> set[str]:
    """The codes of what is found in a script, which may be indented as a whole."""
    return {problem.code for problem in problems_in(code_of(text), *check_rules())}


def problems_in(text: str, *rules: CheckRule) -> list[PlacedProblem]:
    """What rules find; none of them has failed."""
    found = check_file(OwnFile(SourceFile(None, text)), rules)
    assert not found.unread
    return [problem for problem in found.problems if problem.code in {rule.code for rule in rules}]
