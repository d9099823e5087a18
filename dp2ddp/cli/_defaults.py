"""`[tool.dp2ddp.verify]` and the like in pyproject.toml: other defaults for the options of a command.

The file may be a stranger's, of a repository that was cloned a minute ago. So it says how something is done, and never
makes a plain command overwrite, write, open or start what it would not without it: that stands on the command line
(`typed` of an option says so, and why).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from dp2ddp.cli._options import Option, Seconds, Worlds
from dp2ddp.errors import SourceError, did_you_mean
from dp2ddp.source.pyproject import FILE, find_table, path_below, says_unread


def read_defaults(
    commands: Mapping[str, str], name: str | None, warn: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """What the nearest pyproject.toml says of one command's options, as click's `default_map`.

    SourceError for an option that the command has not, or that only the command line may say, and for a value of
    another kind. Names are those of the long options, as `only-gradients`. `warn` gets a line for a file that is not
    read.
    """
    if name is None or name not in commands:
        return {}
    nearest = find_table(Path.cwd())
    if nearest.unread and name != "check":  # which searches by its PATHS, and says so itself
        warn(says_unread(nearest.unread))
    table = nearest.content.get(name)
    if nearest.path is None or table is None:
        return {}
    if not isinstance(table, dict):
        raise SourceError(f"{nearest.path}: [tool.dp2ddp.{name}] is a table: option = value")
    options = _options(importlib.import_module(f"dp2ddp.cli.{name}").command)
    for key in table:
        _refuse(nearest.path, name, key, options)
    return {
        name: {
            str(options[key].name): _value(nearest.path, f"[tool.dp2ddp.{name}] {key}", options[key], value)
            for key, value in table.items()
        }
    }


def _options(command: click.Command) -> dict[str, Option]:
    """By each way to spell them."""
    return {
        spelling.lstrip("-"): parameter
        for parameter in command.params
        if isinstance(parameter, Option)
        for spelling in (*parameter.opts, *parameter.secondary_opts)
    }


def _refuse(path: Path, name: str, key: str, options: Mapping[str, Option]) -> None:
    """An error, and no silence: who wrote it there would wait for what never comes."""
    if key not in options:
        allowed = [spelling for spelling, option in options.items() if not option.typed]
        meant = did_you_mean(key, allowed)
        raise SourceError(
            f"{path}: dp2ddp {name} has no option {key!r}{meant}; see [tool.dp2ddp.{name}] in {FILE}"
        )
    if options[key].typed:
        spelling = max(options[key].opts, key=len)
        raise SourceError(
            f"{path}: [tool.dp2ddp.{name}] {key}: {spelling} {options[key].typed}, so it counts on the command line "
            "only; take it out of this file"
        )


def _value(path: Path, key: str, option: Option, value: object) -> object:
    """What the option gets; a path is named from the file's folder on, and lies below it."""
    if isinstance(option.type, click.Path):
        return str(path_below(path, key, value))
    kinds, words = _kinds(option)
    if (
        type(value) not in kinds
        or isinstance(value, list)
        and not all(isinstance(each, str) for each in value)
    ):
        raise SourceError(f"{path}: {key} is {words}")
    return value


def _kinds(option: Option) -> tuple[tuple[type, ...], str]:
    """What TOML may say of an option, exactly: `true` is no number; a text is read as on the command line."""
    if option.is_flag:
        return (bool,), "true or false"
    if option.multiple:
        return (list,), "a list of texts"
    numbers: Mapping[type, tuple[tuple[type, ...], str]] = {
        click.IntRange: ((int, str), "a whole number"),
        Seconds: ((int, float, str), "a number of seconds"),
        Worlds: ((int, str), 'a whole number, or a text like "2,3"'),
    }
    return numbers.get(type(option.type), ((str,), "a text, in quotes"))
