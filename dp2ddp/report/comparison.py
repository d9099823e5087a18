"""The result of `verify` in words: the verdict first, then the arithmetic behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dp2ddp.comparison.causes.catalogue import Cause
from dp2ddp.comparison.compare import Comparison
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.report import result_document as doc
from dp2ddp.report.conversion_report import Accepted
from dp2ddp.report.facts import difference_text, facts, thing_of, when_of
from dp2ddp.report.failure_text import Failed, Position
from dp2ddp.report.script_changes import ScriptChange, printed_diff, text_diff
from dp2ddp.report.surroundings import surroundings_facts
from dp2ddp.report.text_form import document_text, print_document
from dp2ddp.words import counted, listed

_MOST_CAUSES, _MOST_EDITS = 4, 4
_MOST_FILES = 30
_MOST_FRAMES = 8
_BEFORE, _MOST_LINES = 20, 400  # of what was printed: above the first line that differs, in all


@dataclass(frozen=True)
class Report:
    """All verdicts about a script."""

    script: str
    verdicts: tuple[Verdict, ...]
    launch: str
    seconds: float
    changes: tuple[ScriptChange, ...] = ()  # what became of the script
    surroundings: Mapping[str, str] = field(default_factory=dict)  # versions, seeds, the command
    failure: str = ""  # why nothing was found on the next number of devices
    failed: Failed | None = None  # the same as data: who waited where
    accepted: tuple[Accepted, ...] = ()  # answered hazards
    port: str = ""  # a version of the user's own, as the user named it
    convert: str = ""  # the command that writes our conversion, which `launch` starts

    @property
    def outcome(self) -> Literal["same", "different", "nothing compared", "failed"]:
        """In one word or two, for programs."""
        if any(verdict.compared_nothing for verdict in self.verdicts):
            return "nothing compared"
        if any(not verdict.same for verdict in self.verdicts):
            return "different"
        return "failed" if self.failure else "same"

    @property
    def same(self) -> bool:
        """Whether both trained the same on all numbers of devices that were asked for: a run that failed proves
        nothing."""
        return self.outcome == "same"


def report_text(report: Report) -> str:
    """What print_report prints, without colours."""
    return document_text(comparison_document(report, whole=False))


def print_report(report: Report) -> None:
    """To stdout; colour only on a terminal."""
    print_document(comparison_document(report, whole=False))


def comparison_document(report: Report, whole: bool = True) -> doc.Document:
    """All of it; a terminal needs no charts and no differences of files, which take their time."""
    word, sentence, judged = _outcome(report)
    causes = next((verdict.causes for verdict in report.verdicts if verdict.causes), ())
    remarks = [f"Likely cause: {causes[0].title}"] if causes else []
    remarks += [f"It ended early: {report.failure.splitlines()[0]}"] if report.failure else []
    columns = ("verdict", "float64, at most", "float32, at most", "stdout", "files")
    rows = tuple(map(_glance, report.verdicts))
    glance = doc.Table("Each number of devices", columns, rows, of="devices")
    changes = (doc.Changes(report.changes),) if report.changes else ()
    what_failed = "Where each rank stands" if _hangs(report) else "The run that failed"
    sections = doc.filled(
        doc.Fold(
            what_failed,
            tuple(_failure(report.failure, report.failed)),
            "failed",
            "Ranks" if _hangs(report) else "Failure",
            is_open=True,
        ),
        doc.Fold("At a glance", (glance,) if len(report.verdicts) > 1 else (), "glance"),
        *(
            doc.Section(
                counted(verdict.world, "device"),
                (*_found(verdict), *(_behind(verdict) if whole else ())),
                f"w{verdict.world}",
                judged=doc.Judged.GOOD if verdict.same else doc.Judged.BAD,
            )
            for verdict in report.verdicts
        ),
        doc.Section("What to do next", tuple(_next(report)), "next", first=True),
        doc.Fold("What changed in the script", changes, "script", "Script", is_open=True),
        doc.Fold(
            "Environment",
            surroundings_facts("Where and how it was verified", report.surroundings),
            "surroundings",
        ),
    )
    return doc.Document(
        "verify", f"{word} · {report.script}", word, sentence, judged, sections, tuple(remarks)
    )


def _next(report: Report) -> Iterator[doc.Block]:
    if report.accepted:
        differs = not all(verdict.same for verdict in report.verdicts)
        suspected = ": what differs may come from it" if differs else ""
        yield doc.Items(tuple(f"{answer['text']}{suspected}" for answer in report.accepted), label="accepted")
    convert = doc.Command("write it with", report.convert, "Writes the version that was compared.")
    start = doc.Command("start it with", report.launch, "Trains on the GPUs, one process each.")
    if commands := (*[convert] * bool(report.convert), *[start] * (not report.failure)):
        yield doc.Commands(commands)
    yield doc.Paragraph(f"verified in {report.seconds:.1f} s", is_remark=True)


def _found(verdict: Verdict) -> Iterator[doc.Block]:
    yield doc.Facts("What was compared", tuple(facts(verdict)))
    if verdict.causes:
        cards = (
            _card(cause, is_minor=number > 0) for number, cause in enumerate(verdict.causes[:_MOST_CAUSES])
        )
        yield doc.Cards(tuple(cards), caption="Likely causes")


def _card(cause: Cause, is_minor: bool) -> doc.Card:
    details: list[tuple[str, doc.Words]] = [("", each) for each in cause.evidence]
    details.append(("to change", cause.advice))
    if cause.edits:
        details.append(("edits", "; ".join(cause.edits[:_MOST_EDITS])))
    title = f"{cause.title} [{cause.code}]"
    return doc.Card("or" if is_minor else "likely", title, tuple(details), is_minor=is_minor)


def _behind(verdict: Verdict) -> Iterator[doc.Block]:
    """Charts, all figures, and what differs in texts."""
    from dp2ddp.report.step_figures import step_figures

    yield from step_figures(verdict)
    printed = printed_diff(verdict, before=_BEFORE, most=_MOST_LINES)
    if printed:
        around = "Lines of DataParallel (−) and of DDP (+) around the first line that is not the same."
        yield doc.Diff("Difference of what was printed", printed, around)
    different = verdict.files.different
    yield from (
        doc.Diff(f"{each.path} {each.what}", text_diff(*each.texts)) for each in different[:_MOST_FILES]
    )
    if len(different) > _MOST_FILES:
        yield doc.Diff(f"{len(different) - _MOST_FILES} more files differ", ())


def _hangs(report: Report) -> bool:
    return bool(report.failed and report.failed["kind"] == "hang")


def _failure(text: str, failed: Failed | None) -> Iterator[doc.Block]:
    """Where each rank stands, and what the run that failed said."""
    if not text:
        return
    first, *positions = text.splitlines()
    yield doc.Paragraph(first)
    if positions:
        yield doc.Items(tuple(position.strip() for position in positions))
    if failed and failed["ranks"]:
        yield doc.Cards(tuple(_rank(position, failed["rank"]) for position in failed["ranks"]), beside=True)
    if failed and failed["output"]:
        of = "" if failed["rank"] is None else f" (rank {failed['rank']})"
        yield doc.Output(f"What it said on stderr{of}", failed["output"], is_open=failed["kind"] == "crash")


def _rank(position: Position, odd: int | None) -> doc.Card:
    rank = position["rank"]
    title = f"rank {rank}" if rank >= 0 else "the process that starts the ranks"
    return doc.Card("", title, tuple(_doing(position)), position["source"] or "", is_odd=rank == odd)


def _doing(position: Position) -> Iterator[tuple[str, doc.Words]]:
    if position["ended"]:
        yield "", position["ended"]
    if position["collective"] or position["doing"]:
        yield (
            "",
            f"waits in {position['collective']}" if position["collective"] else f"is in {position['doing']}",
        )
    for frame in position["frames"][:_MOST_FRAMES]:  # innermost first
        function = "" if frame["function"] == "<module>" else f" in {frame['function']}"
        yield "", (doc.Code(f"{frame['file']}:{frame['line']}"), function)


def _glance(verdict: Verdict) -> doc.Row:
    cells = (
        "same" if verdict.same else "different",
        _amount(verdict.float64),
        _amount(verdict.float32) if verdict.float32 else "not run",
        "same" if verdict.prints_the_same else "different",
        "same" if verdict.files.same else "different",
    )
    judged = doc.Judged.GOOD if verdict.same else doc.Judged.BAD
    return doc.Row(str(verdict.world), cells, judged=judged, anchor=f"w{verdict.world}")


def _amount(comparison: Comparison) -> str:
    if comparison.identical:
        return "the same bits"
    return f"{comparison.largest.size:.1e}" if comparison.largest else "-"


def headline(report: Report) -> str:
    """One sentence."""
    return " ".join(_outcome(report)[:2])


def _outcome(report: Report) -> tuple[str, str, doc.Judged]:
    """The verdict in a word or two, the sentence behind it, and how it counts."""
    who, worlds = report.port or report.script, listed([str(verdict.world) for verdict in report.verdicts])
    on = f"on {worlds} {'device' if worlds == '1' else 'devices'}" if worlds else ""
    if report.outcome == "nothing compared":
        last = report.verdicts[-1]
        ended = f"and it ends with exit code {last.codes[0]}" if last.codes[0] else "no line, no file"
        nothing = (
            "its losses are NaN or infinite" if last.lost else f"no optimizer step, no backward pass, {ended}"
        )
        return "NOTHING COMPARED", f"of {who}: {nothing}", doc.Judged.UNKNOWN
    if report.outcome == "failed":
        so_far = f"is the same {on}, but could not be compared further" if on else "could not be compared"
        return "FAILED", f"{who} {so_far}", doc.Judged.UNKNOWN
    if report.same:
        under = (
            f"as {report.script} under DataParallel" if report.port else "under DataParallel and under DDP"
        )
        return "SAME", f"{who} {_does(report.verdicts)} {under}, {on}", doc.Judged.GOOD
    bad = next(verdict for verdict in report.verdicts if not verdict.same)
    other = f"{report.script} under DataParallel" if report.port else "DataParallel"
    return "DIFFERENT", f"{who} {_parting(bad, other)}, on {counted(bad.world, 'device')}", doc.Judged.BAD


def _does(verdicts: Sequence[Verdict]) -> str:
    """What is the same: no more than was compared."""
    if any(verdict.float64.steps and verdict.float64.stepped for verdict in verdicts):
        return "trains the same"
    if any(verdict.float64.steps for verdict in verdicts):
        return "computes the same gradients"
    if any(verdict.trained for verdict in verdicts):
        return "trains the same"
    parts = {
        "prints": any(verdict.stdout.lines for verdict in verdicts),
        "writes": any(verdict.files.files for verdict in verdicts),
    }
    return f"{' and '.join(part for part, is_there in parts.items() if is_there)} the same"


def _but(verdict: Verdict) -> str:
    """What is not the same with the same random numbers either, though training is."""
    aligned = verdict.aligned
    if aligned is None or verdict.only_gradients:
        return ""
    parts = {"prints other lines": aligned.prints_the_same, "writes other files": aligned.files.same}
    others = [part for part, same in parts.items() if not same]
    return f", but {listed(others)}" if others else ""


def _parting(verdict: Verdict, other: str) -> str:
    first = verdict.float64.first
    if verdict.unsteady:
        return f"cannot be judged: {other} is not the same twice: {difference_text(verdict.unsteady)}"
    if verdict.by_hashes:
        order = "iterates over a set of strings in another order on each rank"
        return f"{order}, and trains the same as {other} in one order"
    if verdict.random_only:
        return (
            f"draws other random numbers than {other}, and trains the same with the same ones{_but(verdict)}"
        )
    if verdict.hidden and first is None:
        return f"trains the same as {other} with the same random numbers, and cannot with its own: {verdict.hidden[0]}"
    if first is not None:
        still = verdict.still_parts
        judged, so = (still, " with the same random numbers, too,") if still else (verdict.float64, "")
        first = judged.first or first
        return f"parts from {other}{so} {when_of(first, judged)}: {thing_of(first)}"
    if verdict.single_only:
        return "trains the same in float64, and otherwise in float32 (half precision on one side?)"
    if verdict.only_gradients:
        return "takes no optimizer step, so there is no gradient to compare"
    if not verdict.prints_the_same:
        return "prints other lines" if verdict.trained else "prints other lines (it takes no optimizer step)"
    if not verdict.files.same:
        shared = [each for each in verdict.files.different if each.ranks]
        only = len(shared) == len(verdict.files.different)
        return f"writes {shared[0].path} on several ranks at once" if only else "writes other files"
    return "ends with another exit code"
