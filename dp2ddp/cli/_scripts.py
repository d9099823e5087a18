"""What `run` needs to know of the script named on the command line."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from dp2ddp.errors import Dp2DdpError
from dp2ddp.trial.scripts import conversion_of, mended_files_of


def warn(text: str) -> None:
    """A line on stderr."""
    click.echo(f"dp2ddp: {text}", err=True)


def devices_named(script: Path, as_module: bool = False) -> int | None:
    """How many devices the script's own device_ids name, where that can be read off."""
    from dp2ddp.codemod.convert import convert
    from dp2ddp.source.files import read_source
    from dp2ddp.source.projects import read_project

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


def runnable(script: Path, mode: str, as_module: bool = False) -> Runnable:
    """The script as a mode can run it: mended where it is too old, and converted for `ddp`."""
    from dp2ddp.source.projects import read_project

    project = read_project(script, as_module)
    conversion = conversion_of(project, imports=True) if mode == "ddp" else None
    if conversion is None or not conversion.changed:
        return Runnable(mended_files_of(project, warn), {})
    files = {one.before.path: one.data for one in conversion.changed_files if one.before.path}
    return Runnable(files, conversion.settings)
