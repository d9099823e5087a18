"""Where each rank stands: reads what faulthandler wrote about the threads of a process."""

from __future__ import annotations

import importlib.util
import itertools
import linecache
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import FrameType, TracebackType

from dp2ddp.source.helper_module import is_helper_module, pasted_in

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
_SAYS = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception): .")  # torch puts what it would have taken below
_RUNTIME = str(Path(__file__).parents[1])
_PACKAGE = f"{Path(__file__).parents[2]}/"  # the recorder's frames, too, where dp2ddp is installed in place
_EVERY_LINE = range(sys.maxsize)
_HOOK_FILES = """
    taps runtime/process/writes runtime/hang/stacks runtime/virtual_cuda/virtual_files
    runtime/virtual_cuda/function_mode runtime/perturb/seeds
"""
_HOOKS = tuple(f"{_PACKAGE}{name}.py" for name in _HOOK_FILES.split())
_FOREIGN = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen")


@dataclass(frozen=True)
class Frame:
    """A line that is being executed."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        where = "" if self.function == "<module>" else f" in {self.function}"
        return f"{Path(self.file).name}:{self.line}{where}"


@dataclass
class Ending:
    """How a script ended on a rank."""

    code: int = 0
    error: str = ""  # the line of its traceback that says what happened: the last one that names an error
    place: str = ""  # the user's line that it came from

    @classmethod
    def by(cls, error: BaseException, code: int) -> Ending:
        """The end that an exception made."""
        lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
        text = next((line for line in reversed(lines) if _SAYS.match(line)), lines[-1])
        return cls(code, text, place_of(error.__traceback__))


def place_of(trace: TracebackType | None) -> str:
    """The innermost line of the user's in a traceback."""
    place = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if is_users(code.co_filename, trace.tb_lineno):
            place = str(Frame(code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    return place


@dataclass(frozen=True)
class RankPosition:
    """Where a rank is: frames of the user's own code, innermost first, and what it does or waits for there."""

    rank: int
    frames: tuple[Frame, ...] = ()
    collective: str | None = None  # that it waits in
    doing: str = ""  # what it does in no collective: a function that the innermost frame called
    source: str = ""  # the innermost frame's line
    ended: str = ""  # how, of a rank that is no longer there
    helper: str = ""  # a helper of a conversion that it has called: ask_rank0
    # the line that called it, if it calls the innermost frame: other ranks may wait for its end
    inside: str = ""

    def __str__(self) -> str:
        who = f"rank {self.rank}" if self.rank >= 0 else "the process that starts the ranks"
        if self.ended:
            return f"{who} {self.ended}"
        source = f": {self.source}" if self.source and not self.collective else ""
        return f"{who} {self.action} {self.where}{source}"

    @property
    def where(self) -> str:
        """The user's lines, innermost first, in words."""
        places = ", called from ".join(str(frame) for frame in self.frames[:3])
        inside = f", inside {self.helper}" if self.inside else ""
        return f"at {places}{inside}" if places else "outside the script"

    @property
    def action(self) -> str:
        if self.collective:
            of_helper = f"{self.helper}'s " if self.helper and not self.inside else ""
            return f"waits in {of_helper}{self.collective}"
        return f"is in {self.doing}" if self.doing else "is"


def read_position(text: str, rank: int, mode: str = "ddp") -> RankPosition | None:
    """The newest dump in a rank's `.stacks` file; None if it never answered."""
    frames = _newest(text)
    if frames is None:
        return None
    users = [index for index, frame in enumerate(frames) if is_users(frame.file, frame.line)]
    innermost = users[0] if users else len(frames)
    helper = _helper(frames)
    return RankPosition(
        rank,
        tuple(frames[index] for index in users),
        collective_of(frames) if mode == "ddp" else None,
        _callee(frames[:innermost]) if users else "",
        _source(frames[innermost]) if users else "",
        helper=frames[helper].function if helper >= 0 else "",
        inside=str(frames[helper + 1]) if helper > innermost else "",
    )


def _helper(frames: list[Frame]) -> int:
    """The place of the outermost helper that a line of the user's calls by its name; -1 if there is none."""
    calls = reversed(list(enumerate(itertools.pairwise(frames))))
    return next((place for place, (inner, outer) in calls if _calls_helper(outer, inner)), -1)


def _calls_helper(outer: Frame, inner: Frame) -> bool:
    is_helper = inner.file.startswith(_templates()) or inner.line in _helpers(inner.file)
    return is_helper and is_users(outer.file, outer.line) and f"{inner.function}(" in _source(outer)


def _newest(text: str) -> list[Frame] | None:
    """The frames of the thread that runs the script, innermost first."""
    threads = [
        _frames(block) for block in re.split(r"^(?:Current thread|Thread) .*$", text, flags=re.MULTILINE)[1:]
    ]
    in_runtime = [frames for frames in threads if any(frame.file.startswith(_RUNTIME) for frame in frames)]
    return in_runtime[-1] if in_runtime else None


def _callee(inner: list[Frame]) -> str:
    """What the user's line called, of the frames within it; "" for a function in C."""
    frame = next((frame for frame in reversed(inner) if not _is_of_dp2ddp(frame.file)), None)
    if frame is None:
        return ""
    if frame.file.endswith("/torch/utils/data/dataloader.py"):
        return "a DataLoader, waiting for a batch"
    parts = [part for part in _FOREIGN if part in frame.file]
    return f"{frame.function} ({frame.file.rpartition(parts[0])[2]})" if parts else ""


def _source(frame: Frame) -> str:
    linecache.checkcache(frame.file)  # it may have been written anew since another run
    return linecache.getline(frame.file, frame.line).strip().rstrip(":")


def _frames(block: str) -> list[Frame]:
    matches = [_FRAME.match(line) for line in block.splitlines()]
    return [
        Frame(match["file"], int(match["line"]) if match["line"].isdigit() else 0, match["function"])
        for match in matches
        if match
    ]


@lru_cache(maxsize=4096)
def is_users(file: str, line: int) -> bool:
    """Whether a line is the user's own: no library's, none of ours, none of the helpers in a converted script."""
    if file.startswith((_PACKAGE, *_templates())) or any(part in file for part in _FOREIGN):
        return False
    return line not in _helpers(file)


def users_place() -> str:
    """The user's line that is being executed, by itself or in a library; empty where it is we who do something."""
    return _innermost(lambda file: _is_of_dp2ddp(file) and not file.startswith(_HOOKS))


def users_line() -> str:
    """The innermost line of the user's that is being executed, "train_ddp.py:88"."""
    return _innermost(lambda file: False) or "a place outside the script"


def _innermost(is_end: Callable[[str], bool]) -> str:
    """The user's line, unless a frame of a file comes before it behind which nothing is asked."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users(file, frame.f_code.co_firstlineno):
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = None if is_end(file) else frame.f_back
    return ""


def _is_of_dp2ddp(file: str) -> bool:
    """Whether a file is of dp2ddp, and no helper."""
    return file.startswith(_PACKAGE) and not file.startswith(_templates())


@lru_cache(maxsize=1)
def _templates() -> tuple[str, ...]:
    """Where the helpers are that a conversion on the way imports."""
    spec = importlib.util.find_spec("dp2ddp.templates")
    return tuple(spec.submodule_search_locations or ()) if spec else ()


@lru_cache(maxsize=8)
def _helpers(file: str) -> range:
    """The lines of a file that are helpers of a conversion."""
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return range(0)
    return _EVERY_LINE if is_helper_module(text) else pasted_in(text)


def collective_of(frames: list[Frame]) -> str | None:
    """What is under way between the ranks, as torch's own frames tell; the engine's own waits have none of Python."""
    in_ddp = (frame for frame in frames if frame.file.endswith("torch/nn/parallel/distributed.py"))
    where = next((_DDP[frame.function] for frame in in_ddp if frame.function in _DDP), None)
    backward = any(frame.function == "_engine_run_backward" for frame in frames)
    calls = [
        frame.function for frame in frames if frame.file.endswith("torch/distributed/distributed_c10d.py")
    ]
    if where or calls:
        return where or ("backward: " if backward else "") + calls[-1]
    if any(frame.function == _WAIT for frame in frames):
        return ASYNCHRONOUS
    return _BACKWARD if frames and frames[0].function == "_engine_run_backward" else None


ASYNCHRONOUS = "an asynchronous collective"
_WAIT = "wait_for_collective"  # collectives.py
_BACKWARD = "backward: DDP's all_reduce of gradients"  # torch/csrc/distributed/c10d/reducer.cpp
_DDP = {  # functions of torch/nn/parallel/distributed.py, innermost first where one calls the other
    "_default_broadcast_coalesced": "forward: DDP's broadcast of buffers",
    "_sync_module_buffers": "forward: DDP's broadcast of buffers",
    "_sync_buffers": "forward: DDP's broadcast of buffers",
    "_pre_forward": "forward: DDP's exchange before it",
    "__init__": "the constructor of DistributedDataParallel",
}
