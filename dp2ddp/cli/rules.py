"""`dp2ddp rules`: the list of rules, or the page of one."""

from __future__ import annotations

from pathlib import Path

import click

from dp2ddp.cli._completion import rule_codes


@click.command("rules")
@click.argument("code", required=False, shell_complete=rule_codes)
@click.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path),
    help="Write every page into this folder (docs/rules).",
)
def command(code: str | None, folder: Path | None) -> None:
    """List the rules of convert and of check, or show the page of one (CODE)."""
    from dp2ddp.codemod.document import rule_text, write_pages
    from dp2ddp.review.check_rule import described_rules

    rules = described_rules()
    if folder:
        for path in write_pages(rules, folder):
            click.echo(path)
        return
    if code is None:
        for rule in rules:
            click.echo(f"{rule.code}  {rule.name:<26} {rule.summary()}")
        return
    matching = [rule for rule in rules if rule.code == code.upper()]
    if not matching:
        raise click.UsageError(f"{code}: no such rule; `dp2ddp rules` lists them")
    click.echo(rule_text(matching[0]), nl=False)
