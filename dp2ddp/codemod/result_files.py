"""Where a conversion is written: beside the script, in a copy of the project, in place, or as a notebook."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from dp2ddp.codemod.conversion import Conversion
from dp2ddp.errors import OptionError, SourceError
from dp2ddp.source.files import SourceFile

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


def write(conversion: Conversion, output: str | None, *, force: bool, remark: Remark) -> str | None:
    """Write the script to `output`, or beside the original; into a folder, with all of its project.

    Returns the script to start, None if nothing changes. `remark` gets a line for what is worth knowing beside it.
    Raises SourceError if something is in the way, or cannot be written.
    """
    from dp2ddp.source.writing import alone_in

    if not conversion.changed:
        return None
    if conversion.is_project or output and not names_file(output, conversion.before):
        return _write_project(conversion, output, force, remark)
    target = output or (str(conversion.before.beside) if conversion.before.beside else None)
    if target is None:
        raise SourceError(f"{conversion.before.name}: name a file for the result")
    with alone_in(_helper_folder(conversion, Path(target))):
        return _write_data(
            _with_helpers_of_now(conversion, remark), conversion.entry.data, target, force, remark
        )


def write_in_place(conversion: Conversion, *, force: bool, remark: Remark) -> str | None:
    """Change the script and its local modules themselves; returns the script, None if it does not change.

    Raises SourceError for a notebook, for files that a link out of the project leads to, and, unless `force`, for
    files of which git keeps no copy.
    """
    from dp2ddp.source.folders import kept_root, refuse_links_out
    from dp2ddp.source.writing import alone_in, write_together

    path = conversion.before.path
    assert path is not None
    if conversion.before.cells:
        raise SourceError(
            f"{path}: torchrun starts scripts, so a notebook stays as it is; leave --in-place out for a script "
            "beside it"
        )
    if not conversion.changed:
        return None
    if path.is_symlink():
        raise SourceError(f"{path}: a link to {os.readlink(path)}; name that file, to change it in place")
    with alone_in(_helper_folder(conversion, path)):
        conversion = _with_helpers_of_now(conversion, remark)
        files = conversion.written_files
        links = [conversion.links.get(file, file) for file in files]
        refuse_links_out(links, kept_root(path.parent) or _first_folder(conversion))
        held = conversion.held_files
        undo = None if force else _undo(held, list(files))
        write_together(_with_old_helpers(conversion, files, remark), held)
    if undo:
        remark(f"undo it with: {undo}")
    return str(path) if files else None


def _helper_folder(conversion: Conversion, script: Path) -> Path:
    """Where conversions meet: in the folder of the helpers."""
    path = conversion.helpers.before.path if conversion.helpers else None
    return (path or script).parent


def _first_folder(conversion: Conversion) -> Path:
    """The folder that is first on sys.path: that of the script, or of its package."""
    assert conversion.before.path is not None
    return conversion.before.path.resolve().parents[conversion.entry_module.count(".")]


def _undo(held: Mapping[Path, bytes | None], files: Sequence[Path]) -> str:
    """The command that undoes the writing of files, which it refuses where git does not keep what they held."""
    from dp2ddp.source.git import refuse_unkept, undo_commands

    kept = {path: data for path in files if (data := held[path]) is not None}
    refuse_unkept(kept)
    return " && ".join(undo_commands(list(kept), [path for path in files if path not in kept]))


def _with_helpers_of_now(conversion: Conversion, remark: Remark) -> Conversion:
    """Another conversion in the same folder, or an owner, may have written the helpers since they were read."""
    from dp2ddp.codemod.helpers import as_it_is_now

    if conversion.helpers is None:
        return conversion
    helpers = as_it_is_now(conversion.helpers)
    if helpers is conversion.helpers:
        return conversion
    name = helpers.before.name
    kept = f"; as its owner changed them: {', '.join(helpers.kept)}" if helpers.kept else ""
    remark(f"{name}: was written meanwhile; what it holds stays, {len(helpers.added)} added{kept}")
    return replace(conversion, helpers=helpers)


def _with_old_helpers(
    conversion: Conversion, files: Mapping[Path, bytes], remark: Remark
) -> Mapping[Path, bytes]:
    """Helpers that are written anew may hold work of their owner's: the old ones are kept beside them."""
    helpers = conversion.helpers
    path = helpers.before.path if helpers else None
    if helpers is None or path is None or not helpers.is_renewed:
        return files
    old = next(_free_or_same(path, helpers.before.data))
    went = f"; gone or other: {', '.join(helpers.dropped)}" if helpers.dropped else ""
    remark(f"{path}: written anew; as it was: {old}{went}")
    return files if old.exists() else {old: helpers.before.data, **files}


def _free_or_same(path: Path, data: bytes) -> Iterator[Path]:
    """Names for a second file that nothing has, or the same text."""
    for number in count():
        name = path.with_name(f"{path.name}.bak{number or ''}")
        if not os.path.lexists(name) or name.is_file() and name.read_bytes() == data:
            yield name


def write_notebook(conversion: Conversion, output: str | None, *, force: bool, remark: Remark) -> str | None:
    """Write a notebook that writes the script and starts it, NAME_ddp.ipynb beside the original by default."""
    if not conversion.changed:
        return None
    target = Path(output) if output else _notebook_beside(conversion)
    alone = replace(conversion, helpers=None)  # the notebook holds them
    return _write_data(alone, notebook_data(conversion, target), str(target), force, remark)


def notebook_data(conversion: Conversion, target: Path | None = None) -> bytes:
    """That notebook. Raises SourceError where the conversion takes more files than the notebook."""
    from dp2ddp.source.helper_module import FILE
    from dp2ddp.source.notebook.launching import launching_notebook

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


def _write_data(conversion: Conversion, data: bytes, target: str, force: bool, remark: Remark) -> str:
    """A file that is there must be asked for to be overwritten; helpers are written with it, or nothing is."""
    from dp2ddp.source.folders import kept_root, leads_out
    from dp2ddp.source.writing import refuse_to_overwrite, write_together

    path, helpers = Path(target), conversion.helper_file
    if not path.parent.is_dir():
        raise SourceError(f"{target}: cannot be written (there is no folder {path.parent})")
    _refuse_own_files(path, conversion)
    refuse_to_overwrite(path, data, force=force)
    held = path.read_bytes() if path.is_file() else None
    if held == data and not helpers:
        remark(f"{target}: up to date")
        return target
    for helper in helpers:
        if helper.is_symlink() and leads_out(helper, kept_root(helper.parent) or helper.parent):
            raise SourceError(
                f"{helper}: a link leads out of here, to {helper.resolve()}, and what the script needs is not in it; "
                "remove the link, or use --one-file or --import"
            )
    files = _with_old_helpers(conversion, helpers, remark)
    of_helpers = conversion.helpers.held if conversion.helpers else {}
    is_special = path.exists() and not path.is_file()
    entry = {} if held == data else {path: data}
    write_together({**files, **entry}, of_helpers if is_special else {**of_helpers, path: held})
    return target


def _refuse_own_files(target: Path, conversion: Conversion) -> None:
    """A SourceError where the result would take the place of what it is made of, by whatever name."""
    own = [file.before.path for file in conversion.files]
    for path in own:
        if path and target.exists() and path.exists() and target.samefile(path):
            way = "is" if target == path else f"is another name of {path},"
            raise SourceError(
                f"{target}: {way} the file that is converted; name another with -o, or use --in-place"
            )
    helpers = conversion.helpers
    if helpers and helpers.before.path and target.resolve() == helpers.before.path.resolve():
        raise SourceError(
            f"{target}: the helpers of the conversion need this name; name another file with -o"
        )


def _write_project(conversion: Conversion, output: str | None, force: bool, remark: Remark) -> str:
    from dp2ddp.codemod.written_paths import written_paths
    from dp2ddp.copies.project import copy_project
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
    )
    for names, what in (
        (copy.linked, "links to the originals, which the copy reads and must not write"),
        (copy.left_out, "left out, since runs of the copy would write there"),
        (copy.kept, "changed since convert wrote it, so the old text stays beside the new one"),
    ):
        if names:
            shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if names[_SHOWN:] else "")
            remark(f"{what}: {shown}")
    return str(copy.script)
