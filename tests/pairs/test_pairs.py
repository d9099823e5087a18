"""Hand-made ports: verify says of each what its head says, and of none that it hangs or fails.

ORIGINAL/train is the original, ORIGINAL/... are its ports: printed whole, or in tests/pairs/ports.diff (tests/diffs.py
reads it). A port says
# verify: same                                  or
# verify: different, KIND: why it is            KIND: of the first difference, or stdout, files, exit code
# random: only                                  the headline: trains the same with the same random numbers
# cause: CODE|CODE                              that diagnosis puts first; where two are as right, both
# also: CODE CODE                               that it tells behind it
# worlds: 2 4                                   2 unless given
# arguments: --epochs 1                         of both
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

import pytest
from covering import covering, slow_but_for

from dp2ddp.comparison.causes.catalogue import catalogue
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.options import VerifyOptions
from dp2ddp.progress import SILENT
from dp2ddp.report.comparison import Report, print_report
from dp2ddp.runtime.process.server import Server
from dp2ddp.trial.scripts import starts_its_ranks
from dp2ddp.trial.subject import Subject, Version
from dp2ddp.trial.trial import run_trial
from tests.diffs import Script, scripts
from tests.mutations.faults import FAULTS

HERE = Path(__file__).resolve().parent
HEAD = {"verify", "random", "cause", "also", "worlds", "arguments"}
STARTS = ("spawn(", "Process(", "notebook_launcher(", "accelerate", "lightning")  # ranks
PLANTED = {
    code for fault in FAULTS for code in fault.causes.split("|")
}  # tests/mutations plants each of these
TIMEOUT = 120.0  # seconds without progress; the machine may be busy


@dataclass(frozen=True)
class Port:
    """One version that somebody wrote."""

    script: Script
    answer: str  # same; or the kind of the first difference
    causes: tuple[str, ...]
    also: frozenset[str]
    random_only: bool
    worlds: tuple[int, ...]
    arguments: tuple[str, ...]

    @property
    def original(self) -> str:
        return self.script.name.partition("/")[0]


def read_port(script: Script) -> Port:
    said = script.said
    assert said.keys() <= HEAD, f"{script.name}: {said.keys() - HEAD}"
    answer, _, why = said["verify"].partition(":")
    assert answer == "same" or (answer.startswith("different, ") and why), f"{script.name}: {said['verify']}"
    causes = tuple(said.get("cause", "").split("|"))
    assert set(causes) <= {"", *catalogue()}, f"{script.name}: {said['cause']}"
    return Port(
        script,
        answer.removeprefix("different, "),
        causes,
        frozenset(said.get("also", "").split()),
        said.get("random") == "only",
        tuple(int(world) for world in said.get("worlds", "2").split()),
        tuple(said.get("arguments", "").split()),
    )


SCRIPTS = scripts(HERE / "ports.diff")
PORTS = [read_port(script) for name, script in sorted(SCRIPTS.items()) if not name.endswith("/train")]
RUNS = [(port, world) for port in PORTS for world in port.worlds]


def features(run: tuple[Port, int]) -> set[Hashable]:
    """What is said of a port, of which original, how it starts its ranks, with which library."""
    port, world = run
    said = {*port.causes, *port.also, port.answer, ("random only", port.random_only)} - PLANTED
    starts = {word for word in STARTS if word in port.script.body}
    return {*said, *starts, (port.original, port.answer == "same"), world}


def name(run: tuple[Port, int]) -> str:
    return f"{run[0].script.name}-{run[1]}"


COVERING = covering(RUNS, features)
# doubles decide what differs; float32 is run and told beside it, here of one port for each kind of difference
DIFFER_IN_FLOAT32 = covering(
    [run for run in COVERING if run[0].answer != "same"], lambda run: {run[0].answer}
)


@pytest.mark.torchrun
@pytest.mark.parametrize("run", slow_but_for(COVERING, RUNS, name))
def test_verify_says_of_a_port_what_is_true(
    run: tuple[Port, int], server: Server, tmp_path: Path, wants_all: bool
) -> None:
    port, world = run
    folder, scratch = tmp_path / "folder", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    (folder / "train.py").write_text(SCRIPTS[f"{port.original}/train"].text, encoding="utf-8")
    converted = folder / "train_ddp.py"
    converted.write_text(port.script.text, encoding="utf-8")
    subject = Subject(
        options=VerifyOptions("train.py", arguments=port.arguments, timeout=TIMEOUT),
        script=folder / "train.py",
        name="train.py",
        version=Version(converted.read_bytes(), "train_ddp.py", starts_ranks=starts_its_ranks(converted)),
        folder=folder,
        rows_by_rank=True,
        torchrun=False,
        float32=wants_all or port.answer == "same" or run in DIFFER_IN_FLOAT32,
        port=converted,
    )
    verdict = run_trial(subject, world, server, scratch, SILENT)
    print_report(Report(port.script.name, (verdict,), "", 0.0))  # pytest shows it where this is false
    assert first_difference(verdict) == port.answer
    assert verdict.random_only or not port.random_only
    assert port.also <= {cause.code for cause in verdict.causes}
    assert port.causes == ("",) or verdict.causes[0].code in port.causes


def first_difference(verdict: Verdict) -> str:
    """The kind of thing that differs, the nearest to a cause first; "same" if nothing does."""
    if verdict.float64.first is not None:
        return verdict.float64.first.kind
    if not verdict.stdout.same or verdict.printing_ranks:
        return "stdout"
    if not verdict.files.same:
        return "files"
    return "same" if verdict.same else "exit code"
