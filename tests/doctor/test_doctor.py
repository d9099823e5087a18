"""`dp2ddp doctor` on this machine: what it says, what it returns, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from dp2ddp.cli import main
from dp2ddp.cli.doctor import verdict
from dp2ddp.doctor.examine import two_ranks
from dp2ddp.doctor.host import Answer, State, host_answers
from tests.cli.scripts import dp2ddp, python, variables
from tests.ranks import until

# Python reads it before everything else: rank 1 never has torch
HANGING = """
import os, sys, time

class Finder:
    def find_spec(name, path, target=None):
        if name == "torch":
            time.sleep(600)

if os.environ.get("RANK") == "1" and any("torch_program" in word for word in sys.orig_argv):
    sys.meta_path.insert(0, Finder)
"""
NAMES = ["Python", "dp2ddp", "processors", "memory", "shared memory", "open files", "temporary files", "threads",
         "variables", "torch", "CUDA", "GPUs", "backends", "two ranks"]  # fmt: skip


@pytest.mark.torchrun
def test_this_machine_can_train(tmp_path: Path) -> None:
    result = dp2ddp(tmp_path, "doctor", "--json", "--timeout", "120")
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document["works"] is True
    answers = {answer["name"]: answer for answer in document["answers"]}
    assert set(NAMES) <= set(answers) <= {*NAMES, "GPU to GPU"}
    assert answers["torch"]["text"].startswith(version("torch"))
    assert set(answers["memory"]) == {"name", "state", "text", "advice"}
    assert re.match(r"met by torchrun, and added a megabyte: gloo in [\d.]+ ms", answers["two ranks"]["text"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.torchrun
def test_ranks_that_cannot_meet_are_a_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch answers by itself is left out."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nonexistent")
    asked = "dp2ddp.doctor.examine.examine"
    monkeypatch.setattr(asked, lambda seconds, _: [*host_answers(), two_ranks(tmp_path, seconds)])
    result = CliRunner().invoke(main, ["doctor", "--timeout", "120"])
    assert result.exit_code == 1
    assert "variables        GLOO_SOCKET_IFNAME=nonexistent" in result.stdout
    failed, *_, last = result.stdout.partition("two ranks        failed: ")[2].splitlines()
    assert "nonexistent" in failed
    assert last == "Training with several processes cannot work here before this is mended: two ranks."


@pytest.mark.torchrun
def test_ranks_that_wait_for_each_other_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hang(tmp_path, monkeypatch)
    answer = two_ranks(tmp_path, 25)  # seconds: a loaded machine may take 10 to start them
    assert answer.state == "bad"
    assert answer.text.startswith("not done after 25 s: rank 0 ")
    assert answer.text.endswith("rank 1 started, imports torch")
    assert running() == []


@pytest.mark.torchrun
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, id="kill"),
        pytest.param(signal.SIGKILL, id="kill -9", marks=pytest.mark.slow),  # also runtime/test_processes.py
    ],
)
def test_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    hang(tmp_path, monkeypatch)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "dp2ddp", "doctor", "--timeout", "120"],
        env={**variables(), "TMPDIR": str(temporary)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(lambda: any(temporary.rglob("rank-0")))
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 3
    process.send_signal(number)
    process.communicate(timeout=60)
    assert psutil.wait_procs(family, timeout=20)[1] == []
    if number == signal.SIGTERM:
        assert process.returncode == 143
        assert not any(path.name.startswith("dp2ddp-") for path in temporary.iterdir())


def test_its_page_has_every_question() -> None:
    page = (Path(__file__).parents[2] / "docs" / "launch.md").read_text()
    table = page[page.index("| question") : page.index("### Exit codes")].lower()
    questions = ",".join(row.split("|")[1] for row in table.splitlines() if row.startswith("|"))
    named = {question.strip() for question in questions.split(",")}
    assert {name.lower() for name in (*NAMES, "GPU to GPU")} <= named


def test_without_torch_it_says_so(tmp_path: Path) -> None:
    result = without_torch(tmp_path, None)
    assert result.returncode == 1
    assert "no    torch            is not installed for this Python\n" in result.stdout
    assert "to verify and to train: pip install torch" in " ".join(result.stdout.split())
    assert "variables" in result.stdout


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ({"torch": "good"}, "Training with several processes works here."),
        ({"memory": "remark"}, "Training with several processes works here; have a look at: memory."),
        ({"two ranks": "remark"}, "may work here, and was not tried; have a look at: two ranks."),
        ({"memory": "remark", "torch": "bad"}, "cannot work here before this is mended: torch."),
    ],
)
def test_the_last_line_is_the_verdict(states: dict[str, State], words: str) -> None:
    assert verdict([Answer(name, state, "") for name, state in states.items()]).endswith(words)


def test_a_broken_torch_is_named(tmp_path: Path) -> None:
    result = without_torch(tmp_path, "raise OSError('libcudart.so.12: cannot open shared object file')\n")
    assert result.returncode == 1
    assert "cannot be imported: OSError: libcudart.so.12: cannot open" in result.stdout


def without_torch(folder: Path, instead: str | None) -> subprocess.CompletedProcess[str]:
    """The doctor where torch is this text, or is not there."""
    if instead is not None:
        (folder / "torch.py").write_text(instead)
        return dp2ddp(folder, "doctor", env={**variables(), "PYTHONPATH": str(folder)})
    code = (
        "import importlib.util as u, sys\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name in ('torch', 'psutil') else find(name, *rest)\n"
        "from dp2ddp.__main__ import run\nsys.argv = ['dp2ddp', 'doctor']\n"
        "try: run()\nfinally: assert not {'torch', 'psutil'} & {*sys.modules}\n"
    )
    return python(folder, "-c", code)


def hang(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "sitecustomize.py").write_text(HANGING)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    )


def running() -> list[int]:
    """Ranks of the doctor that are still there."""
    found = []
    for process in psutil.Process().children(recursive=True):
        if any("torch_program" in word for word in process.cmdline()):
            found.append(process.pid)
    return found
