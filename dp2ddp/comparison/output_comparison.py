"""What the outside sees: lines on stdout, and files left behind."""

from __future__ import annotations

import difflib
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from dp2ddp.comparison.clock_texts import Columns, without_clock, without_redrawn, without_times
from dp2ddp.comparison.contents import (
    How,
    Spelling,
    Unlike,
    content_hash,
    have_same_words,
    is_of_start,
    library_file,
    notes_processes,
    opened,
)
from dp2ddp.comparison.events import event_lines, is_event_file
from dp2ddp.comparison.tolerance import Tolerance
from dp2ddp.copies.leavings import FilesLeft

# (name, DataParallel's file, that of the DDP version) -> by name what differs
CompareValues = Callable[[Sequence[tuple[str, str, str]]], Mapping[str, Unlike | None]]
NO_LINE = "(no such line)"
_AFTER, _WIDE = 20, 400  # lines after a difference that a report shows, and letters of each
_MOST_OTHERS, _MOST_ALIGNED = 4, 2000  # sorts of lines that are told; lines that are looked at for them
_SINGLE = 2.5e-7  # TensorBoard keeps numbers in float32: a last digit may round the other way
_VALUES = (".json", ".jsonl", ".csv")  # compared as lines first, then by what they hold
TORCH_FILES = (".pt", ".pth", ".tar", ".ckpt", ".bin", ".pkl", ".t7", ".model", ".safetensors")
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b")


class UnlikeLine(NamedTuple):
    """A line that differs: its number from 1, as DataParallel has it, as the other has it."""

    line: int
    dp: str
    ddp: str


@dataclass(frozen=True)
class TextComparison:
    """Two texts, line by line."""

    lines: int
    first: UnlikeLine | None  # None: the same
    rounded: int = 0  # lines whose numbers differ beyond the digits that count
    masked: int = 0  # lines that say what a clock said
    only_order: bool = False  # the same lines, in another order
    others: tuple[UnlikeLine, ...] = ()  # as `first`: one of each further sort of line that differs

    @property
    def same(self) -> bool:
        """Whether no line differs by more than rounding or a clock."""
        return self.first is None


def compare_text(reference: str, other: str, tolerance: Tolerance) -> TextComparison:
    """Lines are the same if their words are, and their numbers but for rounding."""
    expected, actual = (without_redrawn(text).splitlines() for text in (reference, other))
    if expected == actual:
        return TextComparison(len(expected), None)
    rounded = masked = 0
    columns = Columns()
    for number, (a, b) in enumerate(zip_longest(expected, actual), 1):
        if a is None or b is None:
            return _different(expected, actual, number, tolerance)
        how = _how_same(a, b, tolerance, columns)
        if how is None:
            return _different(expected, actual, number, tolerance)
        rounded += how == "rounded"
        masked += how == "clock"
        columns.see(a)
    return TextComparison(len(expected), None, rounded, masked)


def _different(expected: list[str], actual: list[str], number: int, tolerance: Tolerance) -> TextComparison:
    pair = (lines[number - 1] if number <= len(lines) else NO_LINE for lines in (expected, actual))
    first = UnlikeLine(number, *pair)
    if sorted(expected) == sorted(actual):
        return TextComparison(len(expected), first, only_order=True)
    others = tuple(_others(expected, actual, first, tolerance))
    return TextComparison(len(expected), first, others=others[:_MOST_OTHERS])


def _others(
    expected: list[str], actual: list[str], first: UnlikeLine, tolerance: Tolerance
) -> Iterator[UnlikeLine]:
    """Beside the first difference: each further sort of line that differs, once; a sort is what its words are.

    Lines are put side by side by their words, so that one line too many does not make all behind it differ.
    """
    a, b = ([_words(line) for line in lines[:_MOST_ALIGNED]] for lines in (expected, actual))
    seen, columns = {_words(first.dp), _words(first.ddp)}, Columns()
    for _, i, i_end, j, j_end in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        for x, y in zip_longest(range(i, i_end), range(j, j_end)):
            line = NO_LINE if x is None else expected[x]
            other = NO_LINE if y is None else actual[y]
            sorts = {_words(line), _words(other)} - {_words(NO_LINE)}
            if not sorts & seen and _how_same(line, other, tolerance, columns) is None:
                seen |= sorts
                yield UnlikeLine((y if x is None else x) + 1, line, other)
            columns.see(line)


def _words(line: str) -> str:
    return _NUMBER.sub("#", without_clock(line))


def _how_same(a: str, b: str, tolerance: Tolerance, columns: Columns) -> str | None:
    if a == b:
        return "equal"
    if _same_numbers(a, b, tolerance.number):
        return "rounded"
    a, b = (without_clock(columns.without_times(line)) for line in (a, b))
    return "clock" if _same_numbers(a, b, tolerance.number) else None


def _same_numbers(a: str, b: str, allowed: float) -> bool:
    if _NUMBER.sub("#", a) != _NUMBER.sub("#", b):
        return False
    pairs = zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True)
    return all(x == y or _close(x, y, allowed) for x, y in pairs)


def _close(x: str, y: str, allowed: float) -> bool:
    """Numbers with a fraction are equal but for rounding; whole numbers are counts, and counts are exact."""
    a, b = float(x), float(y)
    whole = re.fullmatch(r"[-+]?\d+", x) and re.fullmatch(r"[-+]?\d+", y)
    return not whole and math.isfinite(a - b) and abs(a - b) <= allowed * max(abs(a), abs(b))


@dataclass(frozen=True)
class FileDifference:
    """A file that one run left and the other did not, or left with other content."""

    path: str
    what: str
    texts: tuple[str, str] = ("", "")  # of a text file: lines around the first that differs, for a report
    ranks: tuple[int, ...] = ()  # those that wrote it, where they should not all
    how: How = How.OTHERWISE
    at: str = ""  # as in Unlike


@dataclass(frozen=True)
class FilesComparison:
    """What both left behind."""

    files: int
    different: tuple[FileDifference, ...]
    of_libraries: tuple[str, ...] = ()  # what differs, and is about how a library was started, in words

    @property
    def same(self) -> bool:
        """Whether both left the same files, with the same content but for rounding and clocks."""
        return not self.different


@dataclass(frozen=True, kw_only=True)
class Outside:
    """What the outside sees of two runs, compared."""

    stdout: TextComparison = TextComparison(0, None)
    printing_ranks: tuple[int, ...] = ()  # ranks other than 0 that printed something
    files: FilesComparison = FilesComparison(0, ())
    codes: tuple[int, int] = (0, 0)  # exit codes: DataParallel, torchrun

    @property
    def prints_the_same(self) -> bool:
        """Whether rank 0 alone prints, and DataParallel's lines."""
        return self.stdout.same and not self.printing_ranks


@dataclass(frozen=True)
class OwnCode:
    """What was converted: a run that keeps a copy of its code keeps the converted one, under its new name."""

    digests: Mapping[str, str] = field(default_factory=dict)  # of each converted file: of the original
    names: Mapping[str, str] = field(default_factory=dict)  # train_ddp.py: train.py

    def pairs(self, expected: set[str], actual: set[str]) -> dict[str, str]:
        """Copies of the script under both its names."""
        named = {
            str(Path(path).with_name(self.names[Path(path).name])): path
            for path in actual
            if Path(path).name in self.names
        }
        return {original: path for original, path in named.items() if original in expected}


def compare_files(
    expected: FilesLeft,
    actual: FilesLeft,
    tolerance: Tolerance,
    code: OwnCode | None = None,
    spellings: tuple[Spelling, Spelling] = (Spelling(), Spelling()),
    compare_values: CompareValues = lambda pairs: {},
) -> FilesComparison:
    """Compare names and contents; by their values those of torch, and texts that hold values."""
    code = code or OwnCode()
    both = {*expected.written, *actual.written}
    events, of_starts = set(filter(is_event_file, both)), set(filter(is_of_start, both))
    a, b = (set(each.written) - events - of_starts for each in (expected, actual))
    pairs = {path: path for path in a & b} | code.pairs(a - b, b - a)
    pairs |= pairs_but_for_times(a - pairs.keys(), b - set(pairs.values()))
    removed = _odd(expected.removed, actual.removed)
    folders = _odd(timeless(expected.folders), timeless(actual.folders))
    ddp_only = sorted(b - set(pairs.values()))
    different = [
        *(FileDifference(path, "is written by DataParallel only") for path in sorted(a - pairs.keys())),
        *(FileDifference(path, "is written by DDP only", how=How.DDP_ONLY) for path in ddp_only),
        *(FileDifference(path, "is removed on one side only") for path in removed),
        *(FileDifference(path, "is a folder on one side only") for path in folders),
        *_compare_events(expected, actual, tolerance),
    ]
    tensors: list[tuple[str, str, str]] = []
    for path, other in sorted(pairs.items()):
        here, there = expected.place(path), actual.place(other)
        # links: what is in such folders is compared by itself, and the file of a link may be gone
        if not (here.is_file() and there.is_file()):
            ways = spellings[0].plain(expected.leads(path)), spellings[1].plain(actual.leads(other))
            text = f"leads to {ways[1]} instead of {ways[0]}"
            different += [FileDifference(path, text)] * (ways[0] != ways[1])
            continue
        if notes_processes(path):
            continue
        hashes = content_hash(here), content_hash(there)
        if hashes[0] in (hashes[1], code.digests.get(hashes[1])):
            continue
        texts = _text(here), _text(there)
        if texts[0] is None or texts[1] is None or path.endswith(TORCH_FILES):
            tensors.append((path, str(here), str(there)))
            continue
        lines = spellings[0].plain(texts[0]), spellings[1].plain(texts[1])
        unlike_lines = list(_compare_lines(path, *lines, tolerance))
        different += unlike_lines
        if unlike_lines and path.endswith(_VALUES):
            tensors.append((path, str(here), str(there)))
    values = compare_values(tensors)
    by_lines = {each.path: each for each in different}
    different = [each for each in different if each.path not in values]
    different += [
        replace(by_lines.get(path, FileDifference(path, "")), **vars(unlike))
        for path, unlike in values.items()
        if unlike
    ]
    on_one_side = sorted(of_starts & set(_odd(expected.written, actual.written)))
    rows = map(library_file, [*on_one_side, *(path for path, unlike in values.items() if not unlike)])
    return FilesComparison(
        len(a | b) - sum(path != other for path, other in pairs.items()) + len(events) // 2,
        tuple(different),
        tuple(dict.fromkeys(row.words for row in rows if row)),
    )


def pairs_but_for_times(expected: set[str], actual: set[str]) -> dict[str, str]:
    """Names that say when they were written differ between any two runs: paired in their order, if as many."""
    pairs: dict[str, str] = {}
    for name in {without_times(path) for path in expected}:
        these, those = (
            sorted(path for path in paths if without_times(path) == name) for paths in (expected, actual)
        )
        if len(these) == len(those) and "<time>" in name:
            pairs |= dict(zip(these, those, strict=True))
    return pairs


def timeless(paths: Iterable[str]) -> list[str]:
    """Paths without the times in their names, sorted."""
    return sorted(map(without_times, paths))


def _odd(a: Sequence[str] | frozenset[str], b: Sequence[str] | frozenset[str]) -> list[str]:
    return sorted(set(a) ^ set(b))


def _compare_events(expected: FilesLeft, actual: FilesLeft, tolerance: Tolerance) -> Iterator[FileDifference]:
    """TensorBoard's: the name holds a time, the host and a process id, so they are compared folder by folder."""
    single = replace(tolerance, number=max(tolerance.number, _SINGLE))
    folders: list[dict[str, list[Path]]] = [defaultdict(list), defaultdict(list)]
    for each, paths in zip((expected, actual), folders, strict=True):
        for path in sorted(filter(is_event_file, each.written)):
            paths[without_times(str(Path(path).parent))].append(each.place(path))
    for folder in sorted({*folders[0], *folders[1]}):
        a, b = (files[folder] for files in folders)
        if len(a) != len(b):
            yield FileDifference(folder, f"has {len(b)} TensorBoard files, {len(a)} under DataParallel")
        else:
            here, there = (
                "\n".join(line for path in files for line in event_lines(path)) for files in (a, b)
            )
            yield from _compare_lines(folder, here, there, single)


def _compare_lines(path: str, a: str, b: str, tolerance: Tolerance) -> Iterator[FileDifference]:
    compared = compare_text(a, b, tolerance)
    if compared.first:
        number, x, y = compared.first
        counts = len(a.splitlines()), len(b.splitlines())
        how = How.NUMBERS if have_same_words(x, y) else How.WORDS
        more = f"; {counts[1]} lines instead of {counts[0]}" if counts[0] != counts[1] else ""
        what = f"line {number}: {_shown(x)} under DataParallel, {_shown(y)} under DDP{more}"
        texts = _around(a, number), _around(b, number)
        yield FileDifference(path, what, texts, how=How.MORE_LINES if counts[1] > counts[0] else how)


def _around(text: str, number: int) -> str:
    """Lines around one, few enough to be shown."""
    return "\n".join(line[:_WIDE] for line in text.splitlines()[max(number - 4, 0) : number + _AFTER])


def _text(path: Path) -> str | None:
    try:
        with opened(path) as file:
            return file.read().decode("utf-8")
    except (UnicodeDecodeError, OSError, EOFError):
        return None


def _shown(line: str) -> str:
    return repr(line if len(line) <= 60 else line[:57] + "...")
