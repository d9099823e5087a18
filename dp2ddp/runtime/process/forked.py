"""A parent that imports torch once and forks a process for each run, or each rank of a run.

Any optimizer drags in torch._dynamo: 907 modules, 0.8 s, in every rank. Paid once here it is free in the children.
Requests come as JSON lines on stdin, answers go as JSON lines to stdout; the end of stdin ends everything. Only for
the CPU: CUDA does not survive a fork.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False):
    sys.path.pop(0)

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from dp2ddp.runtime.process.boot import run_stage
from dp2ddp.runtime.process.meeting import free_port
from dp2ddp.runtime.processes import adopt_orphans, die_with_parent
from dp2ddp.runtime.stage import Stage

_BREATH = 0.01  # seconds between two looks at the children

Work = Callable[[], int]
_Children = dict[int, dict[str, Any]]  # process id -> what to say when it ends


def main() -> None:
    """In the server this returns when stdin ends; in a forked child it ends as that child's script does."""
    die_with_parent()
    adopt_orphans()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever prints in here does not mix with the answers

    import torch._dynamo  # noqa: F401  for its side effect, see above

    import dp2ddp.runtime.process.equipment  # noqa: F401  likewise: 0.1 s for each

    # what torch would clean up at its end (187 libraries, 0.05 s) is this process's own, and no child's
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        finalizer.atexit = False
    gc.freeze()  # a child neither scans nor copies what was here before it
    work = _serve(answers)
    if work is not None:
        answers.close()
        _end_quickly(work())


def _end_quickly(code: int) -> None:
    """What the interpreter does at its end, without taking every module apart (0.3 s with torch)."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def _serve(answers: Any) -> Work | None:
    """Returns the work in a child, and None in the server at the end."""
    children: _Children = {}
    for request in _requests(children, answers):
        for label, work in _works(request):
            work_here = _fork(children, label, work, answers)
            if work_here is not None:
                return work_here
    return None


def _requests(children: _Children, answers: Any) -> Iterator[dict[str, Any]]:
    """Requests as they come; between them, children that ended are answered."""
    buffer = b""
    while True:
        readable, _, _ = select.select([0], [], [], _BREATH)
        _reap(children, answers)
        if not readable:
            continue
        data = os.read(0, 65536)
        if not data:
            return
        *lines, buffer = (buffer + data).split(b"\n")
        yield from (json.loads(line) for line in lines)


def _works(request: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Work]]:
    """The processes that a request asks for: the ranks of a stage, or one call of a function by its name."""
    if "call" in request:
        yield {"key": request["key"], "rank": 0}, lambda: _call(request["call"], request["arguments"])
        return
    stage = Stage.from_json(json.dumps(request["stage"]))
    port = free_port()
    for rank in stage.processes:
        yield {"key": request["key"], "rank": rank}, partial(_run_rank, stage, rank, port)


def _fork(children: _Children, label: dict[str, Any], work: Work, answers: Any) -> Work | None:
    server, pid = os.getpid(), os.fork()
    if pid:
        children[pid] = label
        _answer(answers, {**label, "pid": pid})
        return None
    die_with_parent(server)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return work


def _run_rank(stage: Stage, rank: int, port: int) -> int:
    if stage.mode == "ddp" and not stage.starts_ranks:  # as torchrun says it
        numbers = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "MASTER_PORT": port}
        numbers |= {"WORLD_SIZE": stage.world, "LOCAL_WORLD_SIZE": stage.world}
        os.environ.update({name: str(number) for name, number in numbers.items()}, MASTER_ADDR="127.0.0.1")
    return run_stage(stage, rank)


def _call(name: str, arguments: Any) -> int:
    module, function = name.split(":")
    getattr(importlib.import_module(module), function)(arguments)
    return 0


def _reap(children: _Children, answers: Any) -> None:
    """Those that have ended. Of orphans that became ours (what a script started and did not wait for) nobody asks."""
    with contextlib.suppress(ChildProcessError):  # there is none at all
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            if pid in children:
                _answer(answers, {**children.pop(pid), "code": os.waitstatus_to_exitcode(status)})


def _answer(answers: Any, what: dict[str, Any]) -> None:
    answers.write(json.dumps(what) + "\n")


if __name__ == "__main__":
    main()
