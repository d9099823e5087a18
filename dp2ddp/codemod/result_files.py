"""Where a conversion is written: beside the script, in a copy of the project, or in place."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path

from dp2ddp.codemod.conversion import Conversion
from dp2ddp.codemod.model.nodes import inside, last_name
from dp2ddp.errors import OptionError, SourceError
from dp2ddp.source.files import SourceFile

Remark = Callable[[str], None]
_SHOWN = 10  # names in a remark


def names_file(output: str, source: SourceFile) -> bool:
    """Whether `output` names a file for the script, and no folder for a copy of the project."""
    own = ".py" if source.cells else source.path.suffix if source.path else ""
    return Path(output).suffix in {".py", own} and not _names_folder(output)


def _names_folder(output: str) -> bool:
    return Path(output).is_dir() or output.endswith(os.sep)


def refuse_other_files(output: str, source: SourceFile) -> None:
    """An OptionError for `-o out.txt`: it reads as a file, is none for a script, and a folder is hardly meant."""
    looks_like_file = Path(output).suffix[1:2].isalpha()  # `project-1.2` does not
    if looks_like_file and not names_file(output, source) and not _names_folder(output):
        raise OptionError(
            f"-o {output}: a script is written, into a file that ends in .py, or into a folder; {output}/ is a folder"
        )


def write(conversion: Conversion, output: str | None, *, force: bool, remark: Remark) -> str | None:
    """Write the script to `output`, or beside the original; into a folder, with all of its project.

    Returns the script to start, None if nothing changes. `remark` gets a line for what is worth knowing beside it.
    Raises SourceError if something is in the way, or cannot be written.
    """
    if not conversion.changed:
        return None
    if conversion.is_project or output and not names_file(output, conversion.before):
        return _write_project(conversion, output, force, remark)
    target = Path(output) if output else conversion.before.beside
    if target is None:
        raise SourceError(f"{conversion.before.name}: name a file for the result")
    return _write_file(conversion, conversion.entry.data, target, force, remark)


def write_in_place(conversion: Conversion, *, force: bool, remark: Remark) -> str | None:
    """Change the script and its local modules themselves; returns the script, None if it does not change.

    Raises SourceError for a notebook, for files that a link out of the project leads to, and, unless `force`, for
    files of which git keeps no copy.
    """
    from dp2ddp.source.folders import kept_root, refuse_links_out
    from dp2ddp.source.git import refuse_unkept, undo_commands
    from dp2ddp.source.writing import write_together

    path, project = conversion.before.path, conversion.project
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
    files, held = conversion.written_files, conversion.held_files
    links = [project.links.get(file, file) for file in files]
    refuse_links_out(links, kept_root(path.parent) or project.root_of(path.resolve()))
    undo: list[str] = []
    if not force:
        kept = {each: data for each in files if (data := held[each]) is not None}
        refuse_unkept(kept)
        undo = undo_commands(list(kept), [each for each in files if each not in kept])
    write_together({**_old_helpers(conversion, remark), **files}, held)
    if undo:
        remark(f"undo it with: {' && '.join(undo)}")
    return str(path)


def others(conversion: Conversion) -> str:
    """Why the script alone would not do."""
    names = [module.before.name for module in conversion.modules if module.changed]
    if not names:
        return "other modules import it, so it must keep its name"
    count = f"{len(names)} local module{'s' if len(names) > 1 else ''}"
    shown = ", ".join(os.path.relpath(name) for name in names[:4]) + (", ..." if len(names) > 4 else "")
    return f"{count} must change too ({shown})"


def _old_helpers(conversion: Conversion, remark: Remark) -> Mapping[Path, bytes]:
    """Helpers that are written anew may hold work of their owner's: the old ones are kept beside them."""
    helpers = conversion.helpers
    path = helpers.before.path if helpers else None
    if helpers is None or path is None or not helpers.is_renewed:
        return {}
    data = helpers.before.data
    names = (path.with_name(f"{path.name}.bak{number or ''}") for number in count())
    old = next(each for each in names if not os.path.lexists(each) or _holds(each, data))
    went = f"; gone or other: {', '.join(helpers.dropped)}" if helpers.dropped else ""
    remark(f"{path}: written anew; as it was: {old}{went}")
    return {} if old.exists() else {old: data}


def _holds(path: Path, data: bytes) -> bool:
    return path.is_file() and path.read_bytes() == data


def _write_file(conversion: Conversion, data: bytes, target: Path, force: bool, remark: Remark) -> str:
    """A file that is there must be asked for to be overwritten; helpers are written with it, or nothing is."""
    from dp2ddp.source.folders import kept_root, leads_out
    from dp2ddp.source.writing import refuse_to_overwrite, write_together

    helpers = conversion.helper_file
    if not target.parent.is_dir():
        raise SourceError(f"{target}: cannot be written (there is no folder {target.parent})")
    _refuse_own_files(target, conversion)
    refuse_to_overwrite(target, data, force=force)
    for helper in helpers:
        if helper.is_symlink() and leads_out(helper, kept_root(helper.parent) or helper.parent):
            raise SourceError(
                f"{helper}: a link leads out of here, to {helper.resolve()}, and what the script needs is not in it; "
                "remove the link, or use --one-file or --import"
            )
    held = conversion.helpers.held if conversion.helpers else {}
    if not target.exists() or target.is_file():
        held = {**held, target: target.read_bytes() if target.is_file() else None}
    entry = {} if _holds(target, data) else {target: data}
    if not entry and not helpers:
        remark(f"{target}: up to date")
    write_together({**_old_helpers(conversion, remark), **helpers, **entry}, held)
    return str(target)


def _refuse_own_files(target: Path, conversion: Conversion) -> None:
    """A SourceError where the result would take the place of what it is made of, by whatever name."""
    for path in (file.before.path for file in conversion.files):
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


# --- paths that a project's text hands to what writes: a copy of it must hold no links at those places

_WRITES = re.compile(
    r"save|dump|write|makedirs|mkdir|touch|extract|download|to_(?:csv|json|parquet|pickle|hdf)|log|handler|connect",
    re.IGNORECASE,
)
_OPENS = re.compile(r"open$|^File$|memmap$|HDFStore$")
_MODE = re.compile(r"[rwaxbt+]{1,4}")
_OPTION = re.compile(r"add_argument$|option$|field$", re.IGNORECASE)
_LONG = 200  # characters; a longer text is no path


def written_paths(trees: Iterable[ast.AST]) -> frozenset[str]:
    """Texts that may be paths of what is written, from the syntax trees of a project's files.

    Over-reported: each text in a call that may write counts, and so does what the names in the call were once given,
    here or as the default of an option.
    """
    nodes = [node for tree in trees for node in inside(tree, ast.Call, ast.Assign)]
    given: dict[str, list[str]] = {}
    for name, value in (pair for node in nodes for pair in _given(node)):
        given.setdefault(name, []).extend(_texts(value))
    writing = [node for node in nodes if isinstance(node, ast.Call) and _writes(node)]
    names = {last_name(each) for call in writing for each in inside(call, ast.Name, ast.Attribute)}
    said = (_texts(call) for call in writing)
    texts = {text for each in (*said, *(given.get(name, ()) for name in names)) for text in each}
    return frozenset(text for text in texts if text.strip("./ ") and len(text) <= _LONG)


def _texts(code: ast.AST) -> list[str]:
    return [node.value for node in inside(code, ast.Constant) if isinstance(node.value, str)]


def _writes(call: ast.Call) -> bool:
    """Whether it may; what opens a file does where its mode says so."""
    name = last_name(call.func)
    if not _OPENS.search(name):
        return bool(_WRITES.search(name))
    arguments = (*call.args, *(keyword.value for keyword in call.keywords))
    modes = [str(each.value) for each in arguments if isinstance(each, ast.Constant)]
    return any(_MODE.fullmatch(mode) and set("wax+") & set(mode) for mode in modes)


def _given(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What names are given: by an assignment, by a keyword, as the default of an option."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((last_name(target), value) for target in targets)
        case ast.Call(func=func, args=args, keywords=keywords):
            yield from ((keyword.arg or "", keyword.value) for keyword in keywords)
            options = [text.lstrip("-").replace("-", "_") for each in args for text in _texts(each)]
            defaults = [keyword.value for keyword in keywords if keyword.arg == "default"]
            if _OPTION.search(last_name(func)):
                yield from ((name, value) for value in defaults for name in options)
