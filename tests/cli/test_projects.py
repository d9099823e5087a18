"""A script whose local modules wrap, load and write: converted together, and verified together."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dp2ddp.cli import main
from dp2ddp.copies.project import RECORD
from dp2ddp.options import VerifyOptions
from dp2ddp.runtime.process.server import Server
from dp2ddp.trial.subject import subject_of
from tests.cli.forked import forked

TRAIN = """
import argparse
import shutil
import torch
import torch.nn.functional as F
from lib.models import *
from lib.utils import Log, keep

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)

def main():
    args = parser.parse_args()
    torch.manual_seed(3)
    log = Log("log.txt")
    shutil.copy("lib/utils.py", "utils.py.backup")
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(11, 6), torch.randint(0, 3, (11,))
    for epoch in range(args.epochs):
        for rows in torch.randperm(11).split(4):
            loss = F.cross_entropy(model(x[rows]), y[rows].cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print("epoch", epoch, loss.item())
        log.line("epoch %d loss %.4f" % (epoch, loss.item()))
        keep(model.state_dict(), "saved")

if __name__ == "__main__":
    main()
"""
MODELS = """from .base import Base
import torch.nn as nn

class Net(Base):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        return self.layers(x)

def build_model():
    return nn.DataParallel(Net().cuda())
"""
UTILS = """import os
import torch

def keep(state, folder):
    if not os.path.exists(folder):
        os.makedirs(folder)
    torch.save(state, os.path.join(folder, "last.pt"))

class Log:
    def __init__(self, path):
        self.file = open(path, "w")

    def line(self, text):
        self.file.write(text + "\\n")

def never_called():
    os.system("rm -r everything")
"""
FILES = {
    "train.py": TRAIN,
    "lib/__init__.py": "",
    "lib/models/__init__.py": "from .net import build_model\n",
    "lib/models/net.py": MODELS,
    "lib/models/base.py": "import torch.nn as nn\n\nclass Base(nn.Module):\n    pass\n",
    "lib/utils.py": UTILS,
    "notes.txt": "not code",
}
CHANGED = ["ddp_helpers.py", "lib/models/net.py", "lib/utils.py", "train.py"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    return folder


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["convert", *map(str, arguments)])


def git(*arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True, capture_output=True
    )


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): path.read_text() for path in files}


class TestFolder:
    def test_the_copy_is_whole_and_only_what_must_change_changes(self, project: Path) -> None:
        result = convert("train.py", "-o", "../ddp")

        assert result.exit_code == 0, result.output
        before, after = contents(project), contents(project.parent / "ddp")
        assert before == FILES
        assert after.keys() - before.keys() == {"ddp_helpers.py", RECORD}
        del after[RECORD]  # of what was written, by which owners' edits are known
        assert sorted(name for name in after if after[name] != before.get(name)) == CHANGED
        assert after["lib/models/net.py"] == MODELS.replace(
            "import torch.nn as nn\n", "import torch.nn as nn\nfrom ddp_helpers import WholeBatchParallel\n"
        ).replace("nn.DataParallel(Net().cuda())", "WholeBatchParallel(Net().cuda())")
        assert 'os.system("rm -r everything")' in after["lib/utils.py"]

    def test_without_a_place_nothing_is_written_and_the_ways_are_named(self, project: Path) -> None:
        result = convert("train.py")

        assert result.exit_code == 3
        assert "-o FOLDER" in result.stderr
        assert "--in-place" in result.stderr
        assert contents(project) == FILES

    def test_a_file_is_no_place_for_a_project(self, project: Path) -> None:
        result = convert("train.py", "-o", "../train_ddp.py")

        assert result.exit_code == 3
        assert "2 local modules must change too" in result.stderr
        assert "name a folder with -o" in result.stderr
        assert not (project.parent / "train_ddp.py").exists()

    def test_one_file_is_too_little_for_a_project(self, project: Path) -> None:
        result = convert("train.py", "--one-file", "-o", "../ddp")

        assert result.exit_code == 3
        assert "leave --one-file out" in result.stderr

    def test_a_folder_that_holds_something_is_left_alone(self, project: Path) -> None:
        (project.parent / "ddp").mkdir()
        (project.parent / "ddp" / "mine.txt").write_text("mine")

        assert convert("train.py", "-o", "../ddp").exit_code == 3
        assert contents(project.parent / "ddp") == {"mine.txt": "mine"}
        assert convert("train.py", "-o", "../ddp", "--force").exit_code == 0
        assert contents(project.parent / "ddp").keys() == {*FILES, "ddp_helpers.py", "mine.txt", RECORD}

    def test_a_second_conversion_changes_nothing(
        self, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        convert("train.py", "-o", "../ddp")
        monkeypatch.chdir(project.parent / "ddp")

        assert "nothing to convert" in convert("train.py", "--check").output

    def test_the_difference_shows_every_file(self, project: Path) -> None:
        shown = convert("train.py", "--diff").stdout

        heads = [line.split()[1] for line in shown.splitlines() if line.startswith("+++ ")]
        assert ["ddp_helpers.py", *sorted(heads)] == CHANGED  # the helpers are nobody's change


class TestInPlace:
    def test_files_that_git_keeps_are_changed(self, project: Path) -> None:
        git("init")
        git("add", ".")
        git("commit", "-m", "all")

        result = convert("train.py", "--in-place")

        assert result.exit_code == 0, result.output
        after = contents(project)
        assert sorted(name for name in after if after[name] != FILES.get(name)) == CHANGED

    @pytest.mark.parametrize("kept", [False, True], ids=["without git", "not committed"])
    def test_what_would_be_lost_is_not_touched(self, project: Path, kept: bool) -> None:
        if kept:
            git("init")
            git("add", ".")

        result = convert("train.py", "--in-place")

        assert result.exit_code == 3
        assert "git" in result.stderr
        assert contents(project) == FILES
        assert convert("train.py", "--in-place", "--force").exit_code == 0
        assert contents(project) != FILES


@pytest.mark.torchrun
def test_a_project_trains_the_same(project: Path, server: Server) -> None:
    result = forked(server, project, "verify", "train.py", "-n", "2")

    assert result.exit_code == 0, result.output
    assert "trains the same" in result.stdout
    assert contents(project) == FILES


def test_verify_runs_the_script_of_a_project_under_its_own_name(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    subject = subject_of(VerifyOptions(script=Path("train.py")))
    assert subject.version.name == "train.py"  # results/<name of __file__>/ stays the same folder
    assert subject.convert == "dp2ddp convert train.py -o FOLDER"
    assert subject.version.launch.endswith(" FOLDER/train.py")  # here it stays as it is


class TestModules:
    @pytest.fixture
    def package(self, project: Path) -> Path:
        """The same script, as a module of the package: `python -m lib.train`."""
        text = TRAIN.replace("from lib.", "from .")
        (project / "train.py").unlink()
        (project / "lib" / "train.py").write_text(text)
        return project

    @pytest.mark.parametrize("given", [["-m", "lib.train"], ["lib/train.py"]], ids=["-m", "by its file"])
    def test_the_helpers_lie_where_every_file_finds_them(self, package: Path, given: list[str]) -> None:
        result = convert(*given, "-o", "../ddp")

        assert result.exit_code == 0, result.output
        after = contents(package.parent / "ddp")
        assert "ddp_helpers.py" in after
        assert "from ddp_helpers import" in after["lib/train.py"]
        assert result.stdout.endswith("/ddp && torchrun --standalone --nproc-per-node gpu -m lib.train\n")

    @pytest.mark.parametrize("given", [["-m", "train"], ["train.py"]], ids=["-m", "by its file"])
    def test_from_within_the_package(
        self, package: Path, given: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(package / "lib")
        result = convert(*given, "--in-place", "--force")

        assert result.exit_code == 0, result.output
        assert result.stdout.endswith(
            "start it with: cd .. && torchrun --standalone --nproc-per-node gpu -m lib.train\n"
        )

    @pytest.mark.parametrize("module", ["train", "scripts.train"])
    def test_a_module_is_called_as_it_was_named(
        self, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No `__init__.py` says where its package begins: the folder that Python looks in first does."""
        script = tmp_path / f"{module.replace('.', '/')}.py"
        script.parent.mkdir(exist_ok=True)
        script.write_text("import torch\nnet = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n")
        monkeypatch.chdir(tmp_path)
        result = convert("-m", module)

        assert result.exit_code == 0, result.output
        assert result.stdout.endswith(
            f"verify it with: dp2ddp verify -m {module} -n 2\n"
            f"start it with: torchrun --standalone --nproc-per-node gpu -m {module}_ddp\n"
        )
        assert (tmp_path / "ddp_helpers.py").exists()

    def test_a_module_that_is_not_there(self, package: Path) -> None:
        result = convert("-m", "lib.trian")

        assert result.exit_code == 3
        assert "lib.trian: no module" in result.stderr

    def test_it_is_run_from_the_folder_of_the_package(
        self, package: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(package / "lib")
        result = CliRunner().invoke(main, ["verify", "train.py"])

        assert result.exit_code == 3
        assert f"-m lib.train; start dp2ddp in {package}" in result.stderr

    def test_it_is_run_from_anywhere_once_its_folder_is_on_pythonpath(
        self, package: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`PYTHONPATH=src python -m package.train`, as people start what lies in src."""
        monkeypatch.chdir(package.parent)
        monkeypatch.setenv("PYTHONPATH", package.name)

        result = convert("-m", "lib.train", "-o", "ddp")
        assert result.exit_code == 0, result.output
        subject = subject_of(VerifyOptions(script=Path("lib.train"), as_module=True))
        assert subject.module == "lib.train"

    @pytest.mark.torchrun
    def test_it_trains_the_same(self, package: Path, server: Server) -> None:
        result = forked(server, package, "verify", "-m", "lib.train", "-n", "2", "--", "--epochs", "1")

        assert result.exit_code == 0, result.output
        assert "-m lib.train" in result.stdout


class TestAScriptThatIsImported:
    """engine.py takes what it needs out of train.py: a second copy under another name would not be that."""

    @pytest.fixture
    def imported(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        train = (
            "import torch\nimport engine\nSTEPS = 3\ndef build():\n"
            "    return torch.nn.DataParallel(torch.nn.Linear(3, 2).cuda())\n"
        )
        engine = (
            "import torch\ndef run():\n    from train import STEPS, build\n    torch.manual_seed(0)\n"
            "    net = build()\n"
            "    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n    for _ in range(STEPS):\n"
            "        loss = net(torch.randn(5, 3)).pow(2).mean()\n        optimizer.zero_grad()\n"
            "        loss.backward()\n        optimizer.step()\n        print(loss.item())\n"
        )
        (tmp_path / "train.py").write_text(train + "if __name__ == '__main__':\n    engine.run()\n")
        (tmp_path / "engine.py").write_text(engine)
        monkeypatch.chdir(tmp_path)
        return tmp_path

    def test_it_keeps_its_name(self, imported: Path) -> None:
        result = convert("train.py")

        assert result.exit_code == 3
        assert "other modules import it, so it must keep its name; use -o FOLDER" in result.stderr
        assert convert("train.py", "-o", "ddp").exit_code == 0
        assert (imported / "ddp" / "ddp_helpers.py").exists()

    @pytest.mark.torchrun
    def test_it_trains_the_same(self, imported: Path, server: Server) -> None:
        result = forked(server, imported, "verify", "train.py", "-n", "2")

        assert result.exit_code == 0, result.output


class TestSeveralEntries:
    """train.py is converted in place; test.py and export.py share its modules."""

    TEST = """
import torch
from lib.models import build_model

model = build_model()
model.load_state_dict(torch.load("saved/last.pt"))
torch.manual_seed(1)
print(type(model.module).__name__, model.eval()(torch.randn(5, 6)).sum().item())
"""
    EXPORT = """
import torch
from lib.utils import keep

def main():
    net = torch.nn.DataParallel(torch.nn.Linear(2, 1).cuda())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for rows in torch.arange(10.).view(5, 2).split(2):
        loss = net(rows).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    keep(net.state_dict(), "exported")

if __name__ == "__main__":
    main()
"""

    @pytest.fixture
    def entries(self, project: Path) -> Path:
        (project / "test.py").write_text(self.TEST)
        (project / "export.py").write_text(self.EXPORT)
        (project / "tools").mkdir()
        (project / "tools" / "plot.py").write_text("from lib import nothing\nprint('plot')\n")
        git("init")
        git("add", ".")
        git("commit", "-m", "all")
        return project

    def test_the_report_says_which_other_scripts_get_changed_modules(self, entries: Path) -> None:
        report = convert("train.py", "--diff").stderr
        data = json.loads(convert("train.py", "--check", "--json").stdout)

        assert "also used by export.py: lib/utils.py\nalso used by test.py: lib/models/net.py\n" in report
        assert "started with python, they run as before, on one device" in report
        assert data["used_by"] == [
            {"file": "export.py", "uses": ["lib/utils.py"]},
            {"file": "test.py", "uses": ["lib/models/net.py"]},
        ]

    def test_a_script_that_nobody_shares_modules_with(self, project: Path) -> None:
        assert "used by" not in convert("train.py", "--diff").stderr

    def test_a_second_script_keeps_the_helpers_of_the_first(self, entries: Path) -> None:
        convert("train.py", "--in-place")
        first = (entries / "ddp_helpers.py").read_text()
        git("add", ".")
        git("commit", "-m", "train")
        result = convert("export.py", "--in-place")

        assert result.exit_code == 0, result.output
        helpers = (entries / "ddp_helpers.py").read_text()
        assert defined(first) <= defined(helpers)
        assert "from ddp_helpers import" in (entries / "export.py").read_text()

    def test_a_script_whose_model_was_converted_with_another_one(self, entries: Path) -> None:
        convert("train.py", "--in-place")
        result = convert("test.py")

        assert result.exit_code == 3
        assert "lib/models/net.py was converted with another script" in result.stderr

    @pytest.mark.torchrun
    def test_what_was_not_converted_runs_as_before(self, entries: Path, server: Server) -> None:
        """On one device, with checkpoints of either version."""
        run = ("run", "--virtual", "--mode", "dp", "-n", "1")
        forked(server, entries, *run, "train.py")
        before = forked(server, entries, *run, "test.py")
        convert("train.py", "--in-place")
        after = forked(server, entries, *run, "test.py")
        again = forked(server, entries, *run, "train.py")

        assert before.stdout.startswith("Net ")
        assert after.stdout == before.stdout
        assert again.exit_code == 0
        assert forked(server, entries, *run, "test.py").stdout == before.stdout


def defined(text: str) -> set[str]:
    return set(re.findall(r"^(?:def|class) (\w+)", text, re.MULTILINE))


def test_verify_takes_helpers_of_today_whatever_an_earlier_version_left(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert("train.py", "--in-place", "--force")
    helpers = project / "ddp_helpers.py"
    for name, text in FILES.items():
        (project / name).write_text(text)
    old = re.sub(r"edition \w+", "edition 00000000", helpers.read_text()).replace("hours=2", "hours=9")
    helpers.write_text(old)

    assert "another version of dp2ddp wrote it" in convert("train.py", "--in-place").stderr
    written = subject_of(VerifyOptions(script=Path("train.py"))).version.modules

    assert b"hours=2" in next(data for path, data in written.items() if path.name == "ddp_helpers.py")
    assert helpers.read_text() == old
