"""What `run` needs to know of the script named on the command line."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dp2ddp.errors import Dp2DdpError
from dp2ddp.trial.scripts import conversion_of, mended_files_of

if TYPE_CHECKING:
    from dp2ddp.codemod.plans.acceptance import AcceptOption


def warn(text: str) -> None:
    """A line on stderr."""
    click.echo(f"dp2ddp: {text}", err=True)


def devices_named(script: Path, as_module: bool = False) -> int | None:
    """How many devices the script's own device_ids name, where that can be read off."""
    from dp2ddp.codemod.convert import convert
    from dp2ddp.source.projects import read_project
    from dp2ddp.source.read_source import read_source

    if "device_ids" not in read_source(script).text:
        return None
    with contextlib.suppress(Dp2DdpError):  # Python itself says better what is wrong with it, when it runs
        return convert(read_project(script, as_module)).world
    return None


@dataclass(frozen=True)
class Runnable:
    """What runs in the place of the script's files, and under which environment variables."""

    files: Mapping[Path, bytes]
    settings: Mapping[str, str]


def runnable(
    script: Path, mode: str, as_module: bool = False, accept: tuple[AcceptOption, ...] = ()
) -> Runnable:
    """The script as a mode can run it: mended where it is too old, and converted for `ddp`."""
    from dp2ddp.codemod.helpers import HelperPlace
    from dp2ddp.source.projects import read_project

    project = read_project(script, as_module)
    # without a file of ours in the user's folder
    conversion = conversion_of(project, HelperPlace.PACKAGE, accept) if mode == "ddp" else None
    if conversion is None or not conversion.changed:
        settings = conversion.settings if conversion else {}  # of one that is converted already, too
        return Runnable(mended_files_of(project, warn), settings)
    return Runnable(conversion.written_files, conversion.settings)
