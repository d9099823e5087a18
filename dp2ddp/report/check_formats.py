"""What `dp2ddp check` found: for programs as JSON, SARIF 2.1.0, annotations of GitHub Actions; and in words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dp2ddp import __version__
from dp2ddp.review.baseline import known_as
from dp2ddp.review.checking import CheckResult
from dp2ddp.review.problems import Level, PlacedProblem
from dp2ddp.words import counted

VERSION = 1
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
COMMANDS = {Level.ERROR: "error", Level.WARNING: "warning", Level.NOTE: "notice"}  # of GitHub's log


def check_json(result: CheckResult) -> str:
    """The same as data (docs/check.md#json)."""
    document = {
        "version": VERSION,
        "files": result.files,
        "problems": [{**asdict(problem), "level": problem.level.value} for problem in result.problems],
        "unread": [{"file": file.file, "why": file.why} for file in result.unread],
        "known": result.known,
        "gone": result.gone,
    }
    return json.dumps(document, indent=2) + "\n"


def check_github(result: CheckResult) -> str:
    """Lines that GitHub Actions shows beside the code (https://docs.github.com/actions, workflow commands)."""
    lines = []
    for problem in result.problems:
        where = f"file={_property(problem.file)}"
        if problem.cell is None:
            where += f",line={problem.line},col={problem.column}"
        text = _escaped(f"{_place_in_notebook(problem)}{problem.message}\n{problem.advice}")
        lines.append(f"::{COMMANDS[problem.level]} {where},title={problem.code}::{text}\n")
    lines += [
        f"::warning file={_property(file.file)}::{_escaped(f'not read: {file.why}')}\n"
        for file in result.unread
    ]
    return "".join(lines)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def _fingerprint(problem: PlacedProblem) -> str:
    key = "\0".join(known_as(problem)).encode()
    return hashlib.blake2b(key, digest_size=16).hexdigest()


def _place_in_notebook(problem: PlacedProblem) -> str:
    return "" if problem.cell is None else f"cell {problem.cell}, line {problem.line}: "


def check_sarif(result: CheckResult) -> str:
    """A SARIF 2.1.0 log with one run."""
    codes = sorted({problem.code for problem in result.problems})
    notifications = [
        {"level": "warning", "message": {"text": file.why}, "locations": [_location(file.file)]}
        for file in result.unread
    ]
    run = {
        "tool": {
            "driver": {"name": "dp2ddp", "version": __version__, "rules": [_rule(code) for code in codes]}
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notifications}],
        "results": [_result(problem, codes.index(problem.code)) for problem in result.problems],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(code: str) -> dict[str, Any]:
    from dp2ddp.review.check_rule import described_rules  # only a log with problems needs their pages

    rule = next(rule for rule in described_rules() if rule.code == code)
    page = rule.page()
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.summary()},
        "fullDescription": {"text": page.partition("\n## Safety")[0]},
        "help": {"text": page, "markdown": page},
    }


def _result(problem: PlacedProblem, rule: int) -> dict[str, Any]:
    region = None if problem.cell is not None else {"startLine": problem.line, "startColumn": problem.column}
    return {
        "ruleId": problem.code,
        "ruleIndex": rule,
        "level": problem.level.value,
        "message": {"text": f"{_place_in_notebook(problem)}{problem.message}; {problem.advice}"},
        "locations": [_location(problem.file, region)],
        "partialFingerprints": {"lineText/v1": _fingerprint(problem)},
    }


def _location(file: str, region: dict[str, int] | None = None) -> dict[str, Any]:
    from urllib.parse import quote

    path = Path(file)
    uri = path.as_uri() if path.is_absolute() else quote(path.as_posix())
    physical: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    return {"physicalLocation": {**physical, "region": region} if region else physical}


def check_text(result: CheckResult) -> str:
    """A line for each problem, with what to do about it below, and one that counts them."""
    return "\n".join(_lines(result)) + "\n"


def _lines(result: CheckResult) -> Iterator[str]:
    for problem in result.problems:
        yield f"{problem.place}: {problem.level.value}: {problem.message} ({problem.code})"
        yield f"    {problem.advice}"
    for file in result.unread:
        yield f"not read: {file.why}"
    yield summary(result)


def summary(result: CheckResult) -> str:
    """One line: how many problems in how many files; a note is none."""
    notes = sum(problem.level is Level.NOTE for problem in result.problems)
    problems = len(result.problems) - notes
    parts = [counted(problems, "problem")] if problems else ["no problems" if notes else "nothing found"]
    if notes:
        parts.append(counted(notes, "note"))
    if result.unread:
        parts.append(f"{len(result.unread)} not read")
    if result.known:
        parts.append(f"{result.known} known by the baseline")
    if result.gone:
        parts.append(f"{result.gone} of the baseline no longer there (--write-baseline forgets them)")
    return f"{counted(result.files, 'file')}: {', '.join(parts)}"
