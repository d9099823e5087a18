"""A run in a scratch folder reads through links and never writes through them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dp2ddp.runtime.written_files import read_writes

# an audit hook cannot be removed, so each case has a process of its own, forked from one that has torch
FORKING = """
import os, sys, torch
from pathlib import Path
import dp2ddp.templates.rank_zero_output
from dp2ddp.runtime.guard import guard

for folder in Path(sys.argv[1]).iterdir():
    if os.fork() == 0:
        os.chdir(folder / "scratch")
        guard(Path.cwd())
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
    "torch.save": "import torch; torch.save(1, 'big')",
    "the helpers' torch.save": "from dp2ddp.templates.rank_zero_output import save_completely as save; save(1, 'big')",
    "the same, in a linked folder": "from dp2ddp.templates.rank_zero_output import save_completely as save; "
    "save(1, 'linked/x')",
}


def folder_of(where: Path) -> Path:
    """A scratch folder with links into the user's."""
    users = where / "users"
    (users / "folder").mkdir(parents=True)
    (users / "big").write_text("mine")
    (users / "folder" / "entry").write_text("mine")
    scratch = where / "scratch"
    scratch.mkdir()
    (scratch / "big").symlink_to(users / "big")
    (scratch / "linked").symlink_to(users / "folder")
    return scratch


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return folder_of(tmp_path)


def run(scratch: Path, code: str) -> None:
    setup = (
        f"from pathlib import Path; from dp2ddp.runtime.guard import guard; guard(Path({str(scratch)!r}))\n"
    )
    subprocess.run([sys.executable, "-c", setup + code], cwd=scratch, check=True)


@pytest.fixture(scope="module")
def all_cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each case, which has been run."""
    folder = tmp_path_factory.mktemp("cases")
    for name, code in CASES.items():
        folder_of(folder / name)
        (folder / name / "code").write_text(code)
    subprocess.run([sys.executable, "-c", FORKING, str(folder)], check=True)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_the_users_files_stay_as_they_are(all_cases: Path, case: str) -> None:
    users = all_cases / case / "users"
    assert (users / "big").read_text() == "mine"
    assert [path.name for path in (users / "folder").iterdir()] == ["entry"]
    assert (users / "folder" / "entry").read_text() == "mine"


def test_the_run_sees_what_it_wrote_and_all_the_rest(scratch: Path) -> None:
    run(scratch, "open('big', 'a').write('!'); open('linked/new', 'w').write('x')")
    assert (scratch / "big").read_text() == "mine!"
    assert sorted(path.name for path in (scratch / "linked").iterdir()) == ["entry", "new"]


def test_reading_leaves_the_links(scratch: Path) -> None:
    run(scratch, "open('big').read(); open('linked/entry').read()")
    assert (scratch / "big").is_symlink()
    assert (scratch / "linked").is_symlink()


def test_what_is_opened_for_writing_is_noted(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\nfrom dp2ddp.runtime.guard import guard\n"
        "from dp2ddp.runtime.written_files import Writes\n"
        "guard(Path('.'), Writes(Path('run').absolute(), 1))\n"
        "import torch\nopen('a', 'w').close()\nopen('a').close()\nopen('b', 'a').close()\ntorch.save(1, 'c')"
    )
    (tmp_path / "run").mkdir()
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    found = {(Path(write.path).name, write.anew) for write in read_writes(tmp_path / "run", 1)}
    assert {("a", True), ("b", False), ("c", True)} <= found
    assert not any(name.startswith("rank1") for name, _ in found)
