"""`dp2ddp rules`: the list of rules, or the page of one."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("rules")
@click.argument("code", required=False)
@click.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path),
    help="Write every page into this folder (docs/rules).",
)
def command(code: str | None, folder: Path | None) -> None:
    """List the conversion rules, or show the page of one (CODE)."""
    from dp2ddp.codemod.document import GENERATED, rule_page, write_pages
    from dp2ddp.codemod.rule import all_rules

    rules = all_rules()
    if folder:
        for path in write_pages(rules, folder):
            click.echo(path)
        return
    if code is None:
        for rule in rules:
            click.echo(f"{rule.code}  {rule.name:<26} {rule.summary()}")
        return
    found = [rule for rule in rules if rule.code == code.upper()]
    if not found:
        raise click.UsageError(f"{code}: no such rule; `dp2ddp rules` lists them")
    click.echo(rule_page(found[0]).removeprefix(f"{GENERATED}\n"), nl=False)
