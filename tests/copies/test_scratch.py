"""Scratch copies: complete enough to run in, and nothing of the user's is changed."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from dp2ddp.copies import linked
from dp2ddp.copies.scratch import Copies
from dp2ddp.errors import RunError
from dp2ddp.source import survey
from tests.copies.kinds import KINDS, choose, copied

# what a rank does before the script begins (runtime/process/boot.py), without torch
RUN = """
import os, sys
from pathlib import Path
from dp2ddp.copies.disguise import disguise
from dp2ddp.copies.namespace import enter
from dp2ddp.copies.unfolding import Unfolding
holder, folder, room, owned, code = sys.argv[1:6]
if holder:
    enter(int(holder))
os.chdir(folder)
unfolding = Unfolding([Path(room), *map(Path, owned.split(os.pathsep))], Path(room) / "lock")
busy = False
def hook(event, arguments):
    global busy
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if event in ("os.rename", "shutil.rmtree") and not busy:
        busy = True
        unfolding.own(arguments[0], True)
        busy = False
    changes = event in ("os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.utime")
    if (writes or changes) and isinstance(arguments[0], str) and not busy:
        busy = True
        unfolding.own(arguments[0], bool(writes))
        busy = False
sys.addaudithook(hook)
disguise(lambda: busy)
exec(code)
"""

RENAME = "from dp2ddp.runtime.process.writes import rename_across_layers; rename_across_layers()\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "data").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "train.py").write_text("print(1)")
    (root / "data" / "a.bin").write_bytes(b"1234")
    for left_out in (".git", "__pycache__", "env"):
        (root / left_out).mkdir()
        (root / left_out / "file").write_text("")
    (root / "env" / "pyvenv.cfg").write_text("")
    return root


@pytest.fixture(params=KINDS)
def copies(
    request: pytest.FixtureRequest, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Copies]:
    choose(request.param, monkeypatch)
    with copied(project, tmp_path / "room", {project / "train_ddp.py": b"print(2)"}) as made:
        assert bool(made.holder) == (request.param == "mounts")
        yield made


def run(copies: Copies, code: str) -> str:
    """What code prints that runs in the copies."""
    (workspace,) = copies.workspaces
    holder = str(copies.holder.process.pid) if copies.holder else ""
    owned = os.pathsep.join(map(str, workspace.inside))
    folder = str(copies.place(workspace.original))
    room = str(workspace.original.parent / "room")
    command = [sys.executable, "-c", RUN, holder, folder, room, owned, code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def state(folder: Path, without: Collection[Path] = ()) -> dict[str, tuple[object, ...]]:
    """Every byte below a folder, and what is known of each name; the bytes of some left out."""
    every = (path for path in folder.rglob("*"))
    return {str(path.relative_to(folder)): _state_of(path, path not in without) for path in every}


def _state_of(path: Path, read: bool) -> tuple[object, ...]:
    known = path.lstat()
    content = (
        os.readlink(path) if path.is_symlink() else path.read_bytes() if read and path.is_file() else b""
    )
    return known.st_mode, known.st_size, known.st_mtime_ns, known.st_nlink, content


def test_a_run_finds_files_and_empty_folders_and_what_was_put_there(copies: Copies) -> None:
    found = set(run(copies, "for path in Path().rglob('*'): print(path)").splitlines())
    assert {"data", "data/a.bin", "empty", "train.py", "train_ddp.py"} <= found


def test_what_a_run_wrote_changed_and_removed_is_found(copies: Copies, project: Path) -> None:
    before = state(project)
    run(copies, "open('new.txt', 'w').close(); open('train.py', 'w').write('x'); os.remove('data/a.bin')")
    left = copies.workspaces[0].left_behind()
    assert (left.written, left.removed, left.folders) == (
        ("new.txt", "train.py"),
        ("data/a.bin",),
        frozenset(),
    )
    assert left.place("train.py").read_text() == "x"
    assert state(project) == before


def test_folders_that_a_run_made_and_removed_are_found(copies: Copies, project: Path) -> None:
    before = state(project)
    run(copies, "os.makedirs('a/b'); os.rmdir('empty'); os.remove('data/a.bin'); os.rmdir('data')")
    left = copies.workspaces[0].left_behind()
    assert (left.written, left.removed) == ((), ("data/a.bin",))
    assert left.folders == {"a", "a/b", "empty", "data"}
    assert state(project) == before


def test_a_folder_removed_and_made_again_holds_what_is_in_it_now(copies: Copies) -> None:
    run(copies, "os.remove('data/a.bin'); os.rmdir('data'); os.mkdir('data'); open('data/b', 'w').write('b')")
    left = copies.workspaces[0].left_behind()
    assert (left.written, left.removed) == (("data/b",), ("data/a.bin",))


def test_a_file_that_was_only_touched_is_no_leaving(copies: Copies) -> None:
    run(
        copies, "os.utime('data/a.bin', (1, 1)); open('train.py', 'r+').close()"
    )  # h5py.File(..., "r+") does so
    assert copies.workspaces[0].left_behind().written == ()


def test_what_was_put_there_is_no_leaving_unless_the_run_changed_it(copies: Copies) -> None:
    run(copies, "open('train_ddp.py', 'a').write('!')")
    assert copies.workspaces[0].left_behind().written == ("train_ddp.py",)


def test_a_link_that_the_run_made_leads_to_what_the_run_wrote(copies: Copies) -> None:
    run(copies, "open('5.pt', 'w').write('five'); os.symlink(Path('5.pt').absolute(), 'latest.pt')")
    left = copies.workspaces[0].left_behind()
    assert left.written == ("5.pt", "latest.pt")
    assert left.place("latest.pt").read_text() == "five"


def test_an_argument_names_the_folder_that_the_run_has(copies: Copies, project: Path) -> None:
    folder = copies.place(project)
    for before, after in ("", ""), ("--data=", ""), ("data=", ",x=1"), ("['", "/data']"), ("", ":/else"):
        assert copies.here(f"{before}{project}{after}") == f"{before}{folder}{after}"
    assert copies.here(f"{project}2/data") == f"{project}2/data"
    assert copies.here(f"/mnt{project}") == f"/mnt{project}"
    assert copies.here("data") == "data"


@pytest.mark.parametrize("kind", KINDS)
class TestAsPeopleHaveIt:
    @pytest.fixture(autouse=True)
    def links_and_large_files(self, kind: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        choose(kind, monkeypatch)
        monkeypatch.setattr(linked, "clone", lambda source, target: False)
        monkeypatch.setattr(linked, "LARGE_COPIED", 3)
        monkeypatch.setattr(survey, "SMALL", 3)

    def test_a_large_file_in_front_makes_no_link_of_code(self, project: Path, tmp_path: Path) -> None:
        """verify once wrote its conversion through such a link, and train.py was gone."""
        with (project / "a_best_model.pth").open("wb") as file:
            file.truncate(600 * 2**20)
        (project / "train_ddp.py").write_text("the user's own")
        before = state_but_content(project)
        with copied(project, tmp_path / "room", {project / "train_ddp.py": b"new"}) as copies:
            assert (
                run(copies, "print(open('train_ddp.py').read(), Path('train.py').is_symlink())")
                == "new False\n"
            )
            run(copies, "open('train.py', 'w').write('changed'); open('data/a.bin', 'a').write('changed')")
        assert state_but_content(project) == before
        assert (project / "train_ddp.py").read_text() == "the user's own"

    def test_the_users_own_link_is_replaced_and_not_followed(self, project: Path, tmp_path: Path) -> None:
        (project / "train_ddp.py").symlink_to("train.py")
        with copied(project, tmp_path / "room", {project / "train_ddp.py": b"new"}) as copies:
            assert (
                run(copies, "print(open('train_ddp.py').read(), open('train.py').read())") == "new print(1)\n"
            )
        assert (project / "train.py").read_text() == "print(1)"

    def test_a_link_out_of_the_folder_is_opened_up(self, project: Path, tmp_path: Path) -> None:
        outside = tmp_path / "datasets"
        (outside / "deep").mkdir(parents=True)
        (outside / "x").write_text("mine")
        (outside / "deep" / "y").write_text("mine")
        (project / "sets").symlink_to(outside)
        before = state(tmp_path / "datasets"), state(project)
        with copied(project, tmp_path / "room") as copies:
            run(copies, "open('sets/x', 'a').write('!'); open('sets/deep/new', 'w').write('n')")
            assert run(copies, "print(open('sets/x').read(), sorted(os.listdir('sets/deep')))") == (
                "mine! ['new', 'y']\n"
            )
        assert (state(tmp_path / "datasets"), state(project)) == before

    def test_a_link_within_the_folder_stays_one(self, project: Path, tmp_path: Path) -> None:
        (project / "latest").symlink_to("data")
        with copied(project, tmp_path / "room") as copies:
            run(copies, "open('latest/new', 'w').write('n')")
            assert copies.workspaces[0].left_behind().written == ("data/new",)

    def test_a_folder_of_many_files_is_not_walked_and_can_be_written_to(
        self, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(survey, "MANY", 5)
        (project / "images").mkdir()
        for number in range(9):
            (project / "images" / f"{number}.jpg").write_text("")
        before = state(project)
        with copied(project, tmp_path / "room") as copies:
            run(copies, "open('images/cache', 'w').write('n'); os.remove('images/3.jpg')")
            left = copies.workspaces[0].left_behind()
            assert (left.written, left.removed) == (("images/cache",), ("images/3.jpg",))
            assert copies.workspaces[0].changed_originals() == ()
        assert state(project) == before

    def test_a_folder_of_many_files_looks_like_one(
        self, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(survey, "MANY", 5)
        for number in range(9):
            (project / "images" / f"{number % 2}").mkdir(parents=True, exist_ok=True)
            (project / "images" / f"{number % 2}" / f"{number}.jpg").write_text("")
            (project / "images" / f"{number}.jpg").write_text("")
        code = """
walked = sorted(file for _, _, files in os.walk(".") for file in files if file.endswith("jpg"))
found = sorted(path.name for path in Path().rglob("*.jpg"))
assert walked == found == sorted(f"{number}.jpg" for number in range(9) for _ in range(2)), (walked, found)
assert not os.path.islink("images") and not Path("images").is_symlink() and Path("images/1").is_dir()
assert Path("images/1").resolve() == Path.cwd().resolve() / "images/1"
import shutil
shutil.rmtree("images/1")
os.rename("images/0", "images/2")
assert sorted(os.listdir("images/2")) == ["0.jpg", "2.jpg", "4.jpg", "6.jpg", "8.jpg"]
"""
        before = state(project)
        with copied(project, tmp_path / "room") as copies:
            run(copies, RENAME + code)
        assert state(project) == before

    def test_a_converted_file_that_lies_elsewhere_is_refused(self, project: Path, tmp_path: Path) -> None:
        with (
            pytest.raises(RunError, match="lies outside"),
            copied(project, tmp_path / "room", {tmp_path / "elsewhere.py": b""}),
        ):
            pass


def test_everything_is_no_folder_to_copy(tmp_path: Path) -> None:
    """Started in `/`, as containers do, a run would get a copy of /proc and of all disks."""
    with pytest.raises(RunError, match="^/: a run gets a scratch copy"), copied(Path("/"), tmp_path / "room"):
        pass


def state_but_content(folder: Path) -> dict[str, tuple[int, int, int]]:
    states = ((path, path.lstat()) for path in folder.rglob("*"))
    return {str(path): (each.st_mode, each.st_size, each.st_mtime_ns) for path, each in states}


class TestLinks:
    @pytest.fixture(autouse=True)
    def no_mounts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        choose("links", monkeypatch)

    def test_history_and_environments_are_left_out(self, project: Path, tmp_path: Path) -> None:
        with copied(project, tmp_path / "room") as copies:
            folder = copies.workspaces[0].folder
            found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
        assert found == ["data", "data/a.bin", "empty", "train.py"]

    def test_what_lies_beside_the_folder_is_found(self, project: Path, tmp_path: Path) -> None:
        (tmp_path / "sets").mkdir()
        (tmp_path / "sets" / "x").write_text("mine")
        with copied(project, tmp_path / "room") as copies:
            assert run(copies, "print(open('../sets/x').read())") == "mine\n"
            run(copies, "open('../sets/x', 'w').write('theirs')")
            assert run(copies, "print(open('../sets/x').read())") == "theirs\n"
        assert (tmp_path / "sets" / "x").read_text() == "mine"

    @pytest.mark.parametrize(("number", "is_linked"), [(errno.EIO, True), (errno.ENOSPC, False)])
    def test_a_file_that_cannot_be_read_is_left_to_the_run(
        self, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_linked: bool
    ) -> None:
        def fail(source: str, target: str) -> None:
            raise OSError(number, "cannot")

        monkeypatch.setattr("shutil.copy2", fail)
        with contextlib.suppress(OSError), copied(project, tmp_path / "room") as copies:
            assert is_linked
            assert copies.place(project / "data" / "a.bin").is_symlink()
            return
        assert not is_linked

    def test_paths_in_settings_lead_into_the_copy(self, project: Path, tmp_path: Path) -> None:
        (project / "conf.yaml").write_text(f"data: {project}/data\nother: {project}2/data\n")
        with copied(project, tmp_path / "room") as copies:
            folder = copies.place(project)
            assert (folder / "conf.yaml").read_text() == f"data: {folder}/data\nother: {project}2/data\n"
            assert copies.workspaces[0].left_behind().written == ()

    def test_an_original_that_something_wrote_to_is_told(
        self, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(survey, "MANY", 2)
        monkeypatch.setattr(survey, "SMALL", 3)
        monkeypatch.setattr(linked, "LARGE_COPIED", 3)
        monkeypatch.setattr(linked, "clone", lambda source, target: False)
        (project / "images").mkdir()
        for number in range(4):
            (project / "images" / f"{number}.jpg").write_text("old")
        with copied(project, tmp_path / "room") as copies:
            (workspace,) = copies.workspaces
            assert workspace.changed_originals() == ()
            (project / "data" / "a.bin").write_bytes(b"12345")
            state = (project / "images" / "2.jpg").stat()
            (project / "images" / "2.jpg").write_text("new")  # as long as before
            os.utime(project / "images" / "2.jpg", ns=(state.st_atime_ns, state.st_mtime_ns))
            assert set(workspace.changed_originals()) == {
                project / "data" / "a.bin",
                project / "images" / "2.jpg",
            }
