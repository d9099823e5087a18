"""The parent's end of `forked.py`: runs as children of a process that has torch imported already; no torch here."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from dp2ddp.errors import RunError
from dp2ddp.runtime.process import launch_command
from dp2ddp.runtime.process.run import GRACE, rank_codes
from dp2ddp.runtime.process.timeout import Timeout
from dp2ddp.runtime.processes import kill_tree, parent_variable
from dp2ddp.runtime.run_folder import prepare_run_folder, read_statuses
from dp2ddp.runtime.stage import Stage
from dp2ddp.signals import signals_wait

_LOOK = 0.005  # seconds between two looks


class Server:
    """The parent's end of `forked.py`."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        script = Path(__file__).with_name("forked.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**(environment or launch_command.environment()), **parent_variable()},
            start_new_session=True,
            text=True,
            bufsize=1,
        )
        self._requests: dict[str, _Request] = {}  # by key
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def start(self, stage: Stage) -> Forked:
        """Fork the ranks of a stage; returns at once."""
        prepare_run_folder(stage)
        request = self._ask(stage.run_folder, {"stage": json.loads(stage.to_json())})
        return Forked(self, stage, request)

    def call(self, name: str, arguments: Any, timeout: float | None = None) -> int | None:
        """Call `module:function` in a child that has torch; returns its exit code.

        None: it was ended, as it neither ended nor computed for `timeout` seconds.
        """
        limit = Timeout(timeout)
        request = self._ask(f"call {time.monotonic_ns()}", {"call": name, "arguments": arguments})
        while 0 not in request.ended:
            self.check()
            limit.look([self._process.pid])  # it may have to import torch first
            if limit.is_over():
                request.end()
                return None
            time.sleep(_LOOK)
        return request.ended[0]

    @property
    def pid(self) -> int:
        """The number of the process that ranks are forked from."""
        return self._process.pid

    def check(self) -> None:
        """RunError if the process with torch has ended."""
        code = self._process.poll()
        if code is not None:
            why = " (out of memory?)" if code == -signal.SIGKILL else ""
            raise RunError(f"the process that runs both versions ended with {code}{why}; see above")

    def close(self) -> None:
        """End the process and all that it forked."""
        with signals_wait():
            kill_tree(self._process.pid)
            self._process.wait()
            self._listener.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _ask(self, key: str, what: dict[str, Any]) -> _Request:
        """The key may be that of a request before: of a run in the same folder."""
        assert self._process.stdin is not None
        self.check()
        request = self._requests[key] = _Request()
        self._process.stdin.write(json.dumps({"key": key, **what}) + "\n")
        return request

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._requests[answer["key"]].take(answer)


class _Request:
    """Processes that were asked for: by rank, what is known of them."""

    def __init__(self) -> None:
        self.ended: dict[int, int] = {}  # exit codes
        self._pids: dict[int, int] = {}
        self._is_given_up = False

    def take(self, answer: dict[str, Any]) -> None:
        if "code" in answer:
            self.ended[answer["rank"]] = answer["code"]
            return
        self._pids[answer["rank"]] = answer["pid"]
        if self._is_given_up:
            kill_tree(answer["pid"])

    def end(self) -> None:
        """End the processes and what they started; those that are not forked yet, once they are."""
        self._is_given_up = True
        for rank, pid in list(self._pids.items()):
            if rank not in self.ended:
                kill_tree(pid)


class Forked:
    """A run whose ranks were forked by a server."""

    def __init__(self, server: Server, stage: Stage, request: _Request) -> None:
        self.stage = stage
        self.started = time.monotonic()
        self._server, self._request = server, request
        self._failed_at: float | None = None
        self._killed: set[int] = set()

    def codes(self) -> tuple[int | None, ...] | None:
        """The exit code of each rank; None while any runs."""
        self._server.check()
        ended = self._request.ended
        if ended and self.stage.starts_ranks:
            return rank_codes(self.stage, ended[0])
        if len(ended) == len(self.stage.ranks):
            return tuple(None if rank in self._killed else code for rank, code in sorted(ended.items()))
        if any(ended.values()) and self._failed_at is None:
            self._failed_at = time.monotonic()
        if self._failed_at is not None and time.monotonic() - self._failed_at > GRACE:
            self.kill()
        return None

    def kill(self) -> None:
        """End all ranks and whatever they started."""
        if self._request.ended and self.stage.starts_ranks:
            return  # the kernel ended its ranks with it
        self._killed |= set(self.stage.processes) - self._request.ended.keys()
        self._request.end()
        if self.stage.starts_ranks:
            for status in read_statuses(self.stage).values():  # those that the script started
                if not status.is_over:
                    kill_tree(status.pid)
