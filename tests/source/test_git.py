"""What git keeps, whatever it is told to pass over; the undo gives back what was there; no stranger's program runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dp2ddp.errors import SourceError
from dp2ddp.source.git import refuse_unkept, undo_commands

OLD = b"print('old')\n"
EDITED = b"print('old')  # my edit\n"


def git(folder: Path, *arguments: str) -> str:
    name = ["-c", "user.name=a", "-c", "user.email=a@b"]
    run = subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return run.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with two committed files, one of them with a name that is a pattern."""
    folder = tmp_path / "my project"
    (folder / "lib").mkdir(parents=True)
    git(folder, "init")
    for name in ("train.py", "lib/net[1].py", "lib/net1.py"):
        (folder / name).write_bytes(OLD)
    git(folder, "add", ".")
    git(folder, "commit", "-m", "all")
    return folder


def hide(command: str) -> Callable[[Path], None]:
    def run(project: Path) -> None:
        git(project, *command.split())

    return run


HIDING = {
    "assume-unchanged": hide("update-index --assume-unchanged train.py"),
    "skip-worktree": hide("update-index --skip-worktree train.py"),
    "untracked are not shown": hide("config status.showUntrackedFiles no"),
    "all of it is shown": hide("config status.showUntrackedFiles all"),
}


@pytest.fixture(params=list(HIDING.values()), ids=list(HIDING))
def hidden(request: pytest.FixtureRequest, project: Path) -> Path:
    """A repository that is told what to pass over, or to show."""
    request.param(project)
    return project


class TestKept:
    def test_what_is_as_committed_is_kept(self, hidden: Path) -> None:
        refuse_unkept({hidden / "train.py": OLD, hidden / "lib" / "net[1].py": OLD})

    def test_an_edit_is_not_whatever_git_passes_over(self, hidden: Path) -> None:
        (hidden / "train.py").write_bytes(EDITED)
        with pytest.raises(SourceError, match=r"train\.py: not committed to git; commit it first"):
            refuse_unkept({hidden / "train.py": EDITED})

    def test_a_file_that_git_does_not_know_is_not(self, hidden: Path) -> None:
        (hidden / "new.py").write_bytes(OLD)
        with pytest.raises(SourceError, match=r"new\.py: not committed"):
            refuse_unkept({hidden / "new.py": OLD})

    def test_an_ignored_file_is_not(self, project: Path) -> None:
        (project / ".gitignore").write_text("*.local.py\n")
        (project / "a.local.py").write_bytes(OLD)
        with pytest.raises(SourceError, match="not committed"):
            refuse_unkept({project / "a.local.py": OLD})

    def test_what_is_staged_only_is_not(self, project: Path) -> None:
        (project / "train.py").write_bytes(EDITED)
        git(project, "add", "train.py")
        with pytest.raises(SourceError, match="not committed"):
            refuse_unkept({project / "train.py": EDITED})

    def test_a_repository_without_a_commit_keeps_nothing(self, tmp_path: Path) -> None:
        git(tmp_path, "init")
        with pytest.raises(SourceError, match="not committed"):
            refuse_unkept({tmp_path / "a.py": OLD})

    def test_no_git_at_all(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match="not under git"):
            refuse_unkept({tmp_path / "a.py": OLD})

    def test_the_file_behind_a_link_is_asked_for(self, project: Path) -> None:
        (project / "link.py").symlink_to("lib/net1.py")
        refuse_unkept({project / "link.py": OLD})

    def test_line_ends_that_git_makes_are_kept_and_others_are_not(self, project: Path) -> None:
        git(project, "config", "core.autocrlf", "true")
        refuse_unkept({project / "train.py": OLD.replace(b"\n", b"\r\n")})
        with pytest.raises(SourceError, match="other line ends"):
            refuse_unkept({project / "train.py": OLD})


class TestStrangers:
    """A repository's own settings name programs."""

    @pytest.fixture
    def marker(self, tmp_path: Path) -> Path:
        return tmp_path / "it ran"

    @pytest.fixture
    def program(self, tmp_path: Path, marker: Path) -> str:
        path = tmp_path / "program"
        path.write_text(f'#!/bin/sh\ntouch "{marker}"\nexit 1\n')
        path.chmod(0o755)
        return str(path)

    def test_a_monitor_is_not_started(self, project: Path, marker: Path, program: str) -> None:
        git(project, "config", "core.fsmonitor", program)
        refuse_unkept({project / "train.py": OLD})
        undo_commands([project / "train.py"], [])
        assert not marker.exists()
        git(project, "status")
        assert marker.exists()  # so it would have been

    @pytest.mark.parametrize("name", ["mine", "unset", "unspecified", "set"])
    @pytest.mark.parametrize("kind", ["smudge", "process"])
    def test_a_filter_is_not_started(
        self, project: Path, marker: Path, program: str, name: str, kind: str
    ) -> None:
        """Not even one that is called as git calls the lack of one."""
        git(project, "config", f"filter.{name}.{kind}", program)
        (project / ".gitattributes").write_text(f"*.py filter={name}\n")
        if name.startswith("uns"):
            refuse_unkept({project / "train.py": OLD})
        else:
            with pytest.raises(SourceError, match=f"through the filter {name}, a program"):
                refuse_unkept({project / "train.py": OLD})
        assert not marker.exists()
        subprocess.run(
            ["git", "cat-file", "--filters", "HEAD:./train.py"], cwd=project, check=False, capture_output=True
        )
        assert marker.exists()

    def test_a_partial_clone_fetches_nothing(
        self, project: Path, tmp_path: Path, marker: Path, program: str
    ) -> None:
        git(project, "config", "uploadpack.allowFilter", "true")
        clone = tmp_path / "clone"
        git(tmp_path, "clone", "--filter=blob:none", "--no-checkout", f"file://{project}", str(clone))
        git(clone, "config", "remote.origin.uploadpack", program)
        (clone / "train.py").write_bytes(OLD)
        with pytest.raises(SourceError, match="not committed"):
            refuse_unkept({clone / "train.py": OLD})
        assert not marker.exists()
        subprocess.run(
            ["git", "cat-file", "blob", "HEAD:train.py"], cwd=clone, check=False, capture_output=True
        )
        assert marker.exists()


def bytes_of(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Each file: its text, its mode, its names."""
    files = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode, path.stat().st_nlink)
        for path in files
    }


def stage_another(project: Path) -> None:
    (project / "train.py").write_bytes(EDITED)
    git(project, "add", "train.py")
    (project / "train.py").write_bytes(OLD)


def give_a_second_name(project: Path) -> None:
    os.link(project / "train.py", project / "second.txt")


def make_private(project: Path) -> None:
    (project / "train.py").chmod(0o600)


def make_executable(project: Path) -> None:
    (project / "train.py").chmod(0o755)


def edit_others(project: Path) -> None:
    (project / "lib" / "net1.py").write_bytes(EDITED)
    (project / "notes.txt").write_text("mine\n")


def delete_helpers(project: Path) -> None:
    """They are in the commit, and not there any more."""
    (project / "ddp_helpers.py").write_bytes(OLD)
    git(project, "add", "ddp_helpers.py")
    git(project, "commit", "-m", "helpers")
    (project / "ddp_helpers.py").unlink()


STATES = (
    stage_another, give_a_second_name, make_private, make_executable, edit_others, delete_helpers, *HIDING.values(),
)  # fmt: skip


@pytest.mark.parametrize("place", [".", "lib", ".."])
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("state", STATES, ids=[*(each.__name__ for each in STATES[:6]), *HIDING])
def test_the_undo_gives_back_what_was_there(
    project: Path, monkeypatch: pytest.MonkeyPatch, state: Callable[[Path], None], committed: bool, place: str
) -> None:
    state(project)
    monkeypatch.chdir(project / place)
    before, index = bytes_of(project), git(project, "ls-files", "-s")
    changed, new = [project / "train.py", project / "lib" / "net[1].py"], project / "ddp_helpers.py"
    refuse_unkept({path: path.read_bytes() for path in changed})

    for path in changed:
        with path.open("r+b") as stream:  # into the same file, as it is written where it has two names
            stream.write(b"the conversion, which is longer than what was there\n")
    new.write_bytes(b"helpers\n")
    commands = undo_commands(changed, [new])
    if committed:
        git(project, "commit", "--allow-empty", "-m", "more")
    subprocess.run(" && ".join(commands), shell=True, check=True, capture_output=True)

    assert bytes_of(project) == before
    if not committed:
        assert git(project, "ls-files", "-s") == index


def test_the_undo_is_a_command_that_people_know(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    commit = git(project, "rev-parse", "--short", "HEAD").strip()
    commands = undo_commands([project / "train.py"], [project / "ddp_helpers.py"])
    assert commands == [f"git restore --source={commit} --worktree -- train.py", "rm -- ddp_helpers.py"]


def test_files_of_two_repositories_take_two_commands(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = project / "inner"
    inner.mkdir()
    git(inner, "init")
    (inner / "net.py").write_bytes(OLD)
    git(inner, "add", ".")
    git(inner, "commit", "-m", "inner")
    monkeypatch.chdir(project)
    (project / "train.py").write_bytes(b"new")
    (inner / "net.py").write_bytes(b"new")

    subprocess.run(
        " && ".join(undo_commands([project / "train.py", inner / "net.py"], [])), shell=True, check=True
    )

    assert (project / "train.py").read_bytes() == OLD
    assert (inner / "net.py").read_bytes() == OLD
