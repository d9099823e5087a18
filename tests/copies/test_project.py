"""A copy of a project: code is copied, what is large is linked, links lead to where they should."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from dp2ddp.copies import project as project_copy
from dp2ddp.copies.project import RECORD, Copy, copy_project
from dp2ddp.errors import SourceError
from dp2ddp.source import survey
from dp2ddp.source.folders import project_root


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home" / "project"
    for name in (
        "train.py",
        "lib/net.py",
        "data/small.txt",
        ".hg/store",
        "__pycache__/x.pyc",
        "env/pyvenv.cfg",
    ):
        write(folder / name, name)
    write(folder / "data/large.bin", "\0" * (2**20 + 1))
    (folder / "checkpoints").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(project_copy, "clone", lambda source, target: False)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/somewhere/else")
    return folder


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def copied(
    project: Path, *others: Path, target: str = "../copy", force: bool = False, written: tuple[str, ...] = (),
) -> Copy:  # fmt: skip
    """A copy in which the script, and others, say `new`."""
    files = dict.fromkeys((project / "train.py", *others), b"new")
    return copy_project(project / "train.py", files, Path(target), force, written)


def links(copy: Path) -> set[str]:
    return {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_symlink()}


def test_the_script_of_the_copy_is_named_as_its_place_was_typed(project: Path) -> None:
    assert copied(project).script == Path("../copy/train.py")


def test_the_copy_is_whole_but_for_version_control_caches_and_environments(project: Path) -> None:
    copied(project)

    copy = project.parent / "copy"
    found = {str(path.relative_to(copy)) for path in copy.rglob("*")}
    assert found == {
        "train.py",
        "lib",
        "lib/net.py",
        "data",
        "data/small.txt",
        "data/large.bin",
        "checkpoints",
        RECORD,
    }
    assert (copy / "train.py").read_text() == "new"
    assert (project / "train.py").read_text() == "train.py"


def test_what_is_large_is_a_link_and_is_named_with_its_size(project: Path) -> None:
    write(project / "data/weights.npy", "\0" * 2**20)
    write(project / "lib/long.py", "x" * (2**20 + 1))

    copy = copied(project)

    assert copy.linked == ("data/large.bin (1.05 MB)",)
    assert links(project.parent / "copy") == {"data/large.bin"}
    assert (project.parent / "copy/data/large.bin").resolve() == project / "data/large.bin"


def test_of_a_folder_of_many_files_each_is_a_link_and_what_is_new_is_the_copys(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "MANY", 3)
    for number in range(4):
        write(project / "data/images" / f"{number % 2}/{number}.jpg", "x")
        write(project / "data/images" / f"{number}.jpg", "x")

    copied(project)
    write(project.parent / "copy/data/images/0/new.jpg", "mine")

    assert (project.parent / "copy/data/images/1/3.jpg").resolve() == project / "data/images/1/3.jpg"
    assert not (project / "data/images/0/new.jpg").exists()


def test_links_that_lead_nowhere_or_to_themselves_are_kept(project: Path) -> None:
    (project / "round").symlink_to("round")
    copied(project)
    assert os.readlink(project.parent / "copy/round") == "round"


def test_a_folder_of_very_many_files_is_a_link(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MANY", 3)
    monkeypatch.setattr(project_copy, "LINKED_EACH", 3)
    for number in range(4):
        write(project / "data/images" / f"{number}.txt", "x")
        write(project / "lib" / f"m{number}.py", "x")

    copied(project)

    assert links(project.parent / "copy") == {"data/images", "data/large.bin"}


class TestResults:
    """Runs of the copy write where runs of the original wrote: a link there would lead them to the original's."""

    @pytest.fixture(autouse=True)
    def limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(project_copy, "RESULT_COPIED", 2**21)

    def test_they_are_copied_or_left_out_and_named(self, project: Path) -> None:
        write(project / "best.pt", "x" * (2**20 + 1))
        write(project / "runs/deep/events.out.tfevents.1", "x" * (2**20 + 1))
        write(project / "checkpoints/huge.bin", "x" * (2**21 + 1))

        copy = copied(project)

        assert links(project.parent / "copy") == {"data/large.bin"}
        assert (project.parent / "copy/best.pt").stat().st_size == 2**20 + 1
        assert (project.parent / "copy/runs/deep/events.out.tfevents.1").exists()
        assert copy.left_out == ("checkpoints/huge.bin (2.1 MB)",)

    def test_what_the_script_writes_to_is_one_whatever_it_is_called(self, project: Path) -> None:
        write(project / "data/table.npy", "x" * (2**20 + 1))
        copied(project, written=("./data/table.npy",))
        assert links(project.parent / "copy") == {"data/large.bin"}

    def test_a_folder_that_the_script_writes_into_is_no_link(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(survey, "MANY", 3)
        for number in range(4):
            write(project / "data" / f"{number}.jpg", "x")
        copied(project, written=("data/cache.pt",))
        write(project.parent / "copy/data/cache.pt", "theirs")
        assert not (project / "data/cache.pt").exists()
        assert "data/3.jpg" in links(project.parent / "copy")

    def test_a_folder_of_them_behind_a_link_is_no_link(self, project: Path) -> None:
        """Training in the copy overwrote the original's checkpoint on another disk."""
        write(project.parent / "disk/best.pt", "x")
        (project / "checkpoints").rmdir()
        (project / "checkpoints").symlink_to(project.parent / "disk")
        copy = copied(project)
        assert links(project.parent / "copy") == {"data/large.bin"}
        assert copy.left_out == (f"checkpoints (a link to {project.parent / 'disk'})",)

    def test_a_folder_that_the_script_writes_into_behind_a_link_is_one_of_the_copys_own(
        self, project: Path
    ) -> None:
        write(project.parent / "disk/log.txt", "x")
        (project / "theirs").symlink_to(project.parent / "disk")
        copied(project, written=("theirs/log.txt",))
        write(project.parent / "copy/theirs/log.txt", "y")
        assert (project.parent / "disk/log.txt").read_text() == "x"

    def test_a_name_that_the_script_puts_together_may_be_one(self, project: Path) -> None:
        for name in ("tb/best_model.onnx", "model.raw", "other.npy"):
            write(project / name, "x" * (2**20 + 1))
        copied(project, written=("best_", ".raw"))
        assert links(project.parent / "copy") == {"data/large.bin", "other.npy"}

    def test_a_link_of_the_users_to_one_is_no_link(self, project: Path) -> None:
        """Whatever it leads to is called: a cache calls it by a hash."""
        write(project.parent / "cache/5e1f", "x" * (2**20 + 1))
        (project / "best.pt").symlink_to(project.parent / "cache/5e1f")
        copied(project)
        assert links(project.parent / "copy") == {"data/large.bin"}


def test_what_git_ignores_is_there_too(project: Path) -> None:
    """Data sets mostly are ignored; without them the copy would not run."""
    git(project, "init")
    write(project / ".gitignore", "data/\n")

    copied(project)

    assert (project.parent / "copy/data/small.txt").read_text() == "data/small.txt"
    assert not (project.parent / "copy/.git").exists()


class TestLinks:
    def test_they_lead_to_the_same_place_of_the_copy(self, project: Path) -> None:
        (project / "here").symlink_to("lib")
        (project / "absolute").symlink_to(project / "lib/net.py")

        copied(project, project / "lib/net.py")

        copy = project.parent / "copy"
        assert (copy / "here").resolve() == copy / "lib"
        assert (copy / "absolute").read_text() == "new"
        assert (project / "lib/net.py").read_text() == "lib/net.py"

    def test_out_of_the_project_they_lead_where_they_led(self, project: Path) -> None:
        write(project.parent / "datasets/a.txt", "a")
        (project / "data/sets").symlink_to("../../datasets")
        (project / "broken").symlink_to("nowhere")

        copied(project, target="../elsewhere/deep/copy")

        copy = project.parent / "elsewhere/deep/copy"
        assert (copy / "data/sets/a.txt").read_text() == "a"
        assert os.readlink(copy / "broken") == "nowhere"

    @pytest.mark.parametrize("linked", ["shared", "shared/net.py"])
    def test_a_converted_file_behind_one_gets_a_place_in_the_copy(self, project: Path, linked: str) -> None:
        outside = write(project.parent / "shared/net.py", "old")
        (project / "common").mkdir()
        (project / "common" / Path(linked).name).symlink_to(project.parent / linked)

        copied(project, outside)

        place = project.parent / "copy/common" / Path(linked).name
        assert (place / "net.py" if place.is_dir() else place).read_text() == "new"
        assert outside.read_text() == "old"


class TestTargets:
    def test_inside_of_the_project_it_does_not_hold_itself(self, project: Path) -> None:
        copied(project, target="copy")
        assert sorted(path.name for path in (project / "copy").iterdir()) == [
            RECORD,
            "checkpoints",
            "data",
            "lib",
            "train.py",
        ]

    @pytest.mark.parametrize("target", [".", "..", "train.py"])
    def test_what_would_be_in_the_way(self, project: Path, target: str) -> None:
        with pytest.raises(SourceError):
            copied(project, target=target, force=True)
        assert (project / "train.py").read_text() == "train.py"

    @pytest.mark.parametrize("target", ["data", "lib"])
    def test_a_folder_of_the_originals_own_is_refused(self, project: Path, target: str) -> None:
        with pytest.raises(SourceError, match="belongs to the project"):
            copied(project, target=target, force=True)

    def test_with_force_code_is_replaced_and_all_else_stays(self, project: Path) -> None:
        copied(project)
        copy = project.parent / "copy"
        write(copy / "mine.txt", "mine")
        write(copy / "data/small.txt", "what a run of the copy wrote")
        write(project / "lib/net.py", "changed")

        with pytest.raises(SourceError, match="exists already"):
            copied(project)
        assert copied(project, force=True).kept == ()

        assert (copy / "mine.txt").read_text() == "mine"
        assert (copy / "data/small.txt").read_text() == "what a run of the copy wrote"
        assert (copy / "lib/net.py").read_text() == "changed"
        assert (copy / "data/large.bin").is_symlink()
        assert not list(project.parent.glob(".copy-*"))

    def test_with_force_code_that_its_owner_changed_stays_beside(self, project: Path) -> None:
        copied(project)
        write(project.parent / "copy/train.py", "mine")
        assert copied(project, force=True).kept == ("train.py is train.py.mine now",)
        assert (project.parent / "copy/train.py").read_text() == "new"
        assert (project.parent / "copy/train.py.mine").read_text() == "mine"
        write(project.parent / "copy/train.py", "mine again")
        copied(project, force=True)
        assert (project.parent / "copy/train.py.mine").read_text() == "mine"
        assert (project.parent / "copy/train.py.mine1").read_text() == "mine again"

    def test_with_force_no_link_below_it_is_followed(self, project: Path) -> None:
        """The owner shares checkpoints; the original's was once replaced by a link to itself."""
        best = write(project / "checkpoints/best.pt", "x" * (2**20 + 1))
        copied(project)
        shutil.rmtree(project.parent / "copy/checkpoints")
        (project.parent / "copy/checkpoints").symlink_to("../project/checkpoints")

        copied(project, force=True)

        assert best.stat().st_size == 2**20 + 1
        assert not best.is_symlink()
        assert [path.name for path in best.parent.iterdir()] == ["best.pt"]

    def test_with_force_code_is_not_put_behind_a_link(self, project: Path) -> None:
        copied(project)
        shutil.rmtree(project.parent / "copy/lib")
        (project.parent / "copy/lib").symlink_to("../project/lib")
        with pytest.raises(SourceError, match="is a link"):
            copied(project, project / "lib/net.py", force=True)
        assert (project / "lib/net.py").read_text() == "lib/net.py"

    def test_a_private_project_has_a_private_copy(self, project: Path) -> None:
        project.chmod(0o700)
        (project / "lib").chmod(0o710)
        copied(project)
        assert (project.parent / "copy").stat().st_mode & 0o777 == 0o700
        assert (project.parent / "copy/lib").stat().st_mode & 0o777 == 0o710

    def test_a_failure_in_the_middle_leaves_nothing(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(project_copy.shutil, "copy2", full)
        with pytest.raises(SourceError, match="No space left on device"):
            copied(project)
        assert [path.name for path in project.parent.iterdir()] == ["project"]


class TestRoot:
    def test_it_is_never_the_home_of_everything(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(project.parent))
        outside = write(project.parent / "other/net.py", "old")
        with pytest.raises(SourceError, match="holds more than this project"):
            copied(project, outside)

    def test_a_module_in_another_working_tree_is_refused(self, project: Path) -> None:
        git(project, "init")
        with pytest.raises(SourceError, match="lies outside of the project"):
            copied(project, write(project.parent / "other/net.py", "old"))
        assert not (project.parent / "copy").exists()

    def test_a_git_that_keeps_the_whole_home_is_not_the_project(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(project.parent))
        git(project.parent, "init")
        assert project_root(project / "train.py", [project / "lib/net.py"]) == project


def git(folder: Path, *arguments: str) -> None:
    name = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True)
