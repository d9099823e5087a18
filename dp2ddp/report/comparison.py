"""The result of `verify` in words: the verdict first, then the arithmetic behind it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import IO

from dp2ddp.comparison.aligned import unlike_text
from dp2ddp.comparison.causes.cause import Cause
from dp2ddp.comparison.compare import Comparison, Difference
from dp2ddp.comparison.differences import AT_END, FACTS, GRADIENTS
from dp2ddp.comparison.tolerance import FACTOR
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.report.script_changes import ScriptChange

_MOST_SIZES = 4  # of batches, in the line about rows
_MOST_CAUSES = 4
_MOST_EDITS = 4
_MOST_FILES = 4


@dataclass(frozen=True)
class Report:
    """All verdicts about a script."""

    script: str
    verdicts: tuple[Verdict, ...]
    launch: str
    seconds: float
    changes: tuple[ScriptChange, ...] = ()  # what became of the script
    surroundings: tuple[tuple[str, str], ...] = ()  # (label, words): versions, seeds, the command
    failure: str = ""  # why nothing was found on the next number of devices
    failed: Mapping[str, object] | None = None  # the same as data: who waited where (report/failure_text.py)
    accepted: tuple[Mapping[str, object], ...] = ()  # answered hazards (report/conversion_text.py)
    port: str = ""  # a version of the user's own, as the user named it
    convert: str = ""  # the command that writes our conversion, which `launch` starts

    @property
    def outcome(self) -> str:
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
        return not self.failure and all(verdict.same for verdict in self.verdicts)


def report_text(report: Report) -> str:
    """What print_report prints, without colours."""
    written = io.StringIO()
    print_report(report, written)
    return written.getvalue()


def print_report(report: Report, file: IO[str] | None = None) -> None:
    """To stdout; colour only on a terminal (rich asks, and honours NO_COLOR)."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True, file=file)
    colour = "bold green" if report.same else "bold red"
    word, _, rest = headline(report).partition(" ")
    console.print(Text.assemble((word, colour), " ", rest))
    for verdict in report.verdicts:
        console.print()
        console.print(Text(_count(verdict.world, "device"), style="bold"))
        for label, text, judged in facts(verdict):
            mark, style = _MARKS[judged]
            bold = "bold" if judged is Judged.BAD else ""
            console.print(Text.assemble((f"  {mark}  ", style), (f"{label:<11}", bold), text))
        for text, weighty in causes_text(verdict.causes):
            console.print(Text(text, style="bold" if weighty else ""))
    console.print()
    for answer in report.accepted:
        console.print(Text.assemble(("accepted   ", "bold"), str(answer["text"])))
    if report.convert:
        console.print(Text.assemble(("convert    ", "bold"), report.convert))
    console.print(Text.assemble(("launch     ", "bold"), report.launch))
    console.print(Text(f"verified in {report.seconds:.1f} s", style="dim"))


def headline(report: Report) -> str:
    """One sentence."""
    worlds = _listed([str(verdict.world) for verdict in report.verdicts]) if report.verdicts else ""
    devices = f"on {worlds} {'device' if worlds == '1' else 'devices'}"
    who = report.port or report.script
    if report.outcome == "nothing compared":
        return f"NOTHING COMPARED of {who}: no optimizer step, no backward pass, no line, no file"
    if report.failure and all(verdict.same for verdict in report.verdicts):
        so_far = (
            f"is the same {devices}, but could not be compared further" if worlds else "could not be compared"
        )
        return f"FAILED {who} {so_far}"
    if report.same:
        does = _does(report.verdicts)
        if report.port:
            return f"SAME {report.port} {does} as {report.script} under DataParallel, {devices}"
        return f"SAME {report.script} {does} under DataParallel and under DDP, {devices}"
    bad = next(verdict for verdict in report.verdicts if not verdict.same)
    other = f"{report.script} under DataParallel" if report.port else "DataParallel"
    return f"DIFFERENT {who} {_parting(bad, other)}, on {_count(bad.world, 'device')}"


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
        "leaves behind": any(verdict.files.files for verdict in verdicts),
    }
    return f"{' and '.join(part for part, is_there in parts.items() if is_there)} the same"


def _parting(verdict: Verdict, other: str) -> str:
    first = verdict.float64.first
    if verdict.unsteady:
        return f"cannot be judged: {other} is not the same twice: {difference_text(verdict.unsteady)}"
    if verdict.random_only:
        return f"draws other random numbers than {other}, and trains the same with the same ones"
    if verdict.hidden and first is None:
        return f"trains the same as {other} with the same random numbers, and cannot with its own: {verdict.hidden[0]}"
    if first is not None:
        return f"parts from {other} {_when(first, verdict.float64)}: {_thing(first)}"
    if verdict.single_only:
        return "trains the same in float64, and otherwise in float32 (half precision on one side?)"
    if verdict.only_gradients:
        return "takes no optimizer step, so there is no gradient to compare"
    if not verdict.stdout.same or verdict.printing_ranks:
        return "prints other lines" if verdict.trained else "prints other lines (it takes no optimizer step)"
    if not verdict.files.same:
        shared = [each for each in verdict.files.different if each.ranks]
        only = len(shared) == len(verdict.files.different)
        return f"writes {shared[0].path} on several ranks at once" if only else "leaves other files behind"
    return "ends with another exit code"


class Judged(Enum):
    """How a line of the report counts."""

    GOOD = "good"
    BAD = "bad"
    SHOWN = "shown"  # for information: it has no part in the verdict


_MARKS = {Judged.GOOD: ("ok", "green"), Judged.BAD: ("!!", "bold red"), Judged.SHOWN: ("--", "dim")}
Fact = tuple[str, str, Judged]


def facts(verdict: Verdict) -> Iterator[Fact]:
    """(label, text, how it is judged), one for each line of the report."""
    double = verdict.float64
    yield from (("original", sentence, Judged.SHOWN) for sentence in verdict.unshared)
    yield "steps", _steps(double), _judged(set(double.rank_steps) <= {double.steps})
    if double.rows:
        rows = rows_text(double.rows, verdict.world)
        if double.rank_rows:
            rows += f" under DataParallel; the ranks have {rows_text(double.rank_rows, verdict.world)}"
        yield "rows", rows, _judged(double.same or not double.rank_rows)
    if verdict.trained:
        yield "float64", _float64(double), _judged(double.same)
        yield from (("", text, Judged.BAD) for text in _beside(double))
        yield from (("", sentence, Judged.BAD) for sentence in verdict.hidden)
        yield from _aligned(verdict)
        if single := verdict.float32:
            ordered = ", with sums over ranks added in rank order" if verdict.world > 2 else ""
            yield _or_shown(
                "float32",
                _float32(single) + ordered,
                not verdict.single_only,
                shown=single.first is not None and not verdict.single_only,
            )
    shown = verdict.only_gradients
    yield _or_shown("stdout", _stdout(verdict), verdict.stdout.same and not verdict.printing_ranks, shown)
    yield from (
        (
            "",
            f"line {number} is {_shown(actual)}, under DataParallel {_shown(expected)}",
            Judged.SHOWN if shown else Judged.BAD,
        )
        for number, expected, actual in verdict.stdout.others
    )
    first, *others = _files(verdict)
    yield _or_shown("files", first, verdict.files.same, shown)
    yield from (("", text, Judged.SHOWN if shown else Judged.BAD) for text in others)
    codes = f"{verdict.codes[0]} and {verdict.codes[1]}"
    yield _or_shown("exit codes", codes, verdict.codes[0] == verdict.codes[1], shown)
    yield from (("on stderr", f"of DataParallel: {line}", Judged.SHOWN) for line in verdict.last_words)
    seconds = "DataParallel {:.1f} s, torchrun {:.1f} s".format(*verdict.seconds)
    beside = "not all runs at once, for want of memory" if verdict.in_turn else "both at once"
    yield "time", f"{seconds} (float64, {beside})", Judged.SHOWN
    if double.unchecked:
        yield "note", "not checked: " + ", ".join(each.value for each in double.unchecked), Judged.SHOWN
    yield from (("note", remark, Judged.SHOWN) for remark in (*verdict.remarks, *double.remarks))


def _judged(good: bool) -> Judged:
    return Judged.GOOD if good else Judged.BAD


def _or_shown(label: str, text: str, good: bool, shown: bool) -> Fact:
    return (label, f"{text} (shown, not judged)", Judged.SHOWN) if shown else (label, text, _judged(good))


def _aligned(verdict: Verdict) -> Iterator[Fact]:
    """What became of a port with DataParallel's batches and dropout."""
    if verdict.aligned is None:
        return
    aligned = verdict.aligned
    text = _float64(aligned.comparison) if aligned.comparison.steps else "no step to compare"
    given = "random numbers and initial weights" if aligned.taken else "random numbers"
    yield "aligned", f"with DataParallel's {given}: {text}", _judged(aligned.comparison.same)
    yield from (("", sentence, Judged.BAD) for sentence in aligned.unshared)
    if aligned.unlike:
        yield "", unlike_text(aligned.unlike), Judged.BAD


def _steps(comparison: Comparison) -> str:
    if not comparison.stepped:
        return _passes(comparison)
    if not comparison.steps and not any(comparison.rank_steps) and comparison.unstepped_losses:
        return (
            "no optimizer takes one: what models hold at the end is compared"
            + (", and the losses of " if "loss" in comparison.parts else "; there were ")
            + _count(comparison.unstepped_losses, "backward pass", "backward passes")
        )
    if not comparison.steps and not any(comparison.rank_steps):
        return "none: the script takes no optimizer step, so lines, files and exit codes are compared"
    if set(comparison.rank_steps) == {comparison.steps}:
        return f"{comparison.steps} on every rank"
    ranks = ", ".join(f"rank {rank}: {count}" for rank, count in enumerate(comparison.rank_steps))
    return f"{comparison.steps} under DataParallel; {ranks}"


def _passes(comparison: Comparison) -> str:
    """The fact on steps, for a script whose optimizers take none."""
    counts = {comparison.steps, *comparison.rank_steps}
    what = "gradients" if "gradient" in comparison.parts else "losses"
    count = " or ".join(map(str, sorted(counts)))
    passes = "backward pass" if counts == {1} else "backward passes"
    return f"no optimizer takes one: the {what} of {count} {passes} are compared"


def rows_text(rows: Sequence[tuple[int, ...]], world: int) -> str:
    """`32 rows over 2 ranks: 16 + 16; 6: 3 + 3`, each size of batch once, as they came."""
    sizes = list(dict.fromkeys(rows))
    texts = [f"{sum(each)}: {_sum(each, world)}" for each in sizes[1:_MOST_SIZES]]
    more = [f"{len(sizes) - _MOST_SIZES} more sizes"] if len(sizes) > _MOST_SIZES else []
    first = f"{_count(sum(sizes[0]), 'row')} over {_count(world, 'rank')}: {_sum(sizes[0], world)}"
    return "; ".join([first, *texts, *more])


def _sum(rows: tuple[int, ...], world: int) -> str:
    return " + ".join(str(row) for row in (*rows, *[0] * (world - len(rows))))


def _float64(comparison: Comparison) -> str:
    if comparison.first is not None:
        return _found(comparison.first, comparison)
    if comparison.identical and comparison.parts:
        exact, rounded = _exact_parts(comparison)
        text = f"every {_listed(exact)} is the same to the last bit"
        return f"{text}, each {_listed(rounded)} but for rounding" if rounded else text
    text = f"largest difference {_largest(comparison.largest)}, {_beside_noise(comparison)}"
    if comparison.noisy and comparison.noise:
        text += (
            f". {_count(comparison.noisy, 'number')} with a gradient of pure rounding"
            f" (a bias in front of a normalisation?) came {comparison.noise:.0e} apart"
        )
    return text


def _exact_parts(comparison: Comparison) -> tuple[list[str], list[str]]:
    """What was compared: to the last bit the same; but for rounding."""
    largest = comparison.largest
    inexact = {largest.kind} if largest is not None and largest.size else set()
    exact = [part for part in comparison.parts if part not in inexact]
    return exact, [part for part in comparison.parts if part in inexact]


def _float32(comparison: Comparison) -> str:
    if comparison.identical:
        steps = f" in all {_steps_counted(comparison)}" if comparison.steps else ""
        return f"bit for bit the same{steps}"
    if comparison.first is not None:
        first = comparison.first
        return f"beyond natural noise: {_found(first, comparison)}"
    same = f"{comparison.identical_steps} of {_steps_counted(comparison)} bit for bit the same"
    if comparison.largest is None or comparison.largest.size == 0:  # 0.0 and -0.0
        return f"{same}, and every number equal in the others"
    return f"{same}; largest difference {_largest(comparison.largest)}, {_beside_noise(comparison)}"


def _steps_counted(comparison: Comparison) -> str:
    words = ("step", "steps") if comparison.stepped else ("backward pass", "backward passes")
    return _count(comparison.steps, *words)


def _beside_noise(comparison: Comparison) -> str:
    """How large the differences are beside what rounding alone would make of this training."""
    if comparison.worst is None:
        return "as it should be"
    if comparison.noise_ratio is None:
        return (
            f"at most {comparison.worst.ulps:.2g} ulps: rounding (up to {FACTOR:g} ulps need no second look)"
        )
    return f"at most {comparison.noise_ratio:.2g} x natural noise (allowed {FACTOR:g} x)"


def _largest(difference: Difference | None) -> str:
    if difference is None or difference.size == 0:
        return "0"
    return f"{difference.size:.1e} ({_thing(difference)}, {_when(difference)})"


def _when(difference: Difference, comparison: Comparison | None = None) -> str:
    if difference.kind in AT_END:
        return "at the end"
    passes = comparison is not None and not comparison.stepped
    return f"{'in backward pass' if passes else 'at step'} {difference.step}"


def _thing(difference: Difference) -> str:
    if difference.kind == "unstepped parameter":
        return f"parameter {difference.name} (which no optimizer steps)" + _on_rank(difference)
    named = difference.kind in (*GRADIENTS, "parameter", "final parameter", "final buffer")
    joint = " of " if named else ": " if difference.kind in FACTS else " "
    what = f"{difference.kind}{joint}{difference.name}" if difference.name else difference.kind
    return what + _on_rank(difference)


def _on_rank(difference: Difference) -> str:
    return f" on rank {difference.rank}" if difference.rank else ""


def _found(difference: Difference, comparison: Comparison) -> str:
    """What differs, where, and how far; a fact is no number."""
    text = f"{_thing(difference)} {_when(difference, comparison)}"
    return text if difference.kind in FACTS else f"{text}: {_amount(difference)}"


def difference_text(difference: Difference) -> str:
    """What differs, where, and how far, where no natural noise was measured."""
    text = f"{_thing(difference)} {_when(difference)}"
    exact = difference.kind in FACTS or difference.size == float("inf")
    return text if exact else f"{text}, {difference.size:.1e} apart"


def _amount(difference: Difference) -> str:
    return (
        "missing on one side"
        if difference.size == float("inf")
        else f"{difference.size:.1e} apart ({difference.ulps:.2g} ulps), {difference.noise_ratio:.2g} x natural noise"
    )


def _beside(comparison: Comparison) -> Iterator[str]:
    if comparison.first is None:
        return
    gradient = next((each for each in (comparison.first, *comparison.also) if each.kind in GRADIENTS), None)
    if gradient is not None and gradient.ratio is not None:
        yield f"gradients are {gradient.ratio:.6g} times as long as under DataParallel"
    loss = next((each for each in (comparison.first, *comparison.also) if each.kind == "loss"), None)
    if loss is not None and loss.size != float("inf"):
        yield f"loss on rank {loss.rank} is {loss.norm:.6g}, under DataParallel {loss.reference_norm:.6g}"
    if len(comparison.agreeing_ranks) == 1:
        yield "at that step all ranks have the same gradients and parameters"
    elif comparison.agreeing_ranks:
        groups = (_listed([str(rank) for rank in group]) for group in comparison.agreeing_ranks)
        yield "at that step the same gradients and parameters on ranks: " + " | ".join(groups)


def causes_text(causes: Sequence[Cause]) -> Iterator[tuple[str, bool]]:
    """The likeliest cause with its figures and advice, others by their titles: (line, whether it stands out)."""
    for cause in causes[:1]:
        yield f"  likely     {cause.title} [{cause.code}]", True
        yield from ((f"             {each}", False) for each in cause.evidence)
        yield f"  to change  {cause.advice}", False
        if cause.edits:
            yield f"  edits      {'; '.join(cause.edits[:_MOST_EDITS])}", False
    for cause in causes[1:_MOST_CAUSES]:
        yield f"  or         {cause.title} [{cause.code}] {'; '.join(cause.evidence[:1])}", False


def _stdout(verdict: Verdict) -> str:
    text = verdict.stdout
    if verdict.printing_ranks:
        ranks = _listed([str(rank) for rank in verdict.printing_ranks])
        return f"rank {ranks} prints as well, DataParallel speaks once"
    if text.first is not None:
        number, expected, actual = text.first
        order = "the same lines in another order; " if text.only_order else ""
        return f"{order}line {number} is {_shown(actual)}, under DataParallel {_shown(expected)}"
    details = [f"{text.rounded} but for rounding"] * bool(text.rounded) + [
        f"{text.masked} but for times"
    ] * bool(text.masked)
    return f"{_count(text.lines, 'line')}, the same" + (f" ({', '.join(details)})" if details else "")


def _files(verdict: Verdict) -> list[str]:
    """A line for each file that differs, or for all of which one thing is to say; those that are too many, counted."""
    files = verdict.files
    if files.same:
        return [f"{_count(files.files, 'file')} left behind, the same" if files.files else "none left behind"]
    paths: dict[str, list[str]] = {}
    for each in files.different:
        paths.setdefault(each.what, []).append(each.path)
    lines = [f"{_paths(those)} {what}" for what, those in paths.items()]
    left = sum(map(len, list(paths.values())[_MOST_FILES:]))
    return [*lines[:_MOST_FILES], *[f"and {left} more"] * bool(left)]


def _paths(paths: Sequence[str]) -> str:
    """`a.pt`, or `a.pt (and b.pt, c.pt, d.pt and 12 more)`: what is said behind it holds for each."""
    if len(paths) == 1:
        return paths[0]
    more = f" and {len(paths) - _MOST_FILES} more" if len(paths) > _MOST_FILES else ""
    return f"{paths[0]} (and {', '.join(paths[1:_MOST_FILES])}{more})"


def _shown(line: str) -> str:
    return repr(line if len(line) <= 70 else line[:67] + "...")


def _count(number: int, noun: str, nouns: str = "") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {nouns or noun + 's'}"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
