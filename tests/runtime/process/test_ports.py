"""Ports that a script names are a run's own."""

from __future__ import annotations

import socket
from pathlib import Path
from unittest import mock

import pytest

from dp2ddp.errors import RunError
from dp2ddp.runtime.process import meeting
from dp2ddp.runtime.process.meeting import free_port, own_port


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


def test_a_free_port_is_none_that_the_system_gives_away() -> None:
    """A run that took one of these failed now and then: somebody else was given it before it listened."""
    given = []
    for _ in range(20):
        with socket.socket() as probe:
            probe.bind(("", 0))
            given.append(probe.getsockname()[1])
    ours = {free_port() for _ in range(50)}
    assert max(ours) < min(given)
    assert len(ours) > 40


def test_a_port_that_is_taken_is_not_free() -> None:
    with socket.socket() as taken, mock.patch.object(meeting, "PORTS", range(20_000, 20_100)):
        first = free_port()
        taken.bind(("", first))
        taken.listen()
        assert first not in {free_port() for _ in range(300)}


def test_without_any_free_port_it_says_so() -> None:
    with (
        mock.patch.object(socket.socket, "bind", side_effect=OSError),
        pytest.raises(RunError, match="no free port"),
    ):
        free_port()
