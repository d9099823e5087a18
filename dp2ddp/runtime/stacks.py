"""Where each rank stands: reads what faulthandler wrote about the threads of a process."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
_RUNTIME = str(Path(__file__).parent)
# The lines around the helpers in a converted script, as dp2ddp.codemod.facts.script has them.
HELPERS_START, HELPERS_END = "# --- helpers copied from dp2ddp.templates", "# --- end of the copied helpers"
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


@dataclass(frozen=True)
class Stand:
    """Where a rank is: frames of the user's own code, innermost first, and the collective it waits in."""

    rank: int
    frames: tuple[Frame, ...]
    collective: str | None

    def __str__(self) -> str:
        place = ", called from ".join(str(frame) for frame in self.frames[:3]) or "outside the script"
        return f"rank {self.rank} at {place}: " + (
            f"waits in {self.collective}" if self.collective else "in no collective"
        )


def read_stand(text: str, rank: int) -> Stand | None:
    """The newest dump in a rank's `.stacks` file; None if it never answered."""
    threads = [
        _frames(block) for block in re.split(r"^(?:Current thread|Thread) .*$", text, flags=re.MULTILINE)[1:]
    ]
    ours = [frames for frames in threads if any(frame.file.startswith(_RUNTIME) for frame in frames)]
    if not ours:
        return None
    frames = ours[-1]
    return Stand(rank, tuple(frame for frame in frames if _is_users(frame)), _collective(frames))


def _frames(block: str) -> list[Frame]:
    found = [_FRAME.match(line) for line in block.splitlines()]
    return [
        Frame(match["file"], int(match["line"]) if match["line"].isdigit() else 0, match["function"])
        for match in found
        if match
    ]


def _is_users(frame: Frame) -> bool:
    if frame.file.startswith((_RUNTIME, *_templates())) or any(part in frame.file for part in _FOREIGN):
        return False
    return frame.line not in _helpers(frame.file)


@lru_cache(maxsize=1)
def _templates() -> tuple[str, ...]:
    """Where the helpers are that a conversion on the way imports."""
    found = importlib.util.find_spec("dp2ddp.templates")
    return tuple(found.submodule_search_locations or ()) if found else ()


@lru_cache(maxsize=8)
def _helpers(file: str) -> range:
    """The lines of a converted script that are copied helpers."""
    try:
        lines = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return range(0)
    marks = [number for number, line in enumerate(lines, 1) if line.startswith((HELPERS_START, HELPERS_END))]
    return range(marks[0], marks[-1]) if len(marks) > 1 else range(0)


def _collective(frames: list[Frame]) -> str | None:
    """The outermost function of torch.distributed that is under way."""
    calls = [
        frame.function for frame in frames if frame.file.endswith("torch/distributed/distributed_c10d.py")
    ]
    return calls[-1] if calls else None
