"""The files that matter, each read by all rules; side by side where there are many."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from dp2ddp.errors import SourceError
from dp2ddp.review.cache import digest, rules_stamp
from dp2ddp.review.check_rule import check_rules
from dp2ddp.review.checking import PARALLEL, Tell, as_data
from dp2ddp.review.data_parallel import (
    MOST,
    acts,
    check_entry,
    check_project,
    importers_of,
    may_wrap,
    names_data_parallel,
    note_all_wraps,
    note_wraps,
)
from dp2ddp.review.files import may_matter
from dp2ddp.review.one_file import check_file, fault
from dp2ddp.review.own_file import OwnFile
from dp2ddp.review.problems import PlacedProblem, Unread
from dp2ddp.source.entries import does_something
from dp2ddp.source.files import SourceFile, read_source
from dp2ddp.source.folders import as_typed
from dp2ddp.source.parsing import forget_trees, garbage_waits
from dp2ddp.source.projects import Imports, project_of

NOT_LOOKED_AT = "could not be looked at"


def look_at_hits(
    hits: Sequence[str], scripts: Sequence[str], names: Sequence[str], before: Mapping[str, Any], tell: Tell
) -> dict[str, Any]:
    """Everything that is found in files that mention DataParallel or ranks, and in what `scripts` import, as data.

    A module that wraps models is read with the scripts that import it: first those that mention DataParallel
    themselves, then, for modules that none of them reaches, other importers.
    """
    _imports.cache_clear()  # files may have changed since the last run of this process
    content: dict[str, Any] = {"problems": [], "unread": [], "read": [], "contents": {}}
    content |= {"beside": [], "planned": [], "wraps": []}  # of use in here only
    _take(content, _answers([("script", path, before) for path in scripts], tell))
    files = {os.path.realpath(path): path for path in (*content.pop("beside"), *hits)}
    _take(content, _answers([("file", path, before) for path in files.values()], tell))
    own, planned = content.pop("wraps"), set(content.pop("planned"))
    _take(
        content,
        _answers([("entry", path, before) for path in own if path not in planned and acts(path)], tell),
    )
    rest = _unread_of(own, content)
    for path in importers_of(rest, names):
        if not _unread_of(rest, content):
            break
        _take(content, _answers([("entry", path, before)], tell))
    _take(content, _answers([("module", path, before) for path in sorted(_unread_of(own, content))], tell))
    content["problems"] = _named_as(names, content["problems"])
    content["unread"] = list({(data["file"], data["why"]): data for data in content["unread"]}.values())
    content["read"] = sorted(set(content["read"]) - set(names))
    return content


def look_at_text(name: str, text: str) -> dict[str, Any]:
    """Everything that is found in one file, whose text is not what lies on the disk: an editor has it."""
    source = SourceFile(Path(name), text)
    try:
        file = OwnFile(source)
    except SourceError as error:
        return {"problems": [], "unread": [{"file": name, "why": str(error)}]}
    except Exception as error:
        return {"problems": [], "unread": [asdict(fault(name, NOT_LOOKED_AT, error))]}
    checked = check_file(file, check_rules())
    problems, unread = list(checked.problems), list(checked.faults)
    try:
        problems += _wraps_of(name, file)
    except SourceError as error:  # of a module that it imports
        unread.append(Unread(name, str(error)))
    except Exception as error:
        unread.append(fault(name, NOT_LOOKED_AT, error))
    return {
        "problems": [as_data(problem) for problem in problems if problem.file == name],
        "unread": list(map(asdict, unread)),
    }


def _wraps_of(name: str, file: OwnFile) -> list[PlacedProblem]:
    """What stands in the way of its DataParallel."""
    if not names_data_parallel(file):
        return []
    if does_something(file.source.text.encode(errors="replace")):
        return check_project(name, project_of(file.source))[0]
    return note_wraps(file)


def _named_as(names: Sequence[str], problems: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Problems with the names of their files as the user wrote them, each once: several scripts may read a module.

    Only what the user named is mended.
    """
    known = set(names)
    others = {problem["file"] for problem in problems} - known
    by_path = {os.path.realpath(name): name for name in names} if others else {}  # 10 ms for 1,000 names
    different: dict[tuple[object, ...], dict[str, Any]] = {}
    for problem in problems:
        file = problem["file"]
        name = file if file in known else by_path.get(os.path.realpath(file), file)
        place = name, *(problem[key] for key in ("cell", "line", "column", "code"))
        fixable = problem["fixable"] and name in known
        different.setdefault(place, {**problem, "file": name, "fixable": fixable})
    return list(different.values())


def _unread_of(paths: Iterable[str], content: Mapping[str, Any]) -> set[str]:
    """The files that were read with no script so far."""
    read = {os.path.realpath(path) for path in content["read"]}
    return {path for path in paths if os.path.realpath(path) not in read}


def _take(content: dict[str, Any], answers: Iterable[Mapping[str, Any]]) -> None:
    for answer in answers:
        for key, value in answer.items():
            joined = {**content[key], **value} if isinstance(value, dict) else [*content[key], *value]
            content[key] = joined


Task = tuple[str, str, Mapping[str, Any]]
DOES = {  # kind of task -> what is told while it goes on
    "file": "reading files",
    "script": "following imports",
    "entry": "planning conversions",
    "module": "reading modules",
}


def _answers(tasks: Sequence[Task], tell: Tell) -> Iterator[dict[str, Any]]:
    """The answers in the order of the tasks."""
    for done, answer in enumerate(_run_all(tasks)):
        yield answer
        tell(f"{DOES[tasks[done][0]]}: {done + 1:,} of {len(tasks):,}")


def _run_all(tasks: Sequence[Task]) -> Iterator[dict[str, Any]]:
    count = min(os.cpu_count() or 1, len(tasks) // PARALLEL + 1)
    if count < 2:
        yield from map(_run, tasks)
        return
    from concurrent.futures import ProcessPoolExecutor  # takes as long to import as a file to check

    with ProcessPoolExecutor(count) as pool:
        yield from pool.map(_run, tasks, chunksize=4)


def _run(task: Task) -> dict[str, Any]:
    """The answer of one task; nothing of it is kept, so that memory stays flat."""
    kind, path, before = task
    with garbage_waits():
        try:
            return KINDS[kind](path, before)
        except (SourceError, OSError) as error:
            return {"unread": [{"file": path, "why": str(error)}]}
        except Exception as error:
            # a fault of ours in one file is said, and does not hide what is in the others
            return {"unread": [asdict(fault(path, NOT_LOOKED_AT, error))]}
        finally:
            forget_trees()
            gc.collect(1)


def _check_one(path: str, before: Mapping[str, Any]) -> dict[str, Any]:
    source = read_source(path)
    key = digest(rules_stamp(), path, source.text)
    if key not in before:
        file = OwnFile(source)
        checked = check_file(file, check_rules())
        found = {
            "problems": list(map(as_data, checked.problems)),
            "unread": list(map(asdict, checked.faults)),
            "wraps": [path] if names_data_parallel(file) else [],
        }
        before = {key: found}
    return {**before[key], "contents": {key: before[key]}}


def _check_as_script(path: str, before: Mapping[str, Any]) -> dict[str, Any]:
    """A script that was named itself: its local modules belong to it, wherever they are."""
    reached = [file for file in _imports().reached(Path(path)) if file.suffix == ".py"]
    beside = [str(as_typed(file)) for file in sorted(reached) if may_matter(str(file))]
    answer = {"read": list(map(str, reached)), "beside": beside}
    if not any(map(may_wrap, beside)):
        return answer
    planned = _check_as_entry(path, before)
    return {**planned, "read": [*answer["read"], *planned["read"]], "beside": beside, "planned": [path]}


@lru_cache(maxsize=1)
def _imports() -> Imports:
    """What files import, each read once in a run and process."""
    return Imports()


def _check_as_entry(path: str, before: Mapping[str, Any]) -> dict[str, Any]:
    modules = [str(as_typed(file)) for file in _imports().reached(Path(path))]
    if len(modules) > MOST:
        problems, read = note_all_wraps(path, [path, *modules]), [path, *modules]
    else:
        problems, read = check_entry(path)
    return {"problems": [as_data(problem) for problem in problems], "read": read}


def _check_as_module(path: str, before: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "problems": [as_data(problem) for problem in note_wraps(OwnFile(read_source(path)))],
        "read": [path],
    }


KINDS = {"file": _check_one, "script": _check_as_script, "entry": _check_as_entry, "module": _check_as_module}
