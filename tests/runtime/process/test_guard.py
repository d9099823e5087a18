"""A run in a scratch folder reads through links and never writes through them."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from dp2ddp.runtime.process.server import Server
from dp2ddp.runtime.process.writes import read_writes, rename_across_layers
from tests.ranks import run_program

# an audit hook cannot be removed, so each case has a process of its own, forked from one that has torch
FORKING = """
import os, sys, torch
from pathlib import Path
import dp2ddp.templates.checkpoints
from dp2ddp.runtime.process.writes import guard

for folder in Path(sys.argv[1]).iterdir():
    if os.fork() == 0:
        os.chdir(folder / "scratch")
        guard([Path.cwd()], folder / "lock")
        exec((folder / "code").read_text())
        sys.exit()
    if os.wait()[1] != 0:
        sys.exit(f"{folder.name} fails")
"""
CASES = {
    "open": "open('big', 'w').write('changed')",
    "append": "open('big', 'a').write('changed')",
    "os.open": "import os; os.write(os.open('big', os.O_WRONLY), b'changed')",
    "in a linked folder": "open('linked/entry', 'w').write('changed')",
    "a new file in a linked folder": "open('linked/new', 'w').write('x')",
    "a folder in a linked folder": "import os; os.makedirs('linked/new')",
    "remove": "import os; os.remove('linked/entry')",
    "rename over": "import os; open('x', 'w').close(); os.replace('x', 'linked/entry')",
    "sqlite": "import sqlite3; sqlite3.connect('database').execute('insert into t values (2)').connection.commit()",
    "sqlite, by an address": "import sqlite3; base = sqlite3.connect('file:database?mode=rw', uri=True); "
    "base.execute('insert into t values (2)'); base.commit()",
    "numpy's mapped arrays": "import numpy; numpy.memmap('big', dtype='u1', mode='r+')[0] = 7",
    "torch's mapped files": "import torch; torch.from_file('big', shared=True, size=4, dtype=torch.uint8)[0] = 7",
    "torch's mapped storages": "import torch; torch.UntypedStorage.from_file('big', shared=True, nbytes=4)[0] = 7",
    "truncate": "import os; os.truncate('big', 1)",
    "chmod": "import os; os.chmod('big', 0o600)",
    "torch.save": "import torch; torch.save(1, 'big')",
    "the helpers' torch.save": "from dp2ddp.helpers import save_completely as save; save(1, 'big')",
    "the same, in a linked folder": "from dp2ddp.helpers import save_completely as save; save(1, 'linked/x')",
}


def folder_of(where: Path) -> Path:
    """A scratch folder with links into the user's."""
    users = where / "users"
    (users / "folder").mkdir(parents=True)
    (users / "big").write_text("mine")
    (users / "big").chmod(0o640)
    with closing(sqlite3.connect(users / "database")) as database:
        database.execute("create table t (x)")
        database.commit()
    (users / "folder" / "entry").write_text("mine")
    scratch = where / "scratch"
    scratch.mkdir()
    (scratch / "big").symlink_to(users / "big")
    (scratch / "database").symlink_to(users / "database")
    (scratch / "linked").symlink_to(users / "folder")
    return scratch


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return folder_of(tmp_path)


def run(server: Server, scratch: Path, code: str) -> None:
    lock = str(scratch.parent / "lock")
    setup = (
        "from pathlib import Path; from dp2ddp.runtime.process.writes import guard; "
        f"guard([Path({str(scratch)!r})], Path({lock!r}))\n"
    )
    program = scratch.parent / "program.py"
    program.write_text(setup + code)
    ended = run_program(server, scratch, program)
    assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="module")
def all_cases(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Path:
    """A folder for each case, which has been run."""
    folder, program = tmp_path_factory.mktemp("cases"), tmp_path_factory.mktemp("program") / "forking.py"
    program.write_text(FORKING)
    for name, code in CASES.items():
        folder_of(folder / name)
        (folder / name / "code").write_text(code)
    run = run_program(server, program.parent, program, folder)
    assert run.returncode == 0, run.stderr
    return folder


@pytest.mark.parametrize("case", CASES)
def test_the_users_files_stay_as_they_are(all_cases: Path, case: str) -> None:
    users = all_cases / case / "users"
    assert (users / "big").read_text() == "mine"
    assert (users / "big").stat().st_mode & 0o777 == 0o640
    with closing(sqlite3.connect(users / "database")) as database:
        assert database.execute("select * from t").fetchall() == []
    assert [path.name for path in (users / "folder").iterdir()] == ["entry"]
    assert (users / "folder" / "entry").read_text() == "mine"


def test_the_run_sees_what_it_wrote_and_all_the_rest(scratch: Path, server: Server) -> None:
    run(server, scratch, "open('big', 'a').write('!'); open('linked/new', 'w').write('x')")
    assert (scratch / "big").read_text() == "mine!"
    assert sorted(path.name for path in (scratch / "linked").iterdir()) == ["entry", "new"]


def test_reading_leaves_the_links(scratch: Path, server: Server) -> None:
    run(server, scratch, "open('big').read(); open('linked/entry').read()")
    assert (scratch / "big").is_symlink()
    assert (scratch / "linked").is_symlink()


def test_what_is_opened_for_writing_is_noted(tmp_path: Path, server: Server) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from pathlib import Path\nfrom dp2ddp.runtime.process.writes import guard\n"
        "from dp2ddp.runtime.process.writes import Writes\n"
        "guard([Path('.')], Path('run/lock'), Writes(Path('run').absolute(), 1))\n"
        "import torch\nopen('a', 'w').close()\nopen('a').close()\nopen('b', 'a').close()\ntorch.save(1, 'c')"
    )
    (tmp_path / "run").mkdir()
    ended = run_program(server, tmp_path, program)
    assert ended.returncode == 0, ended.stderr
    found = {(Path(write.path).name, write.anew) for write in read_writes(tmp_path / "run", 1)}
    assert {("a", True), ("b", False), ("c", True)} <= found
    assert not any(name.startswith("rank1") for name, _ in found)


RANKS = """
import os, sys, time
from pathlib import Path
from dp2ddp.runtime.process.writes import guard

os.chdir(sys.argv[1])
guard([Path.cwd()], Path("../lock"))
start = float(sys.argv[2])
for number in range(100):
    time.sleep(max(0, start + number / 50 - 0.002 - time.time()))
    while time.time() < start + number / 50:
        pass
    with open(f"linked{number}/log", "a") as file:
        file.write(f"{os.environ['RANK']}\\n")
    with open(f"linked{number}/entry") as file:
        assert file.read() == "mine"
"""


def test_ranks_that_open_one_folder_up_at_once_find_all_and_lose_nothing(
    tmp_path: Path, server: Server
) -> None:
    """Of 300 tries 76 ended in a FileNotFoundError of the script's own open()."""
    scratch = folder_of(tmp_path)
    for number in range(100):
        (tmp_path / "users" / f"folder{number}").mkdir()
        (tmp_path / "users" / f"folder{number}" / "entry").write_text("mine")
        (tmp_path / "users" / f"folder{number}" / "log").write_text("")
        (scratch / f"linked{number}").symlink_to(tmp_path / "users" / f"folder{number}")
    program = tmp_path / "program.py"
    program.write_text(RANKS)
    start = (
        time.time() + 1
    )  # they are forked by then, on a machine that is not busy; else they just meet less
    ended = run_program(server, tmp_path, program, scratch, str(start), ranks=3)
    assert ended.returncode == 0, ended.stderr
    for number in range(100):
        lines = (scratch / f"linked{number}" / "log").read_text().splitlines()
        assert sorted(lines) == ["0", "1", "2"]
        assert (tmp_path / "users" / f"folder{number}" / "log").read_text() == ""


def test_a_folder_of_the_users_is_renamed_in_a_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says that it lies on another disk."""

    def across(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    for name in ("rename", "replace"):
        monkeypatch.setattr(os, name, across)
    rename_across_layers()
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "old").mkdir()
    (tmp_path / "runs" / "a" / "x").write_text("x")
    (tmp_path / "runs").rename(tmp_path / "old")
    assert (tmp_path / "old" / "a" / "x").read_text() == "x"
    assert not (tmp_path / "runs").exists()
    with pytest.raises(OSError, match="cross-device"):
        os.replace(tmp_path / "old" / "a" / "x", tmp_path / "y")
