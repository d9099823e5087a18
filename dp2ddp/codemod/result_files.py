"""Where a conversion is written: beside the script, in a copy of the project, in place, or as a notebook."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dp2ddp.codemod.convert import Conversion
from dp2ddp.errors import OptionError, SourceError
from dp2ddp.source.files import SourceFile

if TYPE_CHECKING:
    from dp2ddp.copies.project import Wishes

Remark = Callable[[str], None]
_SHOWN = 10  # names in a remark


def names_file(output: str, source: SourceFile) -> bool:
    """Whether `output` names a file for the script, and no folder for a copy of the project."""
    suffixes = {".py", source.path.suffix if source.path else ""}
    return Path(output).suffix in suffixes and not Path(output).is_dir() and not output.endswith(os.sep)


def refuse_other_files(output: str, source: SourceFile) -> None:
    """An OptionError for `-o out.txt`: it reads as a file, is none for a script, and a folder is hardly meant."""
    looks_like_file = Path(output).suffix[1:2].isalpha()  # `project-1.2` does not
    if looks_like_file and not (
        names_file(output, source) or Path(output).is_dir() or output.endswith(os.sep)
    ):
        raise OptionError(
            f"-o {output}: a script is written, into a file that ends in .py, or into a folder; {output}/ is a folder"
        )


def write(
    conversion: Conversion, output: str | None, *, force: bool, remark: Remark, wishes: Wishes | None = None
) -> str | None:
    """Write the script to `output`, or beside the original; into a folder, with all of its project.

    Returns the script to start, None if nothing changes. `remark` gets a line for what is worth knowing beside it.
    Raises SourceError if something is in the way, or cannot be written.
    """
    if not conversion.changed:
        return None
    if conversion.is_project or output and not names_file(output, conversion.before):
        return _write_project(conversion, output, force, remark, wishes)
    if wishes:
        raise OptionError("--link and --copy say how a folder is copied: name one with -o")
    target = output or (str(conversion.before.beside) if conversion.before.beside else None)
    if target is None:
        raise SourceError(f"{conversion.before.name}: name a file for the result")
    return _write_data(conversion.entry.data, target, force, conversion.helper_file, remark)


def write_in_place(conversion: Conversion, *, force: bool, remark: Remark) -> str | None:
    """Change the script and its local modules themselves; returns the script, None if it does not change.

    Raises SourceError for a notebook, and, unless `force`, for files of which git keeps no copy.
    """
    from dp2ddp.source.folders import refuse_unkept, undo_commands
    from dp2ddp.source.writing import write_together

    if conversion.before.cells:
        raise SourceError(
            f"{conversion.before.name}: torchrun starts scripts, so a notebook stays as it is; leave --in-place out "
            "for a script beside it"
        )
    files = conversion.written_files
    if not force:
        refuse_unkept([path for path in files if path.exists()])
    read = {file.before.path: file.before.data for file in conversion.files}
    if conversion.helpers:
        read[conversion.helpers.before.path] = conversion.helpers.before.data
    write_together(files, {path: data for path, data in read.items() if path and path.exists()})
    if files and not force:
        remark(f"undo it with: {' && '.join(undo_commands(list(files)))}")
    return str(conversion.before.path) if files else None


def write_notebook(conversion: Conversion, output: str | None, *, force: bool, remark: Remark) -> str | None:
    """Write a notebook that writes the script and starts it, NAME_ddp.ipynb beside the original by default."""
    if not conversion.changed:
        return None
    target = Path(output) if output else _notebook_beside(conversion)
    return _write_data(notebook_data(conversion, target), str(target), force, {}, remark)


def notebook_data(conversion: Conversion, target: Path | None = None) -> bytes:
    """That notebook. Raises SourceError where the conversion takes more files than the notebook."""
    from dp2ddp.source.helper_module import FILE
    from dp2ddp.source.launching import launching_notebook

    path = conversion.before.path
    assert path is not None
    if conversion.is_project:
        raise SourceError(
            f"{path}: {others(conversion)}; use -o FOLDER without --notebook for a converted copy of the whole project"
        )
    name = f"{(target or _notebook_beside(conversion)).stem}.py"
    helpers = {FILE: conversion.helpers.after} if conversion.helpers else {}
    return launching_notebook(
        path.read_bytes(), path, conversion.after, name, conversion.launch_with(name), helpers
    )


def others(conversion: Conversion) -> str:
    """Why the script alone would not do."""
    names = [module.before.name for module in conversion.modules if module.changed]
    if not names:
        return "other modules import it, so it must keep its name"
    count = f"{len(names)} local module{'s' if len(names) > 1 else ''}"
    shown = ", ".join(os.path.relpath(name) for name in names[:4]) + (", ..." if len(names) > 4 else "")
    return f"{count} must change too ({shown})"


def _notebook_beside(conversion: Conversion) -> Path:
    path = conversion.before.path
    assert path is not None
    return path.with_name(f"{path.stem}_ddp.ipynb")


def _write_data(data: bytes, target: str, force: bool, helpers: Mapping[Path, bytes], remark: Remark) -> str:
    """A file that is there must be asked for to be overwritten; `helpers` are written with it, or nothing is."""
    from dp2ddp.source.writing import write_together

    path = Path(target)
    is_same = path.is_file() and path.read_bytes() == data
    if is_same and not helpers:
        remark(f"{target}: up to date")
        return target
    if not path.parent.is_dir():
        raise SourceError(f"{target}: cannot be written (there is no folder {path.parent})")
    if path.exists() and not force and not is_same:
        raise SourceError(f"{target}: exists already; use --force to overwrite it, or -o to write elsewhere")
    write_together({**helpers, path: data})
    return target


def _write_project(
    conversion: Conversion, output: str | None, force: bool, remark: Remark, wishes: Wishes | None
) -> str:
    from dp2ddp.codemod.written_paths import written_paths
    from dp2ddp.copies.project import Wishes, copy_project
    from dp2ddp.source.parsing import parse_leniently

    if output is None:
        raise SourceError(
            f"{conversion.before.name}: {others(conversion)}; use -o FOLDER for a converted copy of the whole "
            "project, or --in-place"
        )
    if names_file(output, conversion.before):
        raise SourceError(
            f"{output}: {others(conversion)}; name a folder with -o, for a copy of the whole project"
        )
    files = {file.before.output: file.data for file in conversion.changed_files if file.before.output}
    trees = (parse_leniently(file.before.text) for file in conversion.files)
    copy = copy_project(
        conversion.before.output,
        conversion.helper_file | files,
        Path(output),
        force,
        written_paths(tree for tree in trees if tree),
        wishes or Wishes(),
    )
    for names, what in (
        (copy.linked, "links to the originals, which the copy reads and must not write"),
        (copy.left_out, "left out, since runs of the copy would write there"),
        (copy.kept, "changed since convert wrote it, so the old text stays beside the new one"),
    ):
        if names:
            shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else "")
            remark(f"{what}: {shown}")
    if copy.linked or copy.left_out:
        remark("--copy NAME and --link NAME decide otherwise")
    return str(copy.script)
