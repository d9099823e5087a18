"""The parent's end of `forked.py`: runs as children of a process that has torch imported already; no torch here."""

from __future__ import annotations

import contextlib
import json
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
from dp2ddp.runtime.processes import kill_tree, parent_variable, signals_wait
from dp2ddp.runtime.run_folder import prepare_run_folder, read_status
from dp2ddp.runtime.stage import Stage

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
        self.ended: dict[str, dict[int, int]] = {}  # key -> rank -> exit code
        self._pids: dict[str, dict[int, int]] = {}  # key -> rank -> process
        self._given_up: set[str] = set()  # keys
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def start(self, stage: Stage) -> Forked:
        """Fork the ranks of a stage; returns at once."""
        prepare_run_folder(stage)
        self.ended.pop(stage.run_folder, None)  # of a run before, in the same folder
        self._pids.pop(stage.run_folder, None)
        self._given_up.discard(stage.run_folder)
        self._ask({"key": stage.run_folder, "stage": json.loads(stage.to_json())})
        return Forked(self, stage)

    def call(self, name: str, arguments: Any, timeout: float | None = None) -> int | None:
        """Call `module:function` in a child that has torch; returns its exit code.

        None: it was ended, as it neither ended nor computed for `timeout` seconds.
        """
        key = f"call {time.monotonic_ns()}"
        limit = Timeout(timeout)
        self._ask({"key": key, "call": name, "arguments": arguments})
        while 0 not in self.ended.get(key, {}):
            self.check()
            limit.look([self._process.pid])  # it may have to import torch first
            if limit.is_over():
                self.end(key)
                return None
            time.sleep(_LOOK)
        return self.ended[key][0]

    @property
    def pid(self) -> int:
        """The number of the process that ranks are forked from."""
        return self._process.pid

    @property
    def is_over(self) -> bool:
        """Whether that process has ended."""
        return self._process.poll() is not None

    def end(self, key: str) -> None:
        """End the processes of a request and what they started; those that are not forked yet, once they are."""
        self._given_up.add(key)
        for rank, pid in list(self._pids.get(key, {}).items()):
            if rank not in self.ended.get(key, {}):
                kill_tree(pid)

    def check(self) -> None:
        """RunError if the process with torch has ended."""
        if self._process.poll() is not None:
            raise RunError(
                f"the process that runs both versions ended with {self._process.returncode}; see above"
            )

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

    def _ask(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self.check()
        self._process.stdin.write(json.dumps(what) + "\n")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._take(json.loads(line))

    def _take(self, answer: dict[str, Any]) -> None:
        if "code" in answer:
            self.ended.setdefault(answer["key"], {})[answer["rank"]] = answer["code"]
        elif "pid" in answer:
            self._pids.setdefault(answer["key"], {})[answer["rank"]] = answer["pid"]
            if answer["key"] in self._given_up:
                kill_tree(answer["pid"])


class Forked:
    """A run whose ranks were forked by a server."""

    def __init__(self, server: Server, stage: Stage) -> None:
        self.stage = stage
        self.started = time.monotonic()
        self._server = server
        self._failed_at: float | None = None
        self._killed: set[int] = set()

    def codes(self) -> tuple[int | None, ...] | None:
        """The exit code of each rank; None while any runs."""
        self._server.check()
        ended = self._server.ended.get(self.stage.run_folder, {})
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
        ended = self._server.ended.get(self.stage.run_folder, {})
        if ended and self.stage.starts_ranks:
            return  # the kernel ended its ranks with it
        self._killed |= set(self.stage.processes) - ended.keys()
        self._server.end(self.stage.run_folder)
        for rank in self.stage.ranks if self.stage.starts_ranks else ():  # those that the script started
            status = read_status(Path(self.stage.run_folder), rank)
            if status and status.code is None:
                kill_tree(status.pid)
