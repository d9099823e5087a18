"""Converts scripts of the corpus to the idiomatic style, and runs them on two ranks: `python running.py [WORD ...]`."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from corpus.cases import Case, all_cases  # noqa: E402
from ranks import stage_of  # noqa: E402

from dp2ddp.codemod.conversion import Conversion, Options  # noqa: E402
from dp2ddp.codemod.idiomatic.convert import convert_idiomatic  # noqa: E402
from dp2ddp.errors import ConversionError  # noqa: E402
from dp2ddp.runtime.process.run import Run, watch  # noqa: E402
from dp2ddp.runtime.process.server import Server  # noqa: E402
from dp2ddp.source.old_code import mended_files  # noqa: E402
from dp2ddp.trace.records import read_trace  # noqa: E402
from dp2ddp.trial.runs import environment  # noqa: E402

TIMEOUT = 20.0  # seconds without progress


@dataclass(frozen=True)
class Outcome:
    """What became of a script: the word says it in one."""

    word: str
    text: str = ""


def scripts() -> list[Case]:
    """Those that the exact style converts, without notebooks."""
    return [case for case in all_cases() if case.answer is None and case.runs and case.path.suffix == ".py"]


def converted_here(case: Case, folder: Path) -> Conversion:
    """A copy of the script and its project in a folder, converted in place there."""
    script = case.copied_to(folder)
    for path, data in mended_files(case.project(script)).items():
        path.write_bytes(data)
    conversion = convert_idiomatic(case.project(script), Options(style="idiomatic"))
    for file in conversion.changed_files:
        assert file.before.path
        file.before.path.write_bytes(file.data)
    return conversion


def run(case: Case, folder: Path, conversion: Conversion, server: Server) -> Run:
    """The converted script on two ranks."""
    assert conversion.before.path
    place = {name: str(folder.parent / word) for name, word in (("run_folder", "run"), ("trace", "trace"))}
    told = {"folder": str(folder), "module": case.module, "arguments": case.arguments}
    stage = stage_of(conversion.before.path, "ddp", seed=20, **told, **place)
    (ended,) = watch([server.start(stage)], TIMEOUT)
    return ended


def where_apart(trace: Path) -> str:
    """The parameters that differ between the ranks behind the last step of an optimizer, in a bit or more."""
    one, other = ({step.optimizer: step for step in read_trace(trace, rank).steps()} for rank in (0, 1))
    if one.keys() != other.keys():
        return "other optimizers"
    return ", ".join(
        name
        for optimizer, step in one.items()
        for name, left, right in zip(
            step.layout.names, step.parameters.hashes, other[optimizer].parameters.hashes, strict=True
        )
        if left != right
    )


def outcome(case: Case, server: Server) -> Outcome:
    """Convert a script, and run it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve() / "folder"
        try:
            conversion = converted_here(case, folder)
        except ConversionError as error:
            return Outcome("error", str(error))
        if conversion.hazards:
            return Outcome("refused", "; ".join(f"{each.line} {each.because}" for each in conversion.hazards))
        if not conversion.changed:
            return Outcome("untouched")
        ended = run(case, folder, conversion, server)
        if ended.failure is None or ended.ended_on_purpose:
            apart = where_apart(folder.parent / "trace")
            return Outcome("apart", apart) if apart else Outcome("runs")
        rank = ended.failure.rank or 0
        places = "\n".join(map(str, ended.failure.positions)) if ended.failure.kind == "hang" else ""
        text = f"rank {rank}: {ended.failure.text}\n{places}{ended.output(rank, 'err')[-1500:]}"
        return Outcome(ended.failure.kind, text)


def main() -> None:
    """One line a script, and how many run."""
    os.chdir(ROOT)
    wanted = sys.argv[1:]
    counts: dict[str, int] = {}
    with Server(environment()) as server:
        for case in scripts():
            if wanted and not any(word in case.name for word in wanted):
                continue
            start = time.monotonic()
            found = outcome(case, server)
            counts[found.word] = counts.get(found.word, 0) + 1
            shown = "" if found.word == "runs" else f" {found.text}"
            print(f"{found.word:9} {case.name} {time.monotonic() - start:.1f} s{shown}", flush=True)
    print(counts)


if __name__ == "__main__":
    main()
