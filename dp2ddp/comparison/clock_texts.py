"""What a clock said, in lines, in names of files and of numbers: it differs between any two runs."""

from __future__ import annotations

import re

# 12:03:55, 2026-11-21, 1.1m 2.3m/1.9h (of an epoch; until now, in all), 1.25s, 2s295ms, 31 ms/step, 5.2it/s,
# 23 fps, FPS 23, time: 0.31, time is 0.31, tokens per sec: 31, ms/batch 31.2, Time 0.312 (0.298), dur_total : 1.05
_CLOCK = re.compile(
    r"\d{4}-\d\d-\d\d[ T]?|\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?"
    r"|(?<![\w.])(?:\d+\.\d+[smh]\s)?\d+\.\d+[smh]/\d+\.\d+[smh]\b"
    r"|(?<![\w.])(?=\d+[Ddhms]\d)(?:\d+[Dd])?(?:\d+h)?(?:\d+m(?:in)?)?(?:\d+(?:\.\d+)?s)?(?:\d+ms)?(?<=[hms])(?!\w)"
    r"|(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?\s?(?:ms|us|s|sec|secs|seconds|min|minutes|(?i:fps)(?!\W{0,3}\d))\b(?:/[A-Za-z]\w*)?"
    r"|(?<![\w.])\d+(?:\.\d+)?\s?[A-Za-z]+/s(?:ec|econd)?\b"
    r"|(?i:(?:(?:/\s?|\bper )s(?:ec(?:ond)?s?)?|\b(?:m?s|m?secs?|seconds)(?:/| per )[a-z]\w*)\W{1,3})\d+(?:\.\d+)?"
    r"|(?i:(?:time|elapsed|took|eta|duration|\bfps|\bdur(?:_\w+)?)"
    r"(?: is| was| of| for \w+| cost| used| taken| spent| \(data\))?\W{0,3})"
    r"(?:\d+ days?, )?(?:<time>|\d+(?::\d\d)*(?:\.\d+)?)(?:e-?\d+)?(?:\s?\(\s*\d+\.\d+\))?"
    r"|(?<=COMPLETED': )\d+\.\d+"  # of ignite's state.times
)
# What tqdm and fastprogress draw, and draw over: how often, a clock says
_DRAWN_OVER = re.compile(r"(?<![^\r\n])[^\r\n]*\d:\d\d<[\d?][^\r\n]*\r(?!\n)")
# A meter of times and, in the same line, one of the times that loading took: Time 0.312 (0.298) Data 0.010 (0.009)
_TIME_METER = re.compile(r"\b(?:(?i:time)|BT)\W{0,3}\d+\.\d+\s?\(\s*\d+\.\d+\)")
_DATA_METER = re.compile(r"\b(?:(?i:data)|BT|DT)\W{0,3}\d+\.\d+\s?\(\s*\d+\.\d+\)")
# Both without averages, side by side: Time:0.312 Data:0.010
_TIME_AND_DATA = re.compile(r"(?i)(\btime\W{0,3}\d+\.\d+[\s,|]+data\W{0,3})\d+\.\d+\b")
# The same, and in a name: Sat Nov 21 17:25:30 2026, 2026-11-21, 20261121-155241, 1121_155241, 15_52_41,
# Nov21_15-52-41, 1795276362.13
_CLOCK_IN_NAME = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d\d:\d\d:\d\d 20\d\d"
    r"|(?<!\d)(?:20\d\d([-_.]?)\d\d\1\d\d|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\d\d)"
    r"(?:[-_T ]*\d\d[-_:.]?\d\d(?:[-_:.]?\d\d)?(?:[.,]\d+)?)?(?!\d)"
    r"|(?<!\d)(?:0\d|1[0-2])[0-3]\d_[0-2]\d[0-5]\d[0-5]\d(?!\d)"
    r"|(?<!\d)\d\d[-_:]\d\d[-_:]\d\d(?:[-_:]\d\d|\.\d{3,6})?(?!\d)|(?<!\d)1[5-9]\d{8}(?:\d{3})?(?:\.\d+)?(?!\d)"
)
# Names of such numbers: time, data_time, train_runtime, step_time_ms, steps_per_sec, throughput, img/s; no time_steps.
# Beside them what else depends on the machine, and on how rows are padded: train_mem_cpu_peaked_delta, total_flos
_TIME_NAME = re.compile(
    r"(?i)(?:^|[^a-z])(?:(?:run)?time(?![ _-]?steps?)|timings?|timestamp|eta|m?secs?|ms|seconds?|minutes"
    r"|duration|elapsed|fps|speed|throughput)(?:[^a-z]|$)|/s$|_mem_[cg]pu|^total_flos$"
)
# "train_runtime": 3.64, throughput=640.5, 'step_time_ms' : 100, 'train_runtime': '3.64', total_flos =  12GF
_NAMED_NUMBER = re.compile(
    r"(?P<name>[A-Za-z][\w/.-]*)(?P<sign>[\"']?\s*[:=]\s*[\"']?)"
    r"(?P<number>-?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?:[KMGT][BF])?)(?![\w.])"
)
_BAR = re.compile(r"[━╸╺]+")  # of rich: it gives way to times
_CELLS = re.compile(r" *(?:[,;|]|\t[ \t]*) *")
_BARE_NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


class Columns:
    """Columns of times in a table: the names stand in one line, the numbers alone in those behind it."""

    def __init__(self) -> None:
        self.width = 0
        self.times: frozenset[int] = frozenset()

    def see(self, line: str) -> None:
        """A line of names, if it is one, tells what stands in the columns of the lines behind it."""
        names = _CELLS.split(line.strip())
        times = frozenset(index for index, name in enumerate(names) if is_time(name))
        if times and len(names) > 1 and not any(map(_BARE_NUMBER.fullmatch, names)):
            self.width, self.times = len(names), times

    def without_times(self, line: str) -> str:
        """A line of a table with `<time>` in the columns whose names say that they hold times."""
        cells = _CELLS.split(line.strip())
        if len(cells) != self.width:
            return line
        return ",".join(
            "<time>" if index in self.times and _BARE_NUMBER.fullmatch(cell) else cell
            for index, cell in enumerate(cells)
        )


def is_time(name: str) -> bool:
    """Whether a number of this name is a time, or so many a second; or memory, or operations."""
    return bool(_TIME_NAME.search(name))


def without_clock(line: str) -> str:
    """A line with `<time>` in the place of whatever a clock said, and without the blanks that make room for it."""
    if _TIME_METER.search(line):
        line = _DATA_METER.sub("<time>", line)
    line = _TIME_AND_DATA.sub(r"\1<time>", line)
    line = _NAMED_NUMBER.sub(
        lambda named: f"{named['name']}{named['sign']}<time>" if is_time(named["name"]) else named[0],
        _CLOCK.sub("<time>", without_times(line)),
    )
    return _BAR.sub("━", " ".join(line.split())) if "<time>" in line else line


def without_redrawn(text: str) -> str:
    """A text as a terminal leaves it: of a progress bar, what is drawn last."""
    return _DRAWN_OVER.sub("", text)


def without_times(name: str) -> str:
    """The name of a file."""
    return _CLOCK_IN_NAME.sub("<time>", name)
