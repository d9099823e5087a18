"""click's options of the fields of a family (dp2ddp/options.py), and what a shell offers behind the tab key."""

from __future__ import annotations

import dataclasses
import functools
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from dp2ddp.errors import OptionError
from dp2ddp.options import MOST_DEVICES, declared

if TYPE_CHECKING:
    from dp2ddp.codemod.rule import DescribedRule

    _Numbers = click.ParamType[tuple[int, ...]]
    _Words = click.ParamType[tuple[str, ...]]
else:
    _Numbers = _Words = click.ParamType  # which click 8.1 does not let anybody subscript


class Worlds(_Numbers):
    """`2` or `2,3,4`."""

    name = "N[,N...]"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        parts = str(value).split(",")
        if not all(part.strip().isdecimal() and 0 < int(part) <= MOST_DEVICES for part in parts):
            self.fail(f"{value!r}: numbers of devices from 1 to {MOST_DEVICES}, like 2 or 2,3,4", param, ctx)
        return tuple(int(part) for part in parts)


class Seconds(click.FloatRange):
    """Some: `nan` compares with nothing, so nothing would ever last longer."""

    def __init__(self, most: float | None = None) -> None:
        super().__init__(min=0, min_open=True, max=most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return seconds


class Words(_Words):
    """As a shell takes them: `--distributed --name 'a b'`."""

    name = "TEXT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        try:
            return tuple(shlex.split(str(value)))
        except ValueError as error:
            self.fail(f"{value!r}: {str(error).lower()}", param, ctx)


class Option(click.Option):
    """`typed`: what it does that a pyproject.toml may not ask for (_defaults.py); empty: it may."""

    def __init__(self, *spellings: Any, typed: str = "", **how: Any) -> None:
        super().__init__(*spellings, **how)
        self.typed = typed


def _codes(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(code.strip().upper() for code in (value or "").split(",") if code.strip())


def options(family: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command these options; it is called with the object made of them, and with its other parameters.

    The objects of several families come in the order of `--help`.
    """

    def declare(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_options(*others: Any, **given: Any) -> None:
            own = {each.name: given.pop(each.name) for each in declared(family)}
            try:
                command(*others, family(**own), **given)
            except OptionError as error:
                raise click.UsageError(str(error)) from error

        made: Callable[..., None] = with_options
        for each in reversed(list(declared(family))):
            made = _parameter(each)(made)
        return made

    return declare


def _parameter(each: dataclasses.Field[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    how = each.metadata
    if "is_argument" in how:
        return click.argument(each.name, **_ARGUMENTS[each.name])
    spellings = how.get("spellings") or (f"--{each.name.replace('_', '-')}",)
    keywords = {**_by_type(each), **{name: how[name] for name in ("metavar", "help", "typed") if name in how}}
    if each.default is dataclasses.MISSING:
        keywords["required"] = True
    elif each.default not in (None, ()) and each.default is not False:
        keywords["default"] = each.default
        keywords["show_default"] = "[default" not in how["help"]
    return click.option(*spellings, each.name, cls=Option, **keywords)


def _by_type(each: dataclasses.Field[Any]) -> Mapping[str, Any]:
    """What click has to know of a type, which is text here (PEP 563)."""
    how = each.metadata
    if "codes" in how:
        return _CODES[how["codes"]]
    if "choices" in how:
        return {"type": click.Choice(how["choices"])}
    words = {"type": Words()} if each.default is None else {"multiple": True}
    types: dict[str, Mapping[str, Any]] = {
        "bool": {"is_flag": True},
        "int": {"type": click.IntRange(how.get("least"), how.get("most"))},
        "float": {"type": Seconds(how.get("most"))},
        "str": {},
        "Path": {"type": click.Path(path_type=Path, **how.get("path", {}))},
        # as it is written (`there/` is a folder); whoever reads it says better why it cannot
        "str | Path": {"type": click.Path(readable=False, **how.get("path", {}))},
        "Sequence[Path]": {"type": click.Path(path_type=Path), "multiple": True},
        "int | Sequence[int]": {"type": Worlds()},
        "Sequence[str]": words,
    }
    return types[str(each.type).removesuffix(" | None")]


def rule_codes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Codes of rules of the conversion and of the check, with what each is about."""
    from dp2ddp.review.check_rule import described_rules

    return _items(described_rules(), incomplete)


def conversion_codes(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Codes of rules of the conversion."""
    from dp2ddp.codemod.rule import all_rules

    return _items(all_rules(), incomplete)


def _items(rules: Sequence[DescribedRule], incomplete: str) -> list[CompletionItem]:
    """Behind a comma, one more of them."""
    before, comma, begun = incomplete.rpartition(",")
    return [
        CompletionItem(before + comma + rule.code, help=rule.summary())
        for rule in rules
        if rule.code.startswith(begun.upper())
    ]


_CODES: Mapping[str, Mapping[str, Any]] = {
    "check": {"callback": _codes, "shell_complete": rule_codes},
    "conversion": {"callback": _codes, "shell_complete": conversion_codes},
}
_ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "script": {"type": click.Path(readable=False)},
    "arguments": {"nargs": -1, "type": click.UNPROCESSED},
    "paths": {"nargs": -1, "metavar": "[PATHS]..."},
}
