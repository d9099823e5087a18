"""`dp2ddp rules`: the list of rules, or the page of one."""

from __future__ import annotations

import click

from dp2ddp.cli._options import rule_codes
from dp2ddp.errors import did_you_mean


@click.command("rules")
@click.argument("code", required=False, shell_complete=rule_codes)
def command(code: str | None) -> None:
    """List the rules of convert and of check, or of a family (DDP6), or show the page of one (DDP601)."""
    from dp2ddp.codemod.rule import rule_text
    from dp2ddp.review.check_rule import described_rules

    rules = described_rules()
    matching = [rule for rule in rules if rule.code.startswith((code or "").upper())]
    if code is None or len(matching) > 1:
        for rule in matching:
            click.echo(f"{rule.code}  {rule.name:<26} {rule.summary()}")
        return
    if not matching:
        meant = did_you_mean(code.upper(), [rule.code for rule in rules])
        raise click.UsageError(f"{code}: no such rule{meant}; `dp2ddp rules` lists them")
    click.echo(rule_text(matching[0]), nl=False)
