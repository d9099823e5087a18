"""`[tool.dp2ddp.verify]` and the like in pyproject.toml: other defaults for the options of a command."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from dp2ddp.errors import SourceError, did_you_mean
from dp2ddp.review.settings import FILE, find_table


def read_defaults(commands: Mapping[str, str], name: str | None) -> dict[str, dict[str, Any]]:
    """What the nearest pyproject.toml says of one command's options, as click's `default_map`.

    SourceError for an option that the command has not. Names are those of the long options, as `only-gradients`.
    """
    place = find_table(Path.cwd()) if name in commands else None
    table = place[1].get(name) if place and name else None
    if place is None or name is None or table is None:
        return {}
    path = place[0]
    if not isinstance(table, dict):
        raise SourceError(f"{path}: [tool.dp2ddp.{name}] is a table: option = value")
    command: click.Command = importlib.import_module(f"dp2ddp.cli.{name}").command
    options = {
        spelling.lstrip("-"): str(parameter.name)
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for spelling in (*parameter.opts, *parameter.secondary_opts)
    }
    for key in table:
        if key not in options:
            meant = did_you_mean(key, options)
            raise SourceError(
                f"{path}: dp2ddp {name} has no option {key!r}{meant}; see [tool.dp2ddp.{name}] in {FILE}"
            )
    return {name: {options[key]: value for key, value in table.items()}}
