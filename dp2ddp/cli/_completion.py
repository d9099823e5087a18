"""What a shell offers when somebody presses the tab key; click asks (docs/installing.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from dp2ddp.codemod.rule import DescribedRule


def rule_codes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Codes of rules of the conversion and of the check, with what each is about."""
    from dp2ddp.review.check_rule import described_rules

    return _codes(described_rules(), incomplete)


def conversion_codes(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Codes of rules of the conversion."""
    from dp2ddp.codemod.rule import all_rules

    return _codes(all_rules(), incomplete)


def _codes(rules: Sequence[DescribedRule], incomplete: str) -> list[CompletionItem]:
    """Behind a comma, one more of them."""
    before, comma, begun = incomplete.rpartition(",")
    return [
        CompletionItem(before + comma + rule.code, help=rule.summary())
        for rule in rules
        if rule.code.startswith(begun.upper())
    ]
