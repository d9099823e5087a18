"""What the outside sees: lines, files, exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from dp2ddp.verify.causes.cause import Found, found
from dp2ddp.verify.causes.evidence import Evidence
from dp2ddp.verify.causes.words import ranks_text

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\bnan\b|\binf\b")


def signatures(evidence: Evidence) -> Iterator[Found]:
    trained = evidence.comparison.same
    if evidence.voices:
        yield found(
            "every-rank-prints", 0.9 if trained else 0.2, f"{ranks_text(evidence.voices)} printed as well"
        )
    if not trained:
        return
    yield from _lines(evidence)
    yield from _files(evidence)
    if evidence.codes[0] != evidence.codes[1]:
        yield found("other-output", 0.5, "exit codes {} and {}".format(*evidence.codes))


def _lines(evidence: Evidence) -> Iterator[Found]:
    first = evidence.stdout.first
    if first is None:
        return
    number, ours, theirs = first
    told = f"line {number}: {theirs!r}, under DataParallel {ours!r}"
    if _NUMBER.sub("#", ours) == _NUMBER.sub("#", theirs):
        yield found("local-numbers", 0.85, told)
    else:
        yield found("other-output", 0.5, told)


def _files(evidence: Evidence) -> Iterator[Found]:
    different = evidence.files.different
    for each in different:
        told = f"{each.path} {each.what}"
        if "by DDP only" in each.what:
            yield found("doubled-files", 0.87, told)
        elif "other keys" in each.what:
            yield found("other-keys", 0.88, told)
        elif " differs by " in each.what:
            yield found("buffers-of-another-rank" if "running_" in each.what else "other-output", 0.8, told)
        elif line := re.match(r"line \d+: (.*) under DataParallel, (.*) under DDP", each.what):
            same = _NUMBER.sub("#", line[1]) == _NUMBER.sub("#", line[2])
            counts = re.search(r"; (\d+) lines instead of (\d+)$", each.what)
            if counts and int(counts[1]) > int(counts[2]):
                yield found("doubled-lines", 0.88, told)
            else:
                yield found("local-numbers" if same else "other-output", 0.8, told)
        else:
            yield found("other-output", 0.4, told)
