"""How many runs go at once, and which of them are ended again, so that the memory suffices.

Nobody knows beforehand what a script needs. All runs of a trial start at once where there is room for as many
processes with torch and an empty script in them, so small scripts lose nothing. While they run, the free memory is
looked at: below a reserve the last ones are ended, and are run again when the others are over. From then on one runs
after the other, so only what does not fit alone fails.

Here is what is decided, from numbers alone; runtime/process/room.py reads them, rounds.py starts and ends runs.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from dp2ddp.runtime.process.room import Room
from dp2ddp.runtime.process.run import Run
from dp2ddp.words import size

MB = 2**20
_PART, _LEAST, _MOST = 10, 256 * MB, 2048 * MB
FORKED, STARTED = 60 * MB, 400 * MB  # measured, torch 2.14: of its own, a rank that runs an empty script
AGENT = 300 * MB  # torchrun's own
_SAID = (  # what Python, torch, C++ and a loader say; only where a run has failed
    "MemoryError",
    "can't allocate memory",
    "Cannot allocate memory",
    "std::bad_alloc",
    "killed by signal: Killed",
)


@dataclass(frozen=True)
class Seen:
    """What was seen while a run ran: the most that it held, and how little was free."""

    held: int  # bytes, the most
    before: Room  # at the start of its round
    lowest: Room
    kills: int = 0  # processes that the kernel ended meanwhile for lack of memory, also of others


def reserve(room: Room) -> int:
    """Bytes that stay free: two processors fill about 150 MB between two looks, and a process's end takes a while."""
    return min(max(room.limit // _PART, _LEAST), _MOST)


def empty_need(processes: int, *, torchrun: bool) -> int:
    """What so many processes take at least."""
    return AGENT + processes * STARTED if torchrun else processes * FORKED


def how_many_at_once(room: Room, needs: Sequence[int]) -> int:
    """How many of these runs, from the first on, fit into what is free; at least one, which has to be tried."""
    fit = [total <= room.free - reserve(room) for total in accumulate(needs)]
    return max(sum(fit), len(fit[:1]))


def how_many_to_end(room: Room, held: Sequence[int], coming_back: int = 0) -> int:
    """How many of these runs, from the last on, are ended because the memory goes: as few as make it twice the reserve.

    held: what each has now; coming_back: what those had that have been ended and are not gone yet. The first goes on
    whatever happens: it has to be tried.
    """
    free, enough = room.free + coming_back, reserve(room)
    if free >= enough:
        return 0
    count = 0
    while count < len(held) - 1 and free < 2 * enough:
        count += 1
        free += held[-count]
    return count


def lacked_memory(run: Run, seen: Seen) -> bool:
    """Whether a run failed because the system gave it no more memory.

    A SIGKILL that is not ours may come from anybody: it counts where the kernel says that it ended a process for that,
    or where (nearly) nothing was free (a daemon in its place).
    """
    if run.failure is None or run.failure.kind != "crash":
        return False
    if any(words in run.failure.text for words in _SAID):
        return True
    killed = -signal.SIGKILL in run.codes
    return killed and (seen.kills > 0 or seen.lowest.free < reserve(seen.lowest))


ADVICE = (
    "a smaller batch or model, by arguments of the script (behind --); fewer devices (-n); fewer steps (--steps), "
    "where it keeps what it computes; or a machine with more memory"
)


def memory_text(run: Run, seen: Seen) -> str:
    """What a run held that lacked memory when it ran alone, what there was, and how it ended."""
    assert run.failure is not None
    ended = "the system ended one (SIGKILL)" if -signal.SIGKILL in run.codes else run.failure.text
    who = "it" if run.stage.mode == "dp" else "its ranks"
    held = f"{who} held {size(seen.held)}, " if seen.held else ""  # 0: it was over before anybody looked
    most, _ = resource.getrlimit(resource.RLIMIT_AS)  # of a single process, where somebody has set that
    limit = "" if most == resource.RLIM_INFINITY else f", and a process may have {size(most)} (ulimit -v)"
    before = room_text(seen.before, "were") + limit
    return f"{held}with nothing beside; before, {before}: {ended}"


def room_text(room: Room, are: str = "are") -> str:
    """ "1.2 GB are free of the 4.0 GB of this machine"."""
    return f"{size(room.free)} {are} free of the {size(room.limit)} of {room.of}"
