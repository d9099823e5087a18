"""A copy of a project: code is copied, what is large is linked, links lead to where they should."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from dp2ddp.errors import SourceError
from dp2ddp.source import project_copy
from dp2ddp.source.folders import project_root
from dp2ddp.source.project_copy import Copy, copy_project


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


def copied(project: Path, *others: Path, target: str = "../copy", force: bool = False) -> Copy:
    """A copy in which the script, and others, say `new`."""
    return copy_project(
        project / "train.py", dict.fromkeys((project / "train.py", *others), b"new"), Path(target), force
    )


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
    }
    assert (copy / "train.py").read_text() == "new"
    assert (project / "train.py").read_text() == "train.py"


def test_what_is_large_or_binary_is_a_link_and_is_named(project: Path) -> None:
    write(project / "data/weights.pt", "\0" * (2**16 + 1))
    write(project / "data/notes.txt", "x" * (2**16 + 1))
    write(project / "lib/long.py", "x" * (2**20 + 1))

    copy = copied(project)

    assert copy.linked == (Path("data/large.bin"), Path("data/weights.pt"))
    links = {path.name for path in (project.parent / "copy").rglob("*") if path.is_symlink()}
    assert links == {"large.bin", "weights.pt"}
    assert (project.parent / "copy/data/large.bin").resolve() == project / "data/large.bin"


def test_a_folder_of_very_many_files_is_a_link(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_copy, "MANY", 3)
    for number in range(4):
        write(project / "data/images" / f"{number}.txt", "x")
        write(project / "lib" / f"m{number}.py", "x")

    assert copied(project).linked == (Path("data/images"), Path("data/large.bin"))


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

    def test_with_force_it_is_laid_over_what_is_there(self, project: Path) -> None:
        copied(project)
        write(project.parent / "copy/mine.txt", "mine")

        with pytest.raises(SourceError, match="exists already"):
            copied(project)
        copied(project, force=True)

        assert (project.parent / "copy/mine.txt").read_text() == "mine"
        assert (project.parent / "copy/data/large.bin").is_symlink()
        assert not list((project.parent / "copy").glob(".copy-*"))

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
