"""Programs of several files, and what of them is not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from dp2ddp.codemod.conversion import Conversion, Options
from dp2ddp.codemod.convert import convert
from dp2ddp.codemod.helpers import HelperPlace
from dp2ddp.errors import ConversionError
from dp2ddp.source.projects import read_project
from tests.codemod import programs
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
    assert said(convert(read_project(script))) == ["note DDP902:2"]


def test_a_function_that_no_command_starts_runs_nothing(project: Path) -> None:
    (project / "pyproject.toml").write_text('[project.scripts]\ntrain = "package.other:main"\n')
    assert said(converted(project)) == ["hazard DDP101:8"]


OWN_DATA = {  # a data set of the project's own that downloads, and files that make ones of its kinds
    "base": """
        import os
        import urllib.request

        class Base:
            def __init__(self, root, download=False):
                if download:
                    urllib.request.urlretrieve("http://host/" + self.name, os.path.join(root, self.name))
    """,
    "birds": """
        from base import Base
        class Birds(Base):
            name = "birds"
        def birds(root):
            return Birds(root, download=True)
    """,
    "dogs": """
        from base import Base
        class Dogs(Base):
            name = "dogs"
        def dogs(root):
            return Dogs(root, download=True)
    """,
    "factory": """
        from birds import Birds
        from dogs import Dogs
        SETS = {"birds": Birds, "dogs": Dogs}
        def make(name, root):
            return SETS[name](root, download=True)
    """,
    "coarse": """
        from torchvision.datasets import CIFAR10
        class Coarse(CIFAR10):
            def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
                super().__init__(root, train, transform, target_transform, download)
        def make_any(kind, **kwargs):
            return getattr(torchvision.datasets, kind)(**kwargs)
    """,
}
TRAIN = """
    import torch
    from birds import birds
    from coarse import Coarse, make_any
    from dogs import dogs
    from factory import make
    net = torch.nn.DataParallel(Net())
    sets = birds("a"), dogs("a"), make("birds", "b")
"""


def test_what_the_project_downloads_itself_is_changed_there_and_not_at_each_of_its_callers() -> None:
    conversion = programs.converted(TRAIN, OWN_DATA)
    changed = {file.before.name for file in conversion.changed_files}
    assert changed == {"train.py", "base.py"}


@pytest.mark.parametrize(
    "call", ['Coarse("a", download=True)', 'make_any("CIFAR10", root="a", download=True)']
)
def test_a_download_that_is_handed_on_to_a_library_is_changed_at_the_call(call: str) -> None:
    conversion = programs.converted(f"{TRAIN}    train = {call}\n", OWN_DATA)
    assert f"train = rank0_first({call.replace('(', ', ', 1)}" in conversion.after


def test_modules_that_import_each_other_by_the_hundred() -> None:
    """Python's stack is a thousand calls deep."""
    modules = {f"m{number}": f"import m{number - 1}\n" for number in range(1, 400)}
    found = convert(programs.project(f"import m399\n{programs.WRAP}", m0="WIDTH = 4\n", **modules))
    assert not found.hazards
    assert "init_distributed()\n\nnet = " in found.after


MODULES_THAT_ACT = {
    "between imports": "import os\nos.makedirs('out')\nimport json",
    "on one line": "import os; os.makedirs('out'); import json",
    "below a docstring": '#!python\n"""Text."""\nfrom __future__ import annotations\nopen("a", "w")\nimport os',
    "where an import fails": "try:\n    import cv2\nexcept ImportError:\n    open('a', 'w')\nimport os",
    "below a library in try": "try:\n    import wandb\nexcept ImportError:\n    pass\nimport os",
    "a function made above": "dump = lambda path: open(path, 'w')\nimport os",
    "a class nobody names": "class C:\n    log = open('a', 'w')\nimport os",
    "a default of a function nobody names": "def log(file=open('a', 'w')):\n    pass\nimport os",
}


@pytest.mark.parametrize("text", MODULES_THAT_ACT.values(), ids=MODULES_THAT_ACT)
def test_helpers_are_imported_above_what_uses_them_first(text: str) -> None:
    """And what an import runs, also a body of a class, is done once."""
    (file,) = programs.converted(f"{programs.WRAP}import act\n", {"act": text}).modules
    lines = file.after.splitlines()
    using = [number for number, line in enumerate(lines) if "_on_rank0" in line]
    assert lines[using[0]].startswith("from ddp_helpers import ")
    assert using[1:]


def test_a_library_that_reports_is_rank_0s_before_it_is_used() -> None:
    (file,) = programs.converted(
        f"{programs.WRAP}import act\n", {"act": "import wandb\nwandb.init()\nimport os"}
    ).modules
    assert file.after.index("library_on_rank0(wandb)") < file.after.index("wandb.init()")


def test_helpers_are_imported_above_what_takes_their_folder_away() -> None:
    found = programs.converted(f"import sys\nsys.path[0] = 'src'\n{programs.WRAP}")
    lines = found.after.splitlines()
    assert lines.index("sys.path[0] = 'src'") > next(
        i for i, line in enumerate(lines) if "ddp_helpers" in line
    )


@pytest.mark.parametrize("how", ["insert(0, 'lib')", "append('lib')"])
def test_helpers_of_another_folder_do_not_hide_those_of_the_script(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "ddp_helpers.py").write_text("def other(): ...\n")
    (tmp_path / "train.py").write_text(f"import sys\nsys.path.{how}\n{programs.WRAP}")
    monkeypatch.chdir(tmp_path)
    project = read_project("train.py")
    if how.startswith("append"):
        assert convert(project).changed
    else:
        with pytest.raises(ConversionError, match="ddp_helpers.py of its own"):
            convert(project)
        assert convert(project, Options(helpers=HelperPlace.IN_SCRIPT)).changed


def test_ranks_join_before_a_default_is_made() -> None:
    found = programs.converted(
        f"import log\n{programs.WRAP}", {"log": "def log(file=open('a', 'w')):\n    pass\n"}
    )
    assert found.after.index("init_distributed()") < found.after.index("import log")


@pytest.mark.parametrize(
    ("helper", "notes"), [("x = 1\n", ["note DDP503:3"]), ("import os\nos.makedirs('a')\n", [])]
)
def test_a_script_gets_another_name_only_where_it_is_written_beside_the_original(
    tmp_path: Path, helper: str, notes: list[str]
) -> None:
    (tmp_path / "helper.py").write_text(helper)
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nimport helper\nprint(__file__)\ntorch.nn.DataParallel(torch.nn.Linear(2, 2))\n"
    )
    assert [each for each in said(convert(read_project(script))) if each.startswith("note")] == notes
