"""The set-up (.ci/environment.py): each way it can fail is one line that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import environment
import pytest

ROOT = Path(__file__).resolve().parent.parent

NO_NETWORK = """\
WARNING: Retrying (Retry(total=0)) after connection broken by NameResolutionError
ERROR: Could not find a version that satisfies the requirement setuptools>=70.1 (from versions: none)
ERROR: No matching distribution found for setuptools>=70.1
"""
FULL_DISK = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
OTHER = "ERROR: Failed to build 'dp2ddp'\nhint: See above for details.\n"


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        pytest.param(NO_NETWORK, "check the network", id="no network"),
        pytest.param(FULL_DISK, "the disk is full", id="full disk"),
        pytest.param("/x/.venv/bin/python: No module named pip\n", "has no pip", id="no pip"),
        pytest.param(OTHER, "Failed to build 'dp2ddp'", id="another error of pip"),
        pytest.param("", "no reason given", id="silence"),
    ],
)
def test_what_pip_says_becomes_one_line(errors: str, told: str) -> None:
    line = environment.why_no_install(errors)
    assert told in line
    assert "\n" not in line


def test_a_python_without_ensurepip_is_told_which_package_it_lacks() -> None:
    assert "python3-venv" in environment.why_no_venv("... because ensurepip is not\navailable. ...")


def test_an_old_python_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    with pytest.raises(SystemExit) as ended:
        environment.enter()
    assert ended.value.code == 3
    assert capsys.readouterr().err.startswith("dp2ddp set-up: Python 3.10 or newer is needed, this is ")


def test_a_broken_environment_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "python"
    broken.write_text("not a program")
    monkeypatch.setattr(environment, "PYTHON", broken)
    with pytest.raises(SystemExit):
        environment.make()


def test_a_finished_installation_is_found_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_pip(*what: str) -> None:
        raise AssertionError(f"pip was asked for {what}")

    digest = environment.hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    (tmp_path / "stamp").write_text(f"{digest} dev")
    monkeypatch.setattr(environment, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(environment, "pip", no_pip)
    start = time.monotonic()
    environment.fill()
    environment.fill("dev")
    assert time.monotonic() - start < 1


def test_development_tools_are_installed_for_the_tests_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(environment, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(environment, "pip", lambda *what: asked.append(what[-1]))
    monkeypatch.setattr(environment, "compile_packages", lambda: None)
    environment.fill()  # as examples/demo.py
    assert asked[-1] == f"{environment.ROOT}[verify]"
    assert not [what for what in asked if "[dev]" in what]
    asked.clear()
    environment.fill("dev")  # as tests/run.py, behind the demo
    assert asked[-1] == f"{environment.ROOT}[dev]"
    asked.clear()
    environment.fill()
    environment.fill("dev")
    assert asked == []


def test_without_a_network_the_set_up_ends_with_one_line(tmp_path: Path) -> None:
    """A copy of this folder with an empty environment, and an index that nobody answers for."""
    (tmp_path / ".ci").mkdir()
    for name in ("pyproject.toml", ".ci/environment.py"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    variables |= {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0"}
    code = "import sys; sys.path.insert(0, '.ci'); import environment; environment.pip('dp2ddp-is-not-there')"
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    assert result.returncode == 3
    assert result.stderr.count("\n") == 1
    assert "check the network" in result.stderr


def test_a_browser_that_is_there_is_not_installed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(environment.subprocess, "run", lambda *_, **__: pytest.fail("it was installed"))
    environment.browser()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        pytest.param((), "there is none here; install it", id="no apt-get"),
        pytest.param(("apt-get",), "could not be installed", id="apt-get fails"),
    ],
)
def test_a_browser_that_cannot_be_had_is_one_line(
    found: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(command: list[str], **options: object) -> None:
        raise subprocess.CalledProcessError(100, command, output=b"E: line\nE: Unable to locate package\n")

    monkeypatch.setattr(environment.shutil, "which", lambda name: name if name in found else None)
    monkeypatch.setattr(environment.subprocess, "run", fail)
    with pytest.raises(SystemExit) as ended:
        environment.browser()
    assert ended.value.code == 3
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1
