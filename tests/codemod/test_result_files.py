"""Where results are written: never over what they are made of, over an owner's work, or over another conversion's."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dp2ddp.api import convert, write_conversion
from dp2ddp.codemod.conversion import Conversion
from dp2ddp.errors import Dp2DdpError, OptionError, SourceError
from dp2ddp.source.helper_module import OPENING
from tests.ipynb import notebook

SCRIPT = "import torch\n\nnet = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n"
SAVES = SCRIPT + "torch.save(net.state_dict(), 'x.pt')\n"
LOGS = SCRIPT + "print('written by rank 0')\nopen('log.txt', 'w').write('a')\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of two scripts that need different helpers."""
    place = tmp_path / "project"
    place.mkdir()
    (place / "a.py").write_text(SAVES)
    (place / "b.py").write_text(LOGS)
    monkeypatch.chdir(place)
    return place


def written(
    conversion: Conversion, output: str | None = None, *, force: bool = False, in_place: bool = False
) -> list[str]:
    """Write it; returns what is remarked."""
    remarks: list[str] = []
    write_conversion(conversion, output, force=force, in_place=in_place, remark=remarks.append)
    return remarks


def texts(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lacking(script: Path) -> set[str]:
    """Names that a converted script imports from its helpers, and that are not there: an ImportError."""
    helpers = ast.parse((script.parent / "ddp_helpers.py").read_text())
    there = {node.name for node in helpers.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    there |= {
        ast.unparse(target)
        for node in helpers.body
        if isinstance(node, ast.Assign)
        for target in node.targets
    }
    lines = [node for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.ImportFrom)]
    needed = {alias.name for node in lines if node.module == "ddp_helpers" for alias in node.names}
    assert needed
    return needed - there


class TestOwnFiles:
    """The result never takes the place of what it is made of."""

    @pytest.mark.parametrize("link", [os.symlink, os.link], ids=["a link", "a hard link"])
    @pytest.mark.parametrize("force", [False, True])
    def test_a_link_to_the_script_where_the_result_goes(
        self, folder: Path, link: Callable[[str, str], None], force: bool
    ) -> None:
        link("a.py", "a_ddp.py")
        with pytest.raises(
            SourceError, match=r"^a_ddp\.py: is another name of a\.py, the file that is converted"
        ):
            written(convert("a.py"), force=force)
        assert (folder / "a.py").read_text() == SAVES
        assert not (folder / "ddp_helpers.py").exists()

    def test_the_script_itself_by_its_name(self, folder: Path) -> None:
        with pytest.raises(
            SourceError, match=r"^a\.py: is the file that is converted; name another with -o, or"
        ):
            written(convert("a.py", output="a.py"), "a.py", force=True)
        assert (folder / "a.py").read_text() == SAVES

    def test_the_script_itself_through_another_name_of_its_folder(self, folder: Path) -> None:
        (folder.parent / "again").symlink_to(folder)
        target = str(folder.parent / "again" / "a.py")
        with pytest.raises(SourceError, match=r"is another name of a\.py"):
            written(convert("a.py", output=target), target, force=True)
        assert (folder / "a.py").read_text() == SAVES

    def test_the_name_that_the_helpers_need(self, folder: Path) -> None:
        with pytest.raises(
            SourceError, match=r"^ddp_helpers\.py: the helpers of the conversion need this name"
        ):
            written(convert("a.py", output="ddp_helpers.py"), "ddp_helpers.py", force=True)
        assert set(os.listdir(folder)) == {"a.py", "b.py"}

    def test_the_notebook_itself(self, folder: Path) -> None:
        before = notebook(folder, *SCRIPT.split("\n\n")).read_bytes()
        with pytest.raises(OptionError, match=r"^-o train\.ipynb: a script is written"):
            write_conversion(convert("train.ipynb"), "train.ipynb", force=True)
        assert (folder / "train.ipynb").read_bytes() == before

    @pytest.mark.parametrize("force", [False, True])
    def test_a_link_to_anything_else(self, folder: Path, force: bool) -> None:
        (folder.parent / "theirs.py").write_text("theirs\n")
        (folder / "a_ddp.py").symlink_to("../theirs.py")
        with pytest.raises(SourceError, match=r"a_ddp\.py: is a link to \.\./theirs\.py"):
            written(convert("a.py"), force=force)
        assert (folder.parent / "theirs.py").read_text() == "theirs\n"

    def test_a_link_to_nothing(self, folder: Path) -> None:
        """Nothing stands there, and yet something would be made elsewhere."""
        (folder / "a_ddp.py").symlink_to("../new.py")
        with pytest.raises(SourceError, match=r"a_ddp\.py: is a link to"):
            written(convert("a.py"))
        assert not (folder.parent / "new.py").exists()

    def test_helpers_that_a_link_shares_with_another_project(self, folder: Path) -> None:
        written(convert("b.py"))
        (folder / "ddp_helpers.py").rename(folder.parent / "shared.py")
        (folder / "ddp_helpers.py").symlink_to("../shared.py")
        before = texts(folder.parent)
        with pytest.raises(SourceError, match=r"ddp_helpers\.py: a link leads out of here"):
            written(convert("a.py"))
        assert texts(folder.parent) == before
        written(convert("b.py"), "c.py")  # all that it needs is there
        assert not lacking(folder / "c.py")


class TestAtOnce:
    """Whoever writes in the folder between reading and writing is not overwritten."""

    def test_many_processes(self, folder: Path) -> None:
        for number in range(4):
            (folder / f"s{number}.py").write_text((SCRIPT, SAVES, LOGS)[number % 3])
        command = [sys.executable, "-m", "dp2ddp", "convert"]
        started = [
            subprocess.Popen([*command, f"s{number}.py"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            for number in range(4)
        ]
        for process in started:
            assert process.communicate()[1] is not None
            assert process.returncode == 0
        assert not set().union(*(lacking(folder / f"s{number}_ddp.py") for number in range(4)))

    @pytest.mark.parametrize("text", ["mine = 1\n", "def mine(:\n", f'{OPENING} (edition 1)"""\n'])
    @pytest.mark.parametrize("in_place", [False, True])
    def test_helpers_that_somebody_writes_stop_everything(
        self, folder: Path, text: str, in_place: bool
    ) -> None:
        conversion = convert("a.py")
        (folder / "ddp_helpers.py").write_text(text)
        before = texts(folder)
        with pytest.raises(SourceError, match=r"ddp_helpers\.py: was made while dp2ddp read it; nothing"):
            written(conversion, in_place=in_place, force=in_place)
        assert texts(folder) == before

    def test_an_edit_of_the_script_in_place_stops_everything(self, folder: Path) -> None:
        conversion = convert("a.py")
        (folder / "a.py").write_text(SAVES + "# mine\n")
        before = texts(folder)
        with pytest.raises(
            SourceError, match=r"a\.py: was changed while dp2ddp read it; nothing was written"
        ):
            written(conversion, in_place=True, force=True)
        assert texts(folder) == before


class TestWrittenAnew:
    """--force, where another version of dp2ddp wrote the helpers."""

    @pytest.fixture
    def old(self, folder: Path) -> bytes:
        """Helpers of another edition, with an edit and a function of their owner's."""
        written(convert("a.py"))
        path = folder / "ddp_helpers.py"
        first, _, rest = path.read_text().partition("\n")
        assert first.startswith(OPENING)
        rest = rest.replace("def save_on_rank0(", "def save_on_rank0(  # mine\n    ", 1)
        path.write_text(f'{OPENING} (edition 00000000): yours now"""\n{rest}\n\ndef mine():\n    return 1\n')
        return path.read_bytes()

    @pytest.mark.parametrize("in_place", [False, True])
    def test_the_old_ones_are_kept_and_what_went_is_told(
        self, folder: Path, old: bytes, in_place: bool
    ) -> None:
        remarks = written(convert("b.py", renew_helpers=True), force=True, in_place=in_place)

        assert (folder / "ddp_helpers.py.bak").read_bytes() == old
        assert "def mine" not in (folder / "ddp_helpers.py").read_text()
        (line,) = (line for line in remarks if "written anew" in line)
        assert line.startswith("ddp_helpers.py: written anew; as it was: ddp_helpers.py.bak; gone or other: ")
        gone = line.rpartition(": ")[2].split(", ")
        assert {"mine", "save_on_rank0"} <= set(gone)
        assert "run_on_rank0" not in gone  # which reads as it did

    def test_no_earlier_one_is_overwritten(self, folder: Path, old: bytes) -> None:
        (folder / "ddp_helpers.py.bak").write_text("of last week\n")
        written(convert("b.py", renew_helpers=True), force=True)
        assert (folder / "ddp_helpers.py.bak").read_text() == "of last week\n"
        assert (folder / "ddp_helpers.py.bak1").read_bytes() == old

    def test_without_force_nothing_is_written(self, folder: Path, old: bytes) -> None:
        with pytest.raises(Dp2DdpError, match="another version of dp2ddp wrote it"):
            convert("b.py")
        assert (folder / "ddp_helpers.py").read_bytes() == old


class TestInPlace:
    @pytest.fixture
    def project(self, folder: Path) -> Path:
        """A script whose model is in a module that a link leads to; in git, as all of it is."""
        (folder / "net.py").write_text(
            "import torch\n\n\ndef build(net):\n    return torch.nn.DataParallel(net)\n"
        )
        (folder / "a.py").write_text(
            "import torch\nfrom net import build\n\nnet = build(torch.nn.Linear(2, 2))\n"
        )
        return folder

    def test_a_module_that_a_link_out_of_the_project_leads_to(self, project: Path) -> None:
        (project / "net.py").rename(project.parent / "net.py")
        (project / "net.py").symlink_to("../net.py")
        keep(project.parent)
        keep(project)
        before = texts(project.parent)
        for force in (False, True):
            with pytest.raises(
                SourceError, match=rf"net\.py: a link leads to {project.parent}/net\.py, outside of"
            ):
                written(convert("a.py"), in_place=True, force=force)
        assert texts(project.parent) == before

    def test_a_module_in_a_folder_that_a_link_leads_to(self, project: Path) -> None:
        (project.parent / "shared").mkdir()
        (project / "net.py").rename(project.parent / "shared" / "net.py")
        (project / "kit").symlink_to("../shared")
        (project / "a.py").write_text((project / "a.py").read_text().replace("from net", "from kit.net"))
        before = texts(project.parent)
        with pytest.raises(SourceError, match=r"kit/net\.py: a link leads to"):
            written(convert("a.py"), in_place=True, force=True)
        assert texts(project.parent) == before

    def test_a_link_within_the_project_stays_a_link(self, project: Path) -> None:
        (project / "lib").mkdir()
        (project / "net.py").rename(project / "lib" / "net.py")
        (project / "net.py").symlink_to("lib/net.py")
        keep(project)
        written(convert("a.py"), in_place=True)
        assert (project / "net.py").is_symlink()
        assert "WholeBatchParallel" in (project / "lib" / "net.py").read_text()

    def test_a_script_that_is_a_link_is_named_by_its_file(self, project: Path) -> None:
        """Python looks for its modules, and for the helpers, beside the file."""
        (project / "again.py").symlink_to("b.py")
        with pytest.raises(SourceError, match=r"^again\.py: a link to b\.py; name that file"):
            written(convert("again.py"), in_place=True, force=True)
        assert (project / "b.py").read_text() == LOGS

    @pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
    def test_an_edit_that_git_passes_over_is_not_overwritten(self, project: Path, flag: str) -> None:
        keep(project)
        git(project, "update-index", flag, "net.py")
        (project / "net.py").write_text((project / "net.py").read_text() + "# mine\n")
        before = texts(project)
        with pytest.raises(SourceError, match=r"net\.py: not committed to git"):
            written(convert("a.py"), in_place=True)
        assert texts(project) == before

    def test_untracked_files_that_git_does_not_show_are_not_overwritten(self, folder: Path) -> None:
        git(folder, "init")
        git(folder, "config", "status.showUntrackedFiles", "no")
        before = texts(folder)
        with pytest.raises(SourceError, match=r"a\.py: not committed to git"):
            written(convert("a.py"), in_place=True)
        assert texts(folder) == before

    def test_the_undo_that_is_told_undoes_it(self, project: Path) -> None:
        os.link(project / "net.py", project.parent / "second.py")
        keep(project)
        before = texts(project.parent)
        (remark,) = written(convert("a.py"), in_place=True)
        assert texts(project.parent) != before
        assert (project.parent / "second.py").read_text() == (project / "net.py").read_text()
        subprocess.run(remark.removeprefix("undo it with: "), shell=True, check=True, capture_output=True)
        after = texts(project.parent)
        assert {name: after[name] for name in after if "/.git/" not in name} == {
            name: before[name] for name in before if "/.git/" not in name
        }


def keep(folder: Path) -> None:
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "all")


def git(folder: Path, *arguments: str) -> None:
    name = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True)
