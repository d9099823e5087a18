"""`dp2ddp rules`: the list of rules, or the page of one."""

from __future__ import annotations

from pathlib import Path

import click

from dp2ddp.cli._completion import rule_codes
from dp2ddp.errors import did_you_mean


@click.command("rules")
@click.argument("code", required=False, shell_complete=rule_codes)
@click.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path),
    help="Write every page into this folder (docs/rules).",
)
def command(code: str | None, folder: Path | None) -> None:
    """List the rules of convert and of check, or of a family (DDP6), or show the page of one (DDP601)."""
    from dp2ddp.codemod.document import rule_text, write_pages
    from dp2ddp.review.check_rule import described_rules

    rules = described_rules()
    if folder:
        for path in write_pages(rules, folder):
            click.echo(path)
        return
    matching = [rule for rule in rules if rule.code.startswith((code or "").upper())]
    if code is None or len(matching) > 1:
        for rule in matching:
            click.echo(f"{rule.code}  {rule.name:<26} {rule.summary()}")
        return
    if not matching:
        meant = did_you_mean(code.upper(), [rule.code for rule in rules])
        raise click.UsageError(f"{code}: no such rule{meant}; `dp2ddp rules` lists them")
    click.echo(rule_text(matching[0]), nl=False)
