"""Ends of a process that Python does not see: os._exit, a signal to oneself, another program in this process's place.

Nothing runs behind them, neither `finally` nor atexit; so what is to be said of the end is said before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dp2ddp.runtime.hang.stacks import Ending, users_line
from dp2ddp.runtime.stage import Stage
from dp2ddp.taps import Taps

_HARMLESS = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}
_STACK_SIGNAL = signal.SIGUSR1  # faulthandler answers it, below Python
_OPTIONS = {"-u", "-B", "-O", "-OO", "-E", "-I", "-s", "-S"}  # of python, without a value


class ExitReporter:
    """Reports once how this process ends, to its listeners; whatever comes first calls `report`."""

    def __init__(self, listener: Callable[[Ending], None]) -> None:
        self._pid, self._listeners, self._has_reported = os.getpid(), [listener], False

    def take_over(self, listener: Callable[[Ending], None]) -> None:
        """From now on report the end of this process; that of a process which it forks is not reported."""
        listeners = [listener] if self.has_reported else [listener, *self._listeners]
        self._pid, self._listeners, self._has_reported = os.getpid(), listeners, False

    @property
    def has_reported(self) -> bool:
        """Whether the end was reported; of a process that was forked none is to be."""
        return self._has_reported or os.getpid() != self._pid

    def report(self, end: Ending) -> None:
        """Report the end, if nobody has yet."""
        if not self.has_reported:
            self._has_reported = True
            for listener in self._listeners:
                listener(end)


def follow_exits(exits: ExitReporter, stage: Stage, finish_record: Callable[[], None]) -> None:
    """`finish_record`: before another program takes this process's place, whose exit code nobody knows yet."""
    _before(os, "_exit", lambda status: exits.report(Ending(status & 0xFF)))
    _before(os, "abort", lambda: exits.report(_killed(signal.SIGABRT)))
    _before(os, "kill", lambda pid, number: _say_killed(exits, number) if pid == os.getpid() else None)
    _before(signal, "raise_signal", lambda number: _say_killed(exits, number))
    _follow_programs(exits, stage, finish_record)


def _before(owner: Any, name: str, say: Callable[..., None]) -> None:
    """Say something, then do what the function does. Any: it is one of `os` or `signal`."""

    def saying(*args: Any) -> None:
        with contextlib.suppress(Exception):  # nothing keeps a process from leaving
            say(*args)

    Taps().before(name, saying, owner)


def _say_killed(exits: ExitReporter, number: int) -> None:
    ends = signal.getsignal(number) is signal.SIG_DFL and number not in (0, _STACK_SIGNAL, *_HARMLESS)
    if ends or number == signal.SIGKILL:
        exits.report(_killed(number))


def _killed(number: int) -> Ending:
    name = signal.Signals(number).name
    return Ending(-number, f"the script ended itself by signal {name}", users_line())


# ---- another program


def _follow_programs(exits: ExitReporter, stage: Stage, finish_record: Callable[[], None]) -> None:
    """os.execv and os.execve, which the other functions of their kind call by these names."""

    def run(original: Any, path: Any, args: Any, *env: Any) -> None:
        if not exits.has_reported and os.access(path, os.X_OK):
            finish_record()
            args = again(stage, path, args) or args
        original(path, args, *env)

    for name in ("execv", "execve"):
        Taps().around(name, run, os)


def again(stage: Stage, path: Any, args: Sequence[Any]) -> list[str] | None:
    """The command that starts the script anew on its stage, if it starts itself: to set PYTHONHASHSEED, mostly."""
    words = [os.fsdecode(word) for word in args]
    if os.path.realpath(path) != os.path.realpath(sys.executable):
        return None
    rest = words[1:]
    while rest and rest[0] in _OPTIONS:
        rest = rest[1:]
    if stage.module and rest[:2] == ["-m", stage.module]:
        arguments = rest[2:]
    elif rest and os.path.realpath(rest[0]) == os.path.realpath(stage.script):
        arguments = rest[1:]
    else:
        return None
    # The output goes where it went; and hashes are what the script wants them to be.
    new = dataclasses.replace(stage, arguments=tuple(arguments), capture=False, own_hashes=False)
    file = Path(stage.run_folder) / f"stage-{os.getpid()}.json"
    file.write_text(new.to_json(), encoding="utf-8")
    return [words[0], str(Path(__file__).with_name("boot.py")), str(file)]
