"""Ends that Python does not see are told, and the record is kept as far as it got."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from dp2ddp.runtime.process.abrupt_exits import again
from dp2ddp.runtime.process.run import Process, Run, watch
from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.stage import Stage
from dp2ddp.trace.records import read_trace
from tests.ranks import stage_of

TRAINING = """
import os, signal, subprocess, sys, threading
import torch
from torch.utils.data import DataLoader
torch.manual_seed(0)
net = torch.nn.DataParallel(torch.nn.Linear(3, 1).cuda())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in DataLoader(torch.ones(4, 3), batch_size=2, num_workers=1):  # the worker leaves by os._exit
    net(batch.cuda()).sum().backward()
    optimizer.step()
print("trained", flush=True)
if os.fork() == 0:
    os._exit(7)  # of a child, which nobody asks about
os.wait()
{ending}
print("not reached", flush=True)
"""


FAILING = "os.execvp('false', ['false'])"


def train(folder: Path, ending: str, server: Server | None = None) -> Run:
    """In a process of its own, unless a server forks it."""
    script = folder / "train.py"
    script.write_text(TRAINING.format(ending=ending))
    stage = stage_of(script, "dp", trace=str(folder / "trace"))
    return watch([server.start(stage) if server else Process(stage)], 60)[0]


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        pytest.param("os._exit(0)", 0, id="_exit(0)", marks=pytest.mark.slow),
        pytest.param("os._exit(3)", 3, id="_exit(3)"),
        pytest.param(
            "threading.Thread(target=os._exit, args=(4,)).start(); threading.Event().wait()",
            4,
            id="thread",
            marks=pytest.mark.slow,
        ),
        pytest.param("os.execv('/bin/true', ['true'])", 0, id="another program"),
        pytest.param(FAILING, 1, id="another program that fails", marks=pytest.mark.slow),
        pytest.param(
            "os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, id="a signal", marks=pytest.mark.slow
        ),
        pytest.param("signal.raise_signal(signal.SIGKILL)", -signal.SIGKILL, id="a deadly signal"),
        pytest.param("os.abort()", -signal.SIGABRT, id="abort", marks=pytest.mark.slow),
    ],
)
def test_the_record_is_whole_and_the_code_is_the_scripts(
    tmp_path: Path, server: Server, ending: str, code: int
) -> None:
    run = train(tmp_path, ending, server)
    trace = read_trace(tmp_path / "trace", 0)
    assert run.codes == (code,)
    assert run.output(0).splitlines() == ["trained"]
    assert (len(list(trace.steps())), trace.end is not None) == (2, True)
    assert run.ended_on_purpose == (code >= 0 and ending != FAILING)  # nobody knows why another program fails
    if code < 0:
        assert run.failure
        assert run.failure.text == f"the script ended itself by signal {signal.Signals(-code).name}"


def test_a_signal_that_the_script_handles_ends_nothing(tmp_path: Path, server: Server) -> None:
    handled = "signal.signal(signal.SIGTERM, lambda *ignored: print('saved')); os.kill(os.getpid(), 15); sys.exit(5)"
    run = train(tmp_path, handled, server)
    assert run.codes == (5,)
    assert run.output(0).splitlines() == ["trained", "saved"]


def test_a_script_that_starts_itself_anew_stays_on_its_stage(tmp_path: Path) -> None:
    """As scripts do that want PYTHONHASHSEED to be set."""
    run = train(
        tmp_path,
        "if not os.environ.get('AGAIN'):\n    os.environ['AGAIN'] = '1'\n"
        "    os.execv(sys.executable, [sys.executable, '-u', *sys.argv, '--again'])\n"
        "print(sys.argv[1:], torch.cuda.device_count(), flush=True); sys.exit(6)",
    )
    assert run.codes == (6,)
    assert run.output(0).splitlines() == ["trained", "trained", "['--again'] 2"]
    assert len(list(read_trace(tmp_path / "trace", 0).steps())) == 2


def test_only_the_script_itself_is_started_anew(tmp_path: Path) -> None:
    stage = Stage("/x/train.py", "dp", 2, "/x", str(tmp_path), "train.py", module="package.train")
    python = sys.executable
    assert again(stage, "/bin/true", ["true"]) is None
    assert again(stage, python, ["python", "other.py"]) is None
    assert again(stage, python, ["python", "-c", "1"]) is None
    command = again(stage, python, ["python", "-u", "-m", "package.train", "--lr", "1"])
    assert command
    assert Stage.from_json(Path(command[-1]).read_text()).arguments == ("--lr", "1")
