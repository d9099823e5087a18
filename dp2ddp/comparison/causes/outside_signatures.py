"""What the outside sees: lines, files, exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from dp2ddp.comparison.causes.catalogue import Finding, finding
from dp2ddp.comparison.causes.evidence import Evidence, calls_of
from dp2ddp.comparison.contents import How, have_same_words
from dp2ddp.comparison.matching import plain_name
from dp2ddp.comparison.output_comparison import NO_LINE, Outside
from dp2ddp.trace.records import Trace
from dp2ddp.words import names_text, ranks_text, sum_text


def signatures(evidence: Evidence) -> Iterator[Finding]:
    """Where training differs, numbers in lines and files do so anyway: then what hangs on none is looked for."""
    if evidence.outside.printing_ranks:
        yield _printing(evidence.outside)
    yield from _files(evidence)
    yield from _sharded_evaluation(evidence)
    if not evidence.comparison.same:
        return
    yield from _lines(evidence)
    if evidence.outside.codes[0] != evidence.outside.codes[1]:
        yield finding("other-output", 0.5, "exit codes {} and {}".format(*evidence.outside.codes))


def _printing(outside: Outside) -> Finding:
    first, printed = outside.stdout.first, f"{ranks_text(outside.printing_ranks)} printed"
    if first is not None and first.ddp == NO_LINE:
        return finding("another-rank-prints", 0.9, f"{printed}; rank 0 has no line {first.line}")
    return finding("every-rank-prints", 0.9, f"{printed} as well")


# what transformers' Trainer says behind the last step, and the files in which it may stand
_TRAINERS_LAST_LINE = ("'train_runtime':", "'train_loss':")
_TRAINERS_METRICS = ("trainer_state.json", "train_results.json", "all_results.json")
_TRAINERS_LOSS = "['train_loss']"


def _lines(evidence: Evidence) -> Iterator[Finding]:
    text = evidence.outside.stdout
    for number, expected, actual in (text.first, *text.others) if text.first else ():
        line_text = f"line {number}: {actual!r}, under DataParallel {expected!r}"
        if not have_same_words(expected, actual):
            yield finding("other-output", 0.5, line_text)
            continue
        is_trainers = all(word in actual for word in _TRAINERS_LAST_LINE)
        of_numbers = ("trainers-loss", 0.86) if is_trainers else (_cause_of_numbers(evidence), 0.85)
        yield finding(*of_numbers, line_text)
        if names := [each for each in evidence.apart_at_end("final buffer") if "running_" in each]:
            words = (
                f"{names_text(names)} differ from rank to rank at the end: ranks that evaluate use their own"
            )
            yield finding("buffers-of-another-rank", 0.8, words)


def _cause_of_numbers(evidence: Evidence) -> str:
    """A rank's own, unless each rank has DataParallel's losses, and evaluates as many samples: then it has them all."""
    sides = evidence.reference, *evidence.ranks
    whole, *own = ([loss for line in trace.lines for loss in line["losses"]] for trace in sides)
    is_whole = all(len(each) == len(whole) and np.allclose(each, whole, _ROUNDING, 0.0) for each in own)
    counts = {tuple(count for count, _ in _evaluated(trace)) for trace in sides}
    if not whole or not is_whole or len(counts) > 1:
        return "local-numbers"
    begun = [step for first in evidence.steps_of_all[:1] for step in first.all]
    rows = [sorted(chain.from_iterable(calls_of(step))) for step in begun]
    return "repeated-rows" if any(rows) and all(each == rows[0] for each in rows) else "other-output"


_ROUNDING = 1e-9  # losses of the same rows, relative
_MEETINGS = ("barrier", "init_process_group", "destroy_process_group", "DistributedDataParallel")


def _sharded_evaluation(evidence: Evidence) -> Iterator[Finding]:
    """Ranks that share out what DataParallel evaluates as a whole, and put nothing together behind it, or too much."""
    if evidence.outside.stdout.first is None:
        return
    sides = [_evaluated(trace) for trace in (evidence.reference, *evidence.ranks)]
    for place, ((whole, _), *own) in enumerate(zip(*sides, strict=False)):
        counts = [count for count, _ in own]
        shared_out = whole and max(counts) < whole <= sum(counts)
        words = f"{sum_text(counts)} samples are evaluated, {whole} under DataParallel, before step {place}"
        if shared_out and not any(meets for _, meets in own):
            yield finding("local-numbers", 0.8, f"{words}; no collective puts their numbers together")
            return
        if shared_out and sum(counts) > whole:
            yield finding("padded-rows", 0.87, f"{words}: some count twice in what is printed of it")
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


def _tensor_cause(at: str, evidence: Evidence) -> str:
    """What a tensor under such keys is: `['net']['module.1.running_mean']`."""
    keys = re.findall(r"\['([^']*)'\]", at)
    name = plain_name(keys[-1]) if keys else ""
    if "running_" in name:
        return "buffers-of-another-rank"
    if name in {plain_name(full_name) for layout in evidence.reference.layouts for full_name in layout.names}:
        return "weights-of-another-step"
    if "state" in keys:  # of an optimizer
        return "other-output"
    in_model = name in {plain_name(full_name) for full_name in evidence.reference.buffers()}
    return "buffer-of-local-rows" if in_model or len(keys) > 1 else _cause_of_numbers(evidence)


def _files(evidence: Evidence) -> Iterator[Finding]:
    """Numbers in files tell something only if training is the same."""
    shared = {each.path for each in evidence.outside.files.different if each.ranks}
    for each in evidence.outside.files.different:
        text = f"{each.path} {each.what}"
        if each.ranks:
            yield finding("every-rank-writes", 0.875, text)
        elif each.path in shared:
            continue  # what several ranks wrote is what they left
        elif each.how is How.TENSOR and evidence.comparison.same:
            yield finding(_tensor_cause(each.at, evidence), 0.86, text)
        elif each.at.endswith(_TRAINERS_LOSS) and Path(each.path).name in _TRAINERS_METRICS:
            yield finding("trainers-loss", 0.865, text)
        elif each.how is How.NUMBERS and evidence.comparison.same:
            yield finding(_cause_of_numbers(evidence), 0.8, text)
        elif each.how in (How.DDP_ONLY, How.KEYS) or evidence.comparison.same:
            yield finding(*_CODES[each.how], text)


_CODES = {
    How.DDP_ONLY: ("doubled-files", 0.87),
    How.KEYS: ("other-keys", 0.88),
    How.MORE_LINES: ("doubled-lines", 0.88),
    How.WORDS: ("other-output", 0.8),
    How.OTHERWISE: ("other-output", 0.4),
}
