"""What the outside sees: lines, files, exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from dp2ddp.verify.causes.cause import Found, found
from dp2ddp.verify.causes.evidence import Evidence
from dp2ddp.verify.causes.words import names_text, ranks_text
from dp2ddp.verify.matching import plain_name
from dp2ddp.verify.outputs import NO_LINE

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\bnan\b|\binf\b")


def signatures(evidence: Evidence) -> Iterator[Found]:
    trained = evidence.comparison.same
    if evidence.voices:
        yield _voices(evidence, 0.9 if trained else 0.2)
    if not trained:
        return
    yield from _lines(evidence)
    yield from _files(evidence)
    if evidence.codes[0] != evidence.codes[1]:
        yield found("other-output", 0.5, "exit codes {} and {}".format(*evidence.codes))


def _voices(evidence: Evidence, weight: float) -> Found:
    first = evidence.stdout.first
    if first is not None and first[2] == NO_LINE:
        silent = f"rank 0 has no line {first[0]}"
        return found("another-rank-prints", weight, f"{ranks_text(evidence.voices)} printed; {silent}")
    return found("every-rank-prints", weight, f"{ranks_text(evidence.voices)} printed as well")


def _lines(evidence: Evidence) -> Iterator[Found]:
    first = evidence.stdout.first
    if first is None:
        return
    number, ours, theirs = first
    told = f"line {number}: {theirs!r}, under DataParallel {ours!r}"
    if _NUMBER.sub("#", ours) == _NUMBER.sub("#", theirs):
        yield found("local-numbers", 0.85, told)
        if names := _apart_on_ranks(evidence):
            words = (
                f"{names_text(names)} differ from rank to rank at the end: ranks that evaluate use their own"
            )
            yield found("buffers-of-another-rank", 0.8, words)
    else:
        yield found("other-output", 0.5, told)


def _of_tensor(what: str, evidence: Evidence) -> str:
    """`['net']['module.1.running_mean'] differs by 1e-3`: what a tensor under such keys is."""
    keys = re.findall(r"\['([^']*)'\]", what)
    name = plain_name(keys[-1]) if keys else ""
    if "running_" in name:
        return "buffers-of-another-rank"
    if name in {plain_name(one) for layout in evidence.reference.layouts for one in layout.names}:
        return "weights-of-another-step"
    if "['state']" in what:  # of an optimizer
        return "other-output"
    in_model = name in {plain_name(one) for one in evidence.reference.buffers()}
    return "buffer-of-local-rows" if in_model or len(keys) > 1 else "local-numbers"


def _apart_on_ranks(evidence: Evidence) -> list[str]:
    """Running statistics."""
    first, *others = (trace.buffers() for trace in evidence.ranks)
    return [
        name
        for name, own in first.items()
        if "running_" in name and any(name in each and not np.array_equal(own, each[name]) for each in others)
    ]


def _files(evidence: Evidence) -> Iterator[Found]:
    different = evidence.files.different
    for each in different:
        told = f"{each.path} {each.what}"
        if each.ranks:
            yield found("every-rank-writes", 0.86, told)
        elif "by DDP only" in each.what:
            yield found("doubled-files", 0.87, told)
        elif "other keys" in each.what:
            yield found("other-keys", 0.88, told)
        elif " differs by " in each.what:
            yield found(_of_tensor(each.what, evidence), 0.86, told)
        elif line := re.match(r"line \d+: (.*) under DataParallel, (.*) under DDP", each.what):
            same = _NUMBER.sub("#", line[1]) == _NUMBER.sub("#", line[2])
            counts = re.search(r"; (\d+) lines instead of (\d+)$", each.what)
            if counts and int(counts[1]) > int(counts[2]):
                yield found("doubled-lines", 0.88, told)
            else:
                yield found("local-numbers" if same else "other-output", 0.8, told)
        else:
            yield found("other-output", 0.4, told)
