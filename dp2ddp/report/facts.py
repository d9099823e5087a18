"""What is found about both runs on one number of devices, in words: a fact for each line of a report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dp2ddp.comparison.compare import Comparison, Difference
from dp2ddp.comparison.differences import AT_END, FACTS, GRADIENTS
from dp2ddp.comparison.output_comparison import FilesComparison, Outside
from dp2ddp.comparison.tolerance import FACTOR
from dp2ddp.comparison.verdict import Verdict
from dp2ddp.report.result_document import Fact, Judged
from dp2ddp.words import counted, listed, names_text, sum_text

_MOST_SIZES = 4  # of batches, in the line about rows
_MOST_FILES = 4


def facts(verdict: Verdict) -> Iterator[Fact]:
    """One for each line of the report."""
    double, shown = verdict.float64, verdict.only_gradients
    yield from (Fact("original", sentence, Judged.SHOWN) for sentence in verdict.unshared)
    yield Fact("steps", _steps(double), _judged(set(double.rank_steps) <= {double.steps}))
    if double.rows:
        rows = rows_text(double.rows, verdict.world)
        if double.rank_rows:
            rows += f" under DataParallel; the ranks have {rows_text(double.rank_rows, verdict.world)}"
        yield Fact("rows", rows, _judged(double.same or not double.rank_rows))
    if verdict.trained:
        yield Fact("float64", _float64(double), _judged(double.same))
        yield from _more((*_beside(double), *verdict.hidden))
        yield from _aligned(verdict)
        if single := verdict.float32:
            ordered = ", with sums over ranks added in rank order" if verdict.world > 2 else ""
            counts = verdict.single_only or single.first is None
            yield _or_shown("float32", _float32(single) + ordered, not verdict.single_only, not counts)
    yield _or_shown("stdout", _stdout(verdict), verdict.prints_the_same, shown)
    others = (_unlike_lines(*each) for each in verdict.stdout.others)
    yield from _more(others, shown)
    first, *files = _files(verdict.files)
    yield _or_shown("files", first, verdict.files.same, shown)
    yield from _more(files, shown)
    codes = f"{verdict.codes[0]} and {verdict.codes[1]}"
    yield _or_shown("exit codes", codes, verdict.codes[0] == verdict.codes[1], shown)
    yield from (Fact("on stderr", f"of DataParallel: {line}", Judged.SHOWN) for line in verdict.last_words)
    seconds = "DataParallel {:.1f} s, torchrun {:.1f} s".format(*verdict.seconds)
    beside = "not all runs at once, for lack of memory" if verdict.in_turn else "both at once"
    yield Fact("time", f"{seconds} (float64, {beside})", Judged.SHOWN)
    if double.unchecked:
        unchecked = ", ".join(each.value for each in double.unchecked)
        yield Fact("note", f"not checked: {unchecked}", Judged.SHOWN)
    yield from (Fact("note", remark, Judged.SHOWN) for remark in verdict.all_remarks)


def _judged(good: bool) -> Judged:
    return Judged.GOOD if good else Judged.BAD


def _or_shown(label: str, text: str, good: bool, shown: bool) -> Fact:
    return (
        Fact(label, f"{text} (shown, not judged)", Judged.SHOWN)
        if shown
        else Fact(label, text, _judged(good))
    )


def _more(texts: Iterable[str], shown: bool = False) -> Iterator[Fact]:
    """What is wrong with the thing above, beside what is said there."""
    return (Fact("", text, Judged.SHOWN if shown else Judged.BAD) for text in texts)


def _aligned(verdict: Verdict) -> Iterator[Fact]:
    """What became of a port with DataParallel's batches and dropout."""
    if verdict.aligned is None:
        return
    aligned = verdict.aligned
    text = _float64(aligned.comparison) if aligned.comparison.steps else "no step to compare"
    given = "random numbers and initial weights" if aligned.drawn.taken else "random numbers"
    yield Fact("aligned", f"with DataParallel's {given}: {text}", _judged(aligned.comparison.same))
    yield from _more(aligned.drawn.faults)
    if aligned.comparison.same:  # else they show what training makes of them
        still = [_stdout(aligned)] * (not aligned.prints_the_same)
        still += _files(aligned.files) if not aligned.files.same else []
        yield from _more((f"with them, too, {text}" for text in still), verdict.only_gradients)


def _steps(comparison: Comparison) -> str:
    if not comparison.stepped:
        counts = {comparison.steps, *comparison.rank_steps}
        what = "gradients" if "gradient" in comparison.parts else "losses"
        passes = "backward pass" if counts == {1} else "backward passes"
        count = " or ".join(map(str, sorted(counts)))
        return f"no optimizer takes one: the {what} of {count} {passes} are compared"
    if not comparison.steps and not any(comparison.rank_steps) and comparison.unstepped_losses:
        return (
            "no optimizer takes one: what models hold at the end is compared"
            + (", and the losses of " if "loss" in comparison.parts else "; there were ")
            + counted(comparison.unstepped_losses, "backward pass", "backward passes")
        )
    if not comparison.steps and not any(comparison.rank_steps):
        return "none: the script takes no optimizer step, so lines, files and exit codes are compared"
    if set(comparison.rank_steps) == {comparison.steps}:
        return f"{comparison.steps} on every rank"
    ranks = ", ".join(f"rank {rank}: {count}" for rank, count in enumerate(comparison.rank_steps))
    return f"{comparison.steps} under DataParallel; {ranks}"


def rows_text(rows: Sequence[tuple[int, ...]], world: int) -> str:
    """`32 rows over 2 ranks: 16 + 16; 6: 3 + 3`, each size of batch once, as they came."""
    sizes = list(dict.fromkeys(rows))
    texts = [f"{sum(each)}: {_sum(each, world)}" for each in sizes[1:_MOST_SIZES]]
    more = [f"{len(sizes) - _MOST_SIZES} more sizes"] if len(sizes) > _MOST_SIZES else []
    first = f"{counted(sum(sizes[0]), 'row')} over {counted(world, 'rank')}: {_sum(sizes[0], world)}"
    return "; ".join([first, *texts, *more])


def _sum(rows: tuple[int, ...], world: int) -> str:
    return sum_text((*rows, *[0] * (world - len(rows))))


def _float64(comparison: Comparison) -> str:
    if comparison.first is not None:
        return _found(comparison.first, comparison)
    if comparison.identical and comparison.parts:
        largest = comparison.largest  # of what is not the same to the last bit
        inexact = {largest.kind} if largest is not None and largest.size else set()
        exact = [part for part in comparison.parts if part not in inexact]
        rounded = [part for part in comparison.parts if part in inexact]
        text = f"every {listed(exact)} is the same to the last bit"
        return f"{text}, each {listed(rounded)} up to rounding" if rounded else text
    text = f"largest difference {_largest(comparison.largest)}, {_beside_noise(comparison)}"
    rounding = comparison.so_far
    if rounding.noisy and rounding.noise:
        text += (
            f". {counted(rounding.noisy, 'number')} with a gradient of pure rounding"
            f" (a bias in front of a normalisation?) came {rounding.noise:.0e} apart"
        )
    return text


def _float32(comparison: Comparison) -> str:
    if comparison.identical:
        steps = f" in {'all ' * (comparison.steps > 1)}{_steps_counted(comparison)}"
        return f"bit for bit the same{steps * bool(comparison.steps)}"
    if comparison.first is not None:
        first = comparison.first
        return f"beyond natural noise: {_found(first, comparison)}"
    same = f"{comparison.identical_steps} of {_steps_counted(comparison)} bit for bit the same"
    if comparison.largest is None or comparison.largest.size == 0:  # 0.0 and -0.0
        return f"{same}, and every number equal in the others"
    return f"{same}; largest difference {_largest(comparison.largest)}, {_beside_noise(comparison)}"


def _steps_counted(comparison: Comparison) -> str:
    words = ("step", "steps") if comparison.stepped else ("backward pass", "backward passes")
    return counted(comparison.steps, *words)


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
    return f"{difference.size:.1e} ({thing_of(difference)}, {when_of(difference)})"


def when_of(difference: Difference, comparison: Comparison | None = None) -> str:
    if difference.kind in AT_END:
        return "at the end"
    passes = comparison is not None and not comparison.stepped
    return f"{'in backward pass' if passes else 'at step'} {difference.step}"


def thing_of(difference: Difference) -> str:
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
    text, size = f"{thing_of(difference)} {when_of(difference, comparison)}", difference.size
    if difference.kind in FACTS:
        return text
    if size == float("inf"):
        return f"{text}: missing on one side"
    far = f"{size:.1e} apart ({difference.ulps:.2g} ulps), {difference.noise_ratio:.2g} x natural noise"
    return f"{text}: {far}"


def difference_text(difference: Difference) -> str:
    """What differs, where, and how far, where no natural noise was measured."""
    text = f"{thing_of(difference)} {when_of(difference)}"
    exact = difference.kind in FACTS or difference.size == float("inf")
    return text if exact else f"{text}, {difference.size:.1e} apart"


def _beside(comparison: Comparison) -> Iterator[str]:
    if comparison.first is None:
        return
    gradient = next((each for each in (comparison.first, *comparison.also) if each.kind in GRADIENTS), None)
    if gradient is not None and gradient.ratio is not None:
        yield f"gradients are {gradient.ratio:.6g} times as long as under DataParallel"
    loss = next((each for each in (comparison.first, *comparison.also) if each.kind == "loss"), None)
    if loss is not None and loss.size != float("inf"):
        yield f"loss on rank {loss.rank} is {loss.norm:.6g}, under DataParallel {loss.reference_norm:.6g}"
    if len(comparison.ranks_that_agree) == 1:
        yield "at that step all ranks have the same gradients and parameters"
    elif comparison.ranks_that_agree:
        groups = (listed([str(rank) for rank in group]) for group in comparison.ranks_that_agree)
        yield "at that step the same gradients and parameters on ranks: " + " | ".join(groups)


def _stdout(outside: Outside) -> str:
    text = outside.stdout
    if outside.printing_ranks:
        ranks = listed([str(rank) for rank in outside.printing_ranks])
        return f"rank {ranks} prints as well; under DataParallel one process prints"
    if text.first is not None:
        return "the same lines in another order; " * text.only_order + _unlike_lines(*text.first)
    details = [f"{text.rounded} up to rounding"] * bool(text.rounded) + [
        f"{text.masked} apart from times"
    ] * bool(text.masked)
    return f"{counted(text.lines, 'line')}, the same" + (f" ({', '.join(details)})" if details else "")


def _files(files: FilesComparison) -> list[str]:
    """A line for each file that differs, or for all of which one thing is to say; those that are too many, counted."""
    if files.same:
        return [f"{counted(files.files, 'file')} written, the same" if files.files else "none written"]
    paths: dict[str, list[str]] = {}
    for each in files.different:
        paths.setdefault(each.what, []).append(each.path)
    lines = [f"{_paths(those)} {what}" for what, those in paths.items()]
    left = sum(map(len, list(paths.values())[_MOST_FILES:]))
    return [*lines[:_MOST_FILES], *[f"and {left} more"] * bool(left)]


def _paths(paths: Sequence[str]) -> str:
    """`a.pt`, or `a.pt (and b.pt, c.pt, d.pt, e.pt and 12 more)`: what is said behind it holds for each."""
    return f"{paths[0]} (and {names_text(paths[1:])})" if len(paths) > 1 else paths[0]


def _unlike_lines(number: int, expected: str, actual: str) -> str:
    lines = (repr(line if len(line) <= 70 else line[:67] + "...") for line in (actual, expected))
    return f"line {number} is {', under DataParallel '.join(lines)}"
