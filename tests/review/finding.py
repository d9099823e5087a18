"""What the rules of the check say of a text."""

from __future__ import annotations

from dp2ddp.codemod.rule import code_of
from dp2ddp.review.check_rule import check_rules
from dp2ddp.review.hits import problems_of
from dp2ddp.review.own_file import OwnFile
from dp2ddp.source.files import SourceFile


def script_of(text: str) -> OwnFile:
    return OwnFile(SourceFile(None, text))


def found_in(text: str) -> set[str]:
    """The codes of what is found in a script, which may be indented as a whole."""
    return {rule.code for rule, _ in problems_of(script_of(code_of(text)), check_rules())}
