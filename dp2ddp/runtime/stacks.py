"""Where each rank stands: reads what faulthandler wrote about the threads of a process."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
_RUNTIME = str(Path(__file__).parent)
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
    return not frame.file.startswith(_RUNTIME) and not any(part in frame.file for part in _FOREIGN)


def _collective(frames: list[Frame]) -> str | None:
    """The outermost function of torch.distributed that is under way."""
    calls = [
        frame.function for frame in frames if frame.file.endswith("torch/distributed/distributed_c10d.py")
    ]
    return calls[-1] if calls else None
