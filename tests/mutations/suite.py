"""Runs a port, changed, against its base's DataParallel run, which is made once."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from dp2ddp.comparison.aligned import Aligned
from dp2ddp.comparison.tolerance import FLOAT64
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.errors import RunError
from dp2ddp.options import VerifyOptions
from dp2ddp.runtime.process.run import Run, watch
from dp2ddp.runtime.process.server import Server
from dp2ddp.trial.judge import TrialRuns, aligned_pair, judge
from dp2ddp.trial.pair import Pair
from dp2ddp.trial.prepare import Prepared, RunKind, prepare
from dp2ddp.trial.subject import Subject, Version
from dp2ddp.trial.trial import MODES
from tests.diffs import Script, scripts

BASES = Path(__file__).resolve().parent / "bases"
SIDE_BY_SIDE = 2
TIMEOUT = 20.0  # seconds; a port that hangs has been found out, too


@dataclass(frozen=True)
class Change:
    """A port, changed."""

    name: str
    base: str
    text: str

    @staticmethod
    def of(case: Script) -> Change:
        return Change(case.name, Path(case.of).parent.name, case.body)


def folder_of(base: str) -> Path:
    return BASES / base


@functools.cache
def port(base: str) -> str:
    """The right one: printed, or a case of ports.diff."""
    return scripts(BASES.with_name("ports.diff"))[f"bases/{base}/train_ddp"].text


class Suite:
    """What a server runs on `world` devices, and the references that it has made."""

    def __init__(self, server: Server, scratch: Path, world: int) -> None:
        self._world = world
        self._server = server
        self._scratch = scratch
        self._count = itertools.count()
        self._references: dict[tuple[str, bool], tuple[Prepared, Run]] = {}
        self._lock = threading.RLock()
        self._kept = ExitStack()  # the copies of the references

    def __enter__(self) -> Suite:
        return self

    def __exit__(self, *exception: object) -> None:
        self._kept.close()

    def judge(self, change: Change) -> Verdict | str:
        """The verdict; the words of a failure if the port does not come to its end."""
        with ExitStack() as copies:
            return self._judge(change, self._scratch / f"{next(self._count)}", copies)

    def _judge(self, change: Change, room: Path, copies: ExitStack) -> Verdict | str:
        other = self._run(subject_of(change), RunKind("ddp", "float64"), room, copies)
        if other[1].failure:
            return f"{other[1].failure.kind}: {other[1].failure.text}"
        pair = Pair(self.reference(change.base), other, FLOAT64, port=True)
        if pair.may_be_rounding:
            pair = replace(pair, nudged=self.reference(change.base, nudged=True)[1])
        subject = subject_of(change)
        verdict = judge(subject, TrialRuns(pair), self._server, room)
        if verdict.float64.same or _is_clear(verdict):
            return verdict
        runs = TrialRuns(pair, aligned=self._aligned(subject, room, copies))
        return judge(subject, runs, self._server, room)

    def judge_all(self, changes: Sequence[Change]) -> list[Verdict | str]:
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            return list(pool.map(self.judge, changes))

    def _aligned(self, subject: Subject, room: Path, copies: ExitStack) -> Aligned:
        """With the same random numbers; verify runs this for every port that differs."""
        kinds = [RunKind(mode, "float64", aligned=True) for mode in MODES]
        left, right = (self._run(subject, kind, room, copies) for kind in kinds)
        pair = Pair(left, right, FLOAT64, port=True)
        return aligned_pair(subject, pair, self._server, room)

    def reference(self, base: str, nudged: bool = False) -> tuple[Prepared, Run]:
        with self._lock:
            return self._references.get((base, nudged)) or self._made(base, nudged)

    def _made(self, base: str, nudged: bool) -> tuple[Prepared, Run]:
        kind = RunKind("dp", "float64", nudged)
        prepared, run = self._run(
            subject_of(Change(base, base, port(base))), kind, self._scratch / base, self._kept
        )
        if run.failure:
            raise RunError(f"{base}/train.py: {run.failure.text}: {run.output(0, 'err')}")
        self._references[base, nudged] = prepared, run
        return prepared, run

    def _run(self, subject: Subject, kind: RunKind, room: Path, copies: ExitStack) -> tuple[Prepared, Run]:
        prepared = prepare(subject, kind, self._world, room)
        copies.callback(prepared.copies.close)
        running = self._server.start(prepared.stage)
        try:
            return prepared, watch([running], TIMEOUT)[0]
        finally:
            running.kill()


def _is_clear(verdict: Verdict) -> bool:
    """Whether the likeliest cause needs no aligned run to be told."""
    return bool(verdict.causes) and verdict.causes[0].weight >= 0.6


def subject_of(change: Change) -> Subject:
    folder = folder_of(change.base)
    return Subject(
        options=VerifyOptions("train.py", timeout=TIMEOUT),
        script=folder / "train.py",
        name="train.py",
        version=Version(change.text.encode(), "train_ddp.py"),
        folder=folder,
        rows_by_rank=True,
    )
