"""Ports that a script names are a run's own."""

from __future__ import annotations

import socket
from pathlib import Path

from dp2ddp.runtime.ports import own_port


def test_a_named_port_is_the_same_free_one_for_all_of_a_run(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    ours = own_port(file, 29500)
    assert own_port(file, 29500) == ours
    assert own_port(file, 23456) != ours
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", ours))  # nobody has it


def test_another_run_has_another(tmp_path: Path) -> None:
    with socket.socket() as taken:
        first = own_port(tmp_path / "a.json", 29500)
        taken.bind(("127.0.0.1", first))
        assert own_port(tmp_path / "b.json", 29500) != first
