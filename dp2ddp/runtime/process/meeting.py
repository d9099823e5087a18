"""Where the ranks of a run meet, in the place of what the script names: so runs never meet each other.

Each run has its own port for 29500 or 23456. Ranks that meet in a file (`init_method="file://..."`) meet in one of the
run folder: torch takes the file away when the last rank parts, unless two part at once; then the one makes it anew that
the other has removed. Of a run that is compared it would be a file that only one side leaves behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import socket
from pathlib import Path
from typing import Any

from dp2ddp.errors import RunError
from dp2ddp.taps import Taps

PORTS = range(10_000, 32_768)  # below those that Linux gives away (net.ipv4.ip_local_port_range)


def have_own_ports(run_folder: Path) -> None:
    """From now on in this process, and in those that it forks. torchrun's own port, which is free, stays."""
    import torch.distributed as dist

    given = os.environ.get("MASTER_PORT", "")

    def meet(original: Any, store: Any, host_name: str, port: int = 0, *args: Any, **kwargs: Any) -> None:
        own = port if not port or str(port) == given else own_port(run_folder / "ports.json", port)
        original(store, host_name, own, *args, **kwargs)

    distributed: Any = dist
    Taps().around("__init__", meet, distributed.TCPStore)


def own_port(file: Path, named: int) -> int:
    """The port that all processes of a run use where the script names this one."""
    with os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT), "r+") as table:
        fcntl.flock(table, fcntl.LOCK_EX)
        ports: dict[str, int] = json.loads(table.read() or "{}")
        if str(named) not in ports:
            ports[str(named)] = free_port()
            table.seek(0)
            table.write(json.dumps(ports))
        return ports[str(named)]


def free_port() -> int:
    """A port that nobody listens on, and that nobody is given who asks the system for any.

    A script is started between finding it and listening on it: ports of the system's own choice were taken meanwhile.
    """
    for port in secrets.SystemRandom().sample(PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    raise RunError(f"no free port among {PORTS.start} to {PORTS.stop - 1}: 100 were tried")


_FILE = "file://"


def meet_in_run_folder(folder: Path) -> None:
    """Give init_process_group another file than the script names: the same one on all ranks."""
    import torch.distributed as dist

    if not dist.is_available():
        return

    def meet(original: Any, *args: Any, **kwargs: Any) -> None:
        if len(args) > 1:
            args = (args[0], in_run_folder(args[1], folder), *args[2:])
        elif "init_method" in kwargs:
            kwargs["init_method"] = in_run_folder(kwargs["init_method"], folder)
        original(*args, **kwargs)

    Taps().around("init_process_group", meet, dist.distributed_c10d, dist)


def in_run_folder(method: Any, folder: Path) -> Any:
    """The init_method with its file in this folder; any other method as it is."""
    if not isinstance(method, str) or not method.startswith(_FILE):
        return method
    path, mark, query = method.removeprefix(_FILE).partition("?")
    folder.mkdir(exist_ok=True)
    name = hashlib.sha256(path.encode()).hexdigest()[:16]
    return f"{_FILE}{folder / name}{mark}{query}"
