"""Programs of several files, and what of them is not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.codemod.conversion import Conversion
from dp2ddp.codemod.convert import convert
from dp2ddp.source.projects import read_project
from tests.codemod.programs import said

CLI = '''\
import torch
from package.models import build

def main():
    """Train."""
    rate = 0.1
    print(rate)
    net = torch.nn.DataParallel(build())
    torch.save(net, "net.pt")
'''


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    for name, text in {"__init__": "", "models": "def build():\n    return 1\n", "cli": CLI}.items():
        (package / f"{name}.py").write_text(text)
    return tmp_path


def converted(project: Path) -> Conversion:
    return convert(read_project(project / "src" / "package" / "cli.py"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[project.scripts]\ntrain = "package.cli:main"\n'),
        (
            "setup.py",
            'setup(entry_points={"console_scripts": ["train=package.cli:main", "x=package.y:z"]})\n',
        ),
        ("setup.cfg", "[options.entry_points]\nconsole_scripts =\n    train = package.cli:main\n"),
    ],
)
def test_ranks_begin_in_the_function_that_a_console_script_starts(
    project: Path, name: str, text: str
) -> None:
    (project / name).write_text(text)
    found = converted(project)
    assert said(found) == ["note DDP101:7"]
    assert "    rate = 0.1\n    init_distributed()\n    print(rate)\n" in found.after
    assert "save_on_rank0(net" in found.after


def test_where_nothing_is_found_what_was_not_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import numpy, os, torch\nfrom trainer_of_somebody import fit\nimport pytest\nfit()\n")
    found = convert(read_project(script))
    assert found.missing == ("trainer_of_somebody",)
    assert [line.partition(":")[0] for line in found.unread] == ["pytest"]
    script.write_text("import importlib, os\nimportlib.import_module(os.environ['MODEL']).train()\n")
    assert said(convert(read_project(script))) == ["note DDP912:2"]


def test_a_function_that_no_command_starts_runs_nothing(project: Path) -> None:
    (project / "pyproject.toml").write_text('[project.scripts]\ntrain = "package.other:main"\n')
    assert said(converted(project)) == ["hazard DDP101:8"]
