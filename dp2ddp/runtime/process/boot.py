"""In the child: set the stage, then run the user's script as `__main__`, as `python SCRIPT` would.

Started by path (`python .../boot.py STAGE.json`), alone or by torchrun: with `-m` Python would put the working folder
in front of sys.path, where a user's `types.py` could shadow what we import.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    sys.path.pop(0)  # this folder, which `python PATH` puts first

import atexit
import builtins
import contextlib
import faulthandler
import fcntl
import gc
import importlib.util
import io
import multiprocessing.context
import os
import signal
import struct
import termios
import time
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import SourceFileLoader
from multiprocessing.util import Finalize
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from dp2ddp.copies.namespace import enter
from dp2ddp.runtime.hang.stacks import Ending
from dp2ddp.runtime.process.abrupt_exits import ExitReporter, follow_exits
from dp2ddp.runtime.process.meeting import meet_in_run_folder
from dp2ddp.runtime.process.overlay import Overlay
from dp2ddp.runtime.process.writes import Writes
from dp2ddp.runtime.processes import children_die_with_us, die_with_parent, end_before_others
from dp2ddp.runtime.run_folder import (
    LAUNCHER,
    RENDEZVOUS,
    Heartbeat,
    RankStatus,
    wait_for_stack_request,
    write_status,
)
from dp2ddp.runtime.stage import Stage
from dp2ddp.taps import Taps

# seconds that a rank which failed stays at most, until the others have been asked where they stand
_LAST_LOOK = 5.0
INTERRUPTED = 130  # as shells say it
# of Python's own modules, those that we import and torch does not: a script's `statistics.py` comes before them
_IMPORTED_BY_US = ("statistics", "fractions", "decimal", "resource", "secrets", "hmac")


def main() -> None:
    """The process that `python boot.py STAGE.json` starts."""
    die_with_parent()
    stage = Stage.from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    rank = int(os.environ.get("RANK", "0"))
    if stage.own_hashes:
        have_own_hashes(rank)
    try:
        code = run_stage(stage, rank)
    except KeyboardInterrupt:
        code = INTERRUPTED  # before the script began: nothing of the user's to show
    sys.exit(code)


def have_own_hashes(rank: int) -> None:
    """Start this process anew with the rank as the seed of string hashes, which is read before Python runs.

    Rank 0 has the same as the process with DataParallel, whose numbers it has to give. The others hear of none, as
    under torchrun: a script that wants one for all ranks starts itself anew.
    """
    if os.environ.get("PYTHONHASHSEED") != str(rank):
        os.environ["PYTHONHASHSEED"] = str(rank)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    if rank:
        del os.environ["PYTHONHASHSEED"]


def run_stage(stage: Stage, rank: int) -> int:
    """Run the stage's script in this process; returns its exit code, and leaves atexit to the interpreter."""
    if stage.holder:
        enter(stage.holder)
    run_folder, label = Path(stage.run_folder), LAUNCHER if stage.starts_ranks else rank
    _say_begun(run_folder, label)
    children_die_with_us()
    os.chdir(stage.folder)
    look_in_copies(stage.moved)
    if stage.capture:
        end_before_others()
        _capture_output(run_folder, rank)
        have_terminal()
    atexit.register(complete_open_files)  # first in, last to run: behind all that the script registers
    overlay = Overlay(stage.replaced)
    overlay.install()
    writes = Writes(run_folder, label)
    from dp2ddp.runtime.process import equipment  # torch, which reads variables of the environment

    virtual = equipment.is_virtual(stage)  # virtual ones look like real ones, once they are there
    heartbeat = Heartbeat(run_folder, rank)
    # before whatever ends a run at a step
    equipment.count_steps(heartbeat, stage)
    equipment.set_stage(stage, rank, writes)
    finish = equipment.no_record if stage.starts_ranks else equipment.follow_rank(stage, rank, virtual)
    equipment.beat_on_progress(heartbeat)

    def say_end(end: Ending) -> None:
        finish()
        _say_end(stage, label, end, heartbeat)

    exits = ExitReporter(say_end)
    follow_exits(exits, stage, finish)
    if stage.mode == "ddp":
        meet_in_run_folder(run_folder / RENDEZVOUS)
    if stage.starts_ranks:
        _observe_ranks(lambda rank: _become_rank(stage, rank, heartbeat, writes, exits, virtual), stage.seed)
    heartbeat.beat()  # the script begins
    end = Ending()
    try:
        with end_of_script(end):
            run_as_main(stage.script, stage.name, stage.arguments_of(rank), stage.module, overlay)
    finally:
        exits.report(end)
    return end.code


def _say_end(stage: Stage, rank: int, end: Ending, heartbeat: Heartbeat) -> None:
    run_folder = Path(stage.run_folder)
    write_status(run_folder, rank, RankStatus(os.getpid(), end.code, time.monotonic(), end.error, end.place))
    heartbeat.beat()  # the script is over
    if end.error and end.code != INTERRUPTED and len(stage.ranks) > 1:
        wait_for_stack_request(run_folder, _LAST_LOOK)


# ---- ranks that a script starts itself, with torch.multiprocessing: each is a rank from its init_process_group on
#
# The script is started once. Its processes are forked, whatever method it asks for: a spawned one would begin without
# virtual devices. One that calls init_process_group says which rank it is; from then on it has that rank's output,
# note, heartbeat and record. What a process does before belongs to nobody, and is printed as rank 0.


def _observe_ranks(become: Callable[[int], None], seed: int | None) -> None:
    """In the process that starts the ranks, before the script; `become` is called with a rank in its process."""
    import torch.distributed as dist

    _fork_always()
    _seed_children(os.getpid(), seed)
    ranks: set[int] = set()  # of this process: a script may leave its group and join another

    def joined(*args: Any, **kwargs: Any) -> None:
        if not ranks:
            ranks.add(dist.get_rank())
            become(dist.get_rank())

    Taps().after("init_process_group", joined, dist.distributed_c10d, dist)


def _fork_always() -> None:
    """`spawn` and `forkserver` mean `fork`."""
    contexts: Any = multiprocessing.context
    fork = contexts._concrete_contexts["fork"]
    contexts._concrete_contexts.update(spawn=fork, forkserver=fork)
    contexts._default_context._default_context = fork  # forkserver since Python 3.14


def _seed_children(launcher: int, seed: int | None) -> None:
    """Processes begin apart, as in real life; a worker of a rank's loader is none of them."""
    from dp2ddp.runtime.perturb.seeds import seed_all

    count = 0

    def counted() -> None:
        nonlocal count
        count += 1

    def begin_apart() -> None:
        if seed is not None and os.getppid() == launcher:
            seed_all(seed + count)

    os.register_at_fork(after_in_parent=counted, after_in_child=begin_apart)


def _how_it_ends(error: BaseException | None) -> Ending:
    if error is None:
        return Ending()
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        # torch's spawn writes the traceback to a file and exits with 1 (torch/multiprocessing/spawn.py)
        return Ending.by(error.__context__, code) if code and error.__context__ else Ending(code)
    return Ending.by(error, 1)


def _become_rank(
    stage: Stage, rank: int, heartbeat: Heartbeat, writes: Writes, exits: ExitReporter, virtual: bool
) -> None:
    """This process turned out to be a rank."""
    from dp2ddp.runtime.process import equipment

    die_with_parent()
    _say_begun(Path(stage.run_folder), rank)
    if stage.capture:
        _capture_output(Path(stage.run_folder), rank, keep=rank == 0)
    heartbeat.belong_to(rank)
    writes.belong_to(rank)
    heartbeat.beat()
    finish = equipment.follow_rank(stage, rank, virtual)

    def end_rank(end: Ending) -> None:
        finish()
        complete_open_files()
        _say_end(stage, rank, end, heartbeat)

    exits.take_over(end_rank)
    # multiprocessing ends its processes without atexit; the exception that ends one is on its way then
    if multiprocessing.parent_process() is not None:
        Finalize(None, lambda: exits.report(_how_it_ends(sys.exc_info()[1])), exitpriority=100)


# ---- the script


def look_in_copies(moved: Iterable[tuple[str, str]]) -> None:
    """Modules that PYTHONPATH or an installation in place finds in the user's folder come from its copy.

    A virtual environment in that folder is not copied, and is used where it is.
    """

    def here(path: str) -> str:
        real = os.path.realpath(path)
        copies = (
            copy + real[len(own) :] for own, copy in moved if f"{real}{os.sep}".startswith(own + os.sep)
        )
        return next((copy for copy in copies if path and os.path.isdir(copy)), path)

    sys.path[:] = map(here, sys.path)
    if "PYTHONPATH" in os.environ:  # of processes that the script starts
        os.environ["PYTHONPATH"] = os.pathsep.join(map(here, os.environ["PYTHONPATH"].split(os.pathsep)))


def have_terminal() -> None:
    """A terminal as stdin, at whose other end nobody sits: `stty size` has its answer, input() its end of file."""
    try:
        other_end, stdin = os.openpty()
    except OSError:  # a machine without any
        return
    fcntl.ioctl(stdin, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.write(other_end, b"\x04" * 64)  # Ctrl-D: each ends one reading
    os.dup2(stdin, 0)  # the other end stays open as long as this process


def complete_open_files() -> None:
    """Write out what the script left in files that it never closed, as the interpreter's end would.

    A forked run ends without that end (forked.py), and in any run torch may keep the script's objects alive. What is
    frozen was there before the script, and is not looked at: every page that is looked at would be copied (0.3 s).
    """
    for thing in gc.get_objects():
        if type(thing).__name__ == "EventFileWriter":  # TensorBoard's, which writes in a thread of its own
            with contextlib.suppress(Exception):  # it may be closed
                thing.flush()
        if not issubclass(type(thing), (io.TextIOWrapper, io.BufferedWriter)):
            continue  # isinstance would ask the thing for its __class__: some of torch's answer with a warning
        if not thing.closed and thing.writable():
            with contextlib.suppress(OSError, ValueError):
                thing.flush()


def run_as_main(
    script: str,
    name: str,
    arguments: tuple[str, ...],
    as_module: str | None = None,
    overlay: Overlay | None = None,
) -> None:
    """What `python NAME ARGUMENTS` does: sys.argv, sys.path[0], __file__, a fresh `__main__`.

    Of `python -m MODULE ARGUMENTS` too: then the working folder is first on sys.path, and the package is imported.
    """
    sys.argv = [os.path.abspath(script) if as_module else name, *arguments]
    sys.path.insert(0, os.getcwd() if as_module else os.path.dirname(os.path.realpath(script)))
    for own in _IMPORTED_BY_US:
        if any(os.path.isfile(os.path.join(sys.path[0], own + end)) for end in (".py", "/__init__.py")):
            sys.modules.pop(own, None)
    module = ModuleType("__main__")
    module.__dict__.update(
        __file__=os.path.abspath(script),
        __builtins__=builtins,
        __loader__=SourceFileLoader("__main__", script),
        __cached__=None,
    )
    if as_module:
        spec = importlib.util.find_spec(as_module)  # imports the packages around it, as Python does
        module.__dict__.update(__spec__=spec, __package__=as_module.rpartition(".")[0])
    sys.modules["__main__"] = module  # before it runs: pickle and multiprocessing look classes up there
    for code in (overlay or Overlay()).codes(script):
        exec(code, module.__dict__)


@contextlib.contextmanager
def end_of_script(end: Ending) -> Iterator[None]:
    """Turn the script's end into an exit code, with the traceback that it would have had without us."""
    try:
        yield
    except SystemExit as exit_:
        end.code = _exit_code(exit_.code)
    except BaseException as error:
        failed = Ending.by(error, INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)
        end.code, end.error, end.place = failed.code, failed.error, failed.place
        sys.excepthook(
            type(error), error.with_traceback(_own_frames(error.__traceback__)), error.__traceback__
        )


def _exit_code(code: object) -> int:
    if isinstance(code, int):
        return code
    if code is not None:
        print(code, file=sys.stderr)  # as the interpreter does for sys.exit("text")
    return 0 if code is None else 1


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the script's first frame on, or from that of the package which `-m` imports before it."""
    while trace is not None and trace.tb_frame.f_code is not run_as_main.__code__:
        trace = trace.tb_next
    trace = trace.tb_next if trace is not None else None
    while trace is not None and "importlib" in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    return trace


def _capture_output(run_folder: Path, rank: int, keep: bool = False) -> None:
    """`keep`: what is there already."""
    sys.stdout.flush()
    sys.stderr.flush()
    for number, ending in ((1, "out"), (2, "err")):
        file = os.open(
            run_folder / f"rank{rank}.{ending}",
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | (0 if keep else os.O_TRUNC),
        )
        os.dup2(file, number)
        os.close(file)


def _say_begun(run_folder: Path, rank: int) -> None:
    # C code answers the signal, so a rank inside a collective (or holding the GIL) answers too. Before the note with
    # this process's number: whoever reads that may ask at once, and an unanswered signal would end the process
    faulthandler.register(signal.SIGUSR1, (run_folder / f"rank{rank}.stacks").open("w"), all_threads=True)
    write_status(run_folder, rank, RankStatus(os.getpid()))


if __name__ == "__main__":
    main()
