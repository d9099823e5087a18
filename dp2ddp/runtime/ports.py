"""Ports that a script names, 29500 or 23456: each run has its own instead, so that runs never meet."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Any


def have_own_ports(desk: Path) -> None:
    """From now on in this process, and in those that it forks. torchrun's own port, which is free, stays."""
    import torch.distributed as dist

    given = os.environ.get("MASTER_PORT", "")
    distributed: Any = dist
    store = distributed.TCPStore
    original = store.__init__

    def __init__(self: Any, host_name: str, port: int = 0, *args: Any, **kwargs: Any) -> None:
        ours = port if not port or str(port) == given else own_port(desk / "ports.json", port)
        original(self, host_name, ours, *args, **kwargs)

    store.__init__ = __init__


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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
