"""What `run` and `verify` share: the script named on the command line, and its conversion on the way."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dp2ddp.errors import Dp2DdpError, SourceError

if TYPE_CHECKING:
    from dp2ddp.codemod.convert import Conversion
    from dp2ddp.runtime.run import Run
    from dp2ddp.runtime.stacks import Frame


def existing_script(script: Path) -> None:
    """A SourceError of one line if it cannot be read."""
    from dp2ddp.source.files import read_source

    if str(script) == "-":
        raise SourceError("a script from stdin cannot be run: it needs a folder to run in. Save it to a file")
    read_source(script)


def script_file(script: Path, as_module: bool) -> Path:
    """The script that is meant, a file or (`as_module`) a module; a SourceError of one line if it cannot be read."""
    from dp2ddp.source.projects import module_file

    path = module_file(str(script)) if as_module else script
    existing_script(path)
    return path


def module_of(script: Path, as_module: bool) -> str | None:
    """What a script is called that is started with -m; SourceError if it cannot be from the current folder."""
    from dp2ddp.source.files import read_source
    from dp2ddp.source.projects import entry_module

    name = entry_module(read_source(script), as_module)
    if not name:
        return None
    root = script.resolve().parents[name.count(".")]
    if root != Path.cwd().resolve():
        raise SourceError(
            f"{script}: has relative imports, so it is started with -m {name}; start dp2ddp in {root}, too"
        )
    return name


def conversion_of(script: Path, as_module: bool = False) -> Conversion:
    """The conversion; with open hazards they are shown and the command ends with 1."""
    from dp2ddp.codemod.convert import convert
    from dp2ddp.report.conversion import conversion_text
    from dp2ddp.source.projects import read_project

    conversion = convert(read_project(script, as_module))
    if conversion.hazards:
        click.echo(conversion_text(conversion, None), err=True, nl=False)
        click.echo(
            f"dp2ddp: {script} cannot be converted without you; verify your own version with --converted",
            err=True,
        )
        sys.exit(1)
    return conversion


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


@contextlib.contextmanager
def converted_beside(script: Path, mode: str, as_module: bool = False) -> Iterator[Path]:
    """The script that a mode can run; a conversion lies beside the original for as long, for imports and __file__."""
    conversion = conversion_of(script, as_module) if mode == "ddp" else None
    if conversion is None or not conversion.changed:
        yield script
        return
    if conversion.is_project:
        raise SourceError(
            f"{script}: local modules must change too; convert the project first (dp2ddp convert {script} -o "
            "FOLDER), then run it there"
        )
    path = _temporary_beside(script, conversion.entry.data)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def in_terms_of(script: Path, run: Run) -> Run:
    """A failed run whose stands name lines of the user's script, not of the temporary file that was run."""
    ran = Path(run.stage.script)
    if run.failure is None or not run.failure.stands or ran == script.absolute():
        return run
    origin = _origins(script.read_bytes().splitlines(), ran.read_bytes().splitlines())

    def moved(frame: Frame) -> Frame:
        return replace(frame, file=str(script), line=origin[frame.line]) if frame.file == str(ran) else frame

    stands = (replace(one, frames=tuple(map(moved, one.frames))) for one in run.failure.stands)
    return replace(run, failure=replace(run.failure, stands=tuple(stands)))


def _origins(before: list[bytes], after: list[bytes]) -> list[int]:
    """For every line number of `after`, the one that it comes from."""
    origins = [0]
    for _, low, high, start, end in difflib.SequenceMatcher(None, before, after, False).get_opcodes():
        origins += [min(low + 1 + number, max(high, 1)) for number in range(end - start)]
    return origins


def _temporary_beside(script: Path, data: bytes) -> Path:
    try:
        number, name = tempfile.mkstemp(prefix=f"{script.stem}_ddp_", suffix=".py", dir=script.parent)
    except OSError as error:
        raise SourceError(
            f"{script.parent}: the converted script has to lie beside the original, and cannot be written there"
            f" ({error.strerror}). Convert it first: dp2ddp convert {script} -o PATH"
        ) from error
    with os.fdopen(number, "wb") as file:
        file.write(data)
    return Path(name)
