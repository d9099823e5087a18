"""click's options of the fields of a family (dp2ddp/options.py)."""

from __future__ import annotations

import dataclasses
import functools
import math
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dp2ddp.cli._completion import rule_codes
from dp2ddp.errors import OptionError
from dp2ddp.options import MOST_DEVICES, VerifyOptions, declared
from dp2ddp.review.settings import UnknownCodeError, checked_codes

if TYPE_CHECKING:
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

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

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


def _answers(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """As they are written, once each is known to be one."""
    from dp2ddp.codemod.plans.acceptance import accept_option

    try:
        return tuple(accept_option(value).text for value in values)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _codes(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    try:
        return checked_codes((value or "").split(","))
    except UnknownCodeError as error:
        raise click.BadParameter(str(error)) from error


def options(family: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command these options; it is called with the object made of them, and with its other parameters."""

    def declare(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_options(**given: Any) -> None:
            own = {each.name: given.pop(each.name) for each in declared(family)}
            try:
                built = family(**own)
            except OptionError as error:
                raise click.UsageError(str(error)) from error
            command(built, **given)

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
    keywords = {**_by_type(each), "metavar": how.get("metavar"), "help": how["help"]}
    if each.default is dataclasses.MISSING:
        keywords["required"] = True
    elif each.default not in (None, ()) and each.default is not False:
        keywords["default"] = each.default
        keywords["show_default"] = "[default" not in how["help"]
    return click.option(*spellings, each.name, **keywords)


def _by_type(each: dataclasses.Field[Any]) -> Mapping[str, Any]:
    """What click has to know of a type, which is text here (PEP 563)."""
    how = each.metadata
    if "codes" in how:
        return {"callback": _codes, "shell_complete": rule_codes}
    if "choices" in how:
        return {"type": click.Choice(how["choices"])}
    words = {"type": Words()} if each.default is None else {"multiple": True, "callback": _answers}
    types: dict[str, Mapping[str, Any]] = {
        "bool": {"is_flag": True},
        "int": {"type": click.IntRange(how.get("least"), how.get("most"))},
        "float": {"type": Seconds()},
        "Path": {"type": click.Path(path_type=Path, **how.get("path", {}))},
        "int | Sequence[int]": {"type": Worlds()},
        "Sequence[str]": words,
    }
    return types[str(each.type).removesuffix(" | None").removeprefix("str | ")]


_ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "script": {"type": click.Path(path_type=Path)},
    "arguments": {"nargs": -1, "type": click.UNPROCESSED},
    "paths": {"nargs": -1, "metavar": "[PATHS]..."},
}

(accept_option,) = (_parameter(each) for each in declared(VerifyOptions) if each.name == "accept")
