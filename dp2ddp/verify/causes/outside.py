"""What the outside sees: lines, files, exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from dp2ddp.trace.records import Trace
from dp2ddp.verify.causes.cause import Found, found
from dp2ddp.verify.causes.evidence import Evidence
from dp2ddp.verify.causes.words import names_text, ranks_text, sum_text
from dp2ddp.verify.matching import plain_name
from dp2ddp.verify.outputs import NO_LINE, FileDifference

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\bnan\b|\binf\b")


def signatures(evidence: Evidence) -> Iterator[Found]:
    """Where training differs, numbers in lines and files do so anyway: then what hangs on none is looked for."""
    if evidence.voices:
        yield _voices(evidence, 0.9)
    yield from _files(evidence)
    yield from _sharded_evaluation(evidence)
    if not evidence.comparison.same:
        return
    yield from _lines(evidence)
    if evidence.codes[0] != evidence.codes[1]:
        yield found("other-output", 0.5, "exit codes {} and {}".format(*evidence.codes))


def _voices(evidence: Evidence, weight: float) -> Found:
    first = evidence.stdout.first
    if first is not None and first[2] == NO_LINE:
        silent = f"rank 0 has no line {first[0]}"
        return found("another-rank-prints", weight, f"{ranks_text(evidence.voices)} printed; {silent}")
    return found("every-rank-prints", weight, f"{ranks_text(evidence.voices)} printed as well")


def _lines(evidence: Evidence) -> Iterator[Found]:
    text = evidence.stdout
    for number, ours, theirs in (text.first, *text.others) if text.first else ():
        told = f"line {number}: {theirs!r}, under DataParallel {ours!r}"
        if _NUMBER.sub("#", ours) != _NUMBER.sub("#", theirs):
            yield found("other-output", 0.5, told)
            continue
        yield found("local-numbers", 0.85, told)
        if names := _apart_on_ranks(evidence):
            words = (
                f"{names_text(names)} differ from rank to rank at the end: ranks that evaluate use their own"
            )
            yield found("buffers-of-another-rank", 0.8, words)


_MEETINGS = ("barrier", "init_process_group", "destroy_process_group", "DistributedDataParallel")


def _sharded_evaluation(evidence: Evidence) -> Iterator[Found]:
    """Ranks that share out what DataParallel evaluates as a whole, and put nothing together behind it."""
    if evidence.stdout.first is None:
        return
    sides = [_evaluated(trace) for trace in (evidence.reference, *evidence.ranks)]
    for place, ((whole, _), *own) in enumerate(zip(*sides, strict=False)):
        counts = [count for count, _ in own]
        shared_out = whole and max(counts) < whole <= sum(counts)
        if shared_out and not any(meets for _, meets in own):
            words = (
                f"{sum_text(counts)} samples are evaluated, {whole} under DataParallel, before step {place}"
            )
            yield found("local-numbers", 0.8, f"{words}; no collective puts their numbers together")
            return


def _evaluated(trace: Trace) -> list[tuple[int, bool]]:
    """Before each step, and behind the last: samples of data sets that no step is made of, and whether ranks meet."""
    trained = {line["draws"][-1][0] for line in trace.lines if line["draws"]}
    return [
        (
            sum(len(indices or ()) for loader, indices, _ in line["draws"] if loader not in trained),
            any(name not in _MEETINGS for name, _ in line["collectives"]),
        )
        for line in (*trace.lines, *trace.last_line)
    ]


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
    for each in evidence.files.different:
        told = f"{each.path} {each.what}"
        if each.ranks:
            yield found("every-rank-writes", 0.86, told)
        elif "by DDP only" in each.what:
            yield found("doubled-files", 0.87, told)
        elif "other keys" in each.what:
            yield found("other-keys", 0.88, told)
        elif evidence.comparison.same:
            yield _of_numbers(evidence, each, told)


def _of_numbers(evidence: Evidence, each: FileDifference, told: str) -> Found:
    """A file with other content, though training is the same."""
    if " differs by " in each.what:
        return found(_of_tensor(each.what, evidence), 0.86, told)
    line = re.match(r"line \d+: (.*) under DataParallel, (.*) under DDP", each.what)
    if line is None:
        return found("other-output", 0.4, told)
    same = _NUMBER.sub("#", line[1]) == _NUMBER.sub("#", line[2])
    counts = re.search(r"; (\d+) lines instead of (\d+)$", each.what)
    if counts and int(counts[1]) > int(counts[2]):
        return found("doubled-lines", 0.88, told)
    return found("local-numbers" if same else "other-output", 0.8, told)
