"""The script that somebody named, and its conversion on the way."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dp2ddp.errors import HazardError, SourceError
from dp2ddp.installed import require_what_runs_need
from dp2ddp.source.files import SourceFile
from dp2ddp.source.old_code import mended_files
from dp2ddp.source.parsing import parse
from dp2ddp.source.projects import Project, entry_module, module_file, python_path
from dp2ddp.source.read_source import read_source

if TYPE_CHECKING:
    from dp2ddp.codemod.conversion import Conversion
    from dp2ddp.codemod.helpers import HelperPlace
    from dp2ddp.codemod.plans.acceptance import AcceptOption


_STARTS = {"spawn", "start_processes", "notebook_launcher"}  # ranks; of torch.multiprocessing, of Accelerate


def existing_script(script: str | Path) -> None:
    """A SourceError of one line if it cannot be read."""
    if str(script) == "-":
        raise SourceError("a script from stdin cannot be run: it needs a folder to run in. Save it to a file")
    read_source(script)


def script_file(script: str | Path, as_module: bool) -> Path:
    """The script that is meant, a file or (`as_module`) a module; a SourceError of one line if it cannot be read."""
    path = module_file(str(script)) if as_module else Path(script)
    existing_script(path)
    return path


def ready_to_run(
    command: str, script: str | Path, as_module: bool = False, converted: Path | None = None
) -> Path:
    """The script that is meant, once it (and the other version of it) can be read, and all that runs need is there.

    What was mistyped is said before what is not installed: SourceError, MissingError.
    """
    path = script_file(script, as_module)
    if converted is not None:
        existing_script(converted)
    require_what_runs_need(command)
    return path


def module_of(script: Path, as_module: bool) -> str | None:
    """What a script is called that is started with -m; SourceError if it cannot be from the current folder."""
    name = entry_module(read_source(script), as_module)
    if not name:
        return None
    root = script.resolve().parents[name.count(".")]
    if root not in (Path.cwd().resolve(), *python_path()):
        raise SourceError(
            f"{script}: has relative imports, so it is started with -m {name}; start dp2ddp in {root}, too"
        )
    return name


def conversion_of(
    project: Project, helpers: HelperPlace | None = None, accept: tuple[AcceptOption, ...] = ()
) -> Conversion:
    """The conversion, its helpers beside the script or in `helpers`; a HazardError if it has open hazards.

    What a library does otherwise on ranks does so in the script as it is: that is run, and `verify` judges it.
    """
    from dp2ddp.codemod.conversion import Options
    from dp2ddp.codemod.convert import convert
    from dp2ddp.codemod.helpers import HelperPlace
    from dp2ddp.codemod.rules.ddp305_library_differs import LibraryDiffers
    from dp2ddp.report.conversion_report import conversion_text

    options = Options(helpers=helpers or HelperPlace.BESIDE, renew_helpers=True, accept=accept)
    conversion = convert(project, options)
    if any(each.code != LibraryDiffers.code for each in conversion.hazards):
        raise HazardError(
            f"{project.entry.name} cannot be converted without you: answer its hazards (--accept), or verify a version "
            "of your own with --converted",
            conversion_text(conversion, None),
        )
    return conversion


def hidden_library(project: Project) -> str:
    """The library that wraps a script's models by itself, and trains them by DDP under torchrun; "" if none."""
    from dp2ddp.codemod.looks.hidden_wraps import library_wraps, may_wrap_hidden
    from dp2ddp.codemod.reading import read_program

    if not any(map(may_wrap_hidden, project.texts)):
        return ""  # most scripts: of a large program, reading it once more takes seconds
    return next((wrap.library.name for wrap in library_wraps(read_program(project))), "")


def mended_files_of(project: Project, progress: Callable[[str], None]) -> Mapping[Path, bytes]:
    """The files that no current Python reads as they stand, as they run; `progress` gets a line for each."""
    for line in _left_out(project.entry):
        progress(line)
    files = mended_files(project)
    old = [path for path in files if path.suffix != ".ipynb"]
    if old:
        names = ", ".join(os.path.relpath(path) for path in old)
        progress(
            f"{names}: `async` is a keyword since Python 3.7; the original runs with torch's new name for it, "
            "non_blocking"
        )
    return files


def _left_out(source: SourceFile) -> Iterator[str]:
    """What a notebook does, and the script that runs in its place does not."""
    for aside in source.cells.asides if source.cells else ():
        if aside.advice:
            yield f"{source.place(aside.line).in_file(source.name, 1)}: left out: {aside.because}; {aside.advice}"


def starts_its_ranks(script: Path) -> bool:
    """Whether a version of the user's own calls what starts ranks; or makes processes that join a group, and asks
    nobody for its rank."""
    nodes = list(ast.walk(parse(read_source(script))))
    called = {ast.unparse(node.func).rpartition(".")[2] for node in nodes if isinstance(node, ast.Call)}
    constants = {node.value for node in nodes if isinstance(node, ast.Constant)}
    joins = {"Process", "init_process_group"} <= called
    return bool(called & _STARTS) or (joins and not constants & {"RANK", "LOCAL_RANK"})


def folder_of(script: Path) -> Path:
    """Where it runs: the current folder; a notebook in its own, as Jupyter does."""
    return (script.parent if script.suffix == ".ipynb" else Path.cwd()).resolve()
