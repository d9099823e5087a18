"""The net under a conversion: what a rank beside rank 0 writes is told, once a line, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, pathlib, shutil, sqlite3, sys, tempfile
import numpy, torch
from dp2ddp.templates.writes import watch_writes
watch_writes(1)
for turn in range(3):
    open("opened.txt", "w").close()
pathlib.Path("written.txt").write_text("x")
os.mkdir("made")
os.rename("written.txt", "moved.txt")
numpy.save("saved.npy", numpy.zeros(3))
torch.save({}, "saved.pt")
sqlite3.connect("runs.db").close()
shutil.copy("saved.npy", "copied.npy")
os.remove("opened.txt")
shutil.rmtree("made")
os.mkfifo("pipe")  # no event: not seen

open(os.devnull, "w").close()
open("moved.txt").read()
os.makedirs(".", exist_ok=True)
with tempfile.TemporaryDirectory() as folder:
    torch.save({}, os.path.join(folder, "x.pt"))
os.makedirs(os.path.join(os.environ["TORCH_HOME"], "hub"), exist_ok=True)
sqlite3.connect(":memory:").close()
sqlite3.connect("file:runs.db?mode=ro", uri=True).close()
numpy.save(tempfile.TemporaryFile(), numpy.zeros(3))
import io, pickle
torch.save({}, io.BytesIO())
assert pickle.loads(pickle.dumps(torch.save)) is torch.save
if os.fork() == 0:
    open("by_a_child.txt", "w").close()
    os._exit(0)
os.wait()
"""


def told(folder: Path, **settings: str) -> list[str]:
    (folder / "work").mkdir()
    script = folder / "work" / "train.py"
    script.write_text(PROGRAM)
    run = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder / "work",
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_HOME": str(folder / "hub"), **settings},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return run.stderr.splitlines()


def test_what_a_rank_writes_is_told_once_a_line(tmp_path: Path) -> None:
    lines = told(tmp_path)
    first = PROGRAM.splitlines().index('    open("opened.txt", "w").close()') + 1
    places = [line.partition(": ")[0] for line in lines]
    assert places == [f"train.py:{first + number}" for number in range(10)]
    assert f"rank 1 writes {tmp_path / 'work' / 'opened.txt'}, as rank 0 does" in lines[0]


def test_the_warning_can_be_turned_off(tmp_path: Path) -> None:
    assert told(tmp_path, DDP_SILENT_WRITES="1") == []


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_CREAT])
def test_a_file_is_written_where_its_flags_say_so(flags: int) -> None:
    from dp2ddp.templates.writes import is_writing

    assert is_writing("open", ("a", None, flags))
    assert not is_writing("open", ("a", "r", os.O_RDONLY))


JOINED = """
import os, sys
from dp2ddp.templates.process import join_process_group
join_process_group()
print("said on rank 0 alone")
with open("log.txt", "w") as log:
    log.write("twice")
"""


@pytest.mark.torchrun
def test_it_reaches_the_user_though_the_other_ranks_are_mute(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(JOINED)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "3",
        "train.py",
    ]
    run = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (run.returncode, run.stdout) == (0, "said on rank 0 alone\n")
    where = f"writes {tmp_path / 'log.txt'}, as rank 0 does"
    told = [run.stderr.count(f"train.py:6: rank {rank} {where}") for rank in range(3)]
    assert told == [0, 1, 1], run.stderr
