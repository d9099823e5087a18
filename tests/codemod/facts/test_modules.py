"""What a name of one file means in another."""

from __future__ import annotations

from pathlib import Path

from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.source.files import SourceFile
from dp2ddp.source.projects import LocalModule, Project
from tests.codemod.scripts import project_of


def test_modules_that_star_import_each_other_or_themselves() -> None:
    modules = Modules(
        project_of(
            "from a import *\n", a="from b import *\nfrom a import *\n", b="from a import *\nimport os\n"
        )
    )
    assert modules.binds("a", "os")
    assert not modules.binds("a", "sys")
    assert not modules.binds("b", "sys")


def test_a_file_of_two_names_is_one_script() -> None:
    source = SourceFile(Path("kit/utils.py"), "import torch\n\ndef save(x): ...\n")
    entry = SourceFile(None, "from kit import utils\nimport utils as other\nutils.save(1)\nother.save(2)\n")
    modules = Modules(Project(entry, (LocalModule("kit.utils", source, ("utils",)),)))

    calls = modules.entry.calls
    assert len(modules.scripts) == 2
    assert {modules.definition(modules.entry, call.node.func) for call in calls} == {
        (modules.by_name["utils"], modules.by_name["utils"].tree.body[1])
    }


def test_relative_imports_of_a_script_that_is_a_module() -> None:
    entry = SourceFile(
        Path("kit/train.py"), "from . import config as cfg\nfrom .nets import *\ncfg.seed()\nNet()\n"
    )
    local = (
        LocalModule("kit.config", SourceFile(Path("kit/config.py"), "def seed(): ...\n")),
        LocalModule("kit.nets", SourceFile(Path("kit/nets.py"), "class Net: ...\n")),
    )
    modules = Modules(Project(entry, local, entry_module="kit.train"))

    found = [modules.definition(modules.entry, call.node.func) for call in modules.entry.calls]
    assert [one[0].name if one else None for one in found] == ["kit.config", "kit.nets"]


def test_a_name_that_is_imported_from_the_script_itself() -> None:
    entry = SourceFile(Path("train.py"), "import engine\n\ndef build(): ...\n")
    engine = LocalModule("engine", SourceFile(Path("engine.py"), "from train import build\nbuild()\n"))
    modules = Modules(Project(entry, (engine,), entry_names=("train",)))

    (call,) = modules.by_name["engine"].calls
    assert modules.scripts[0] is modules.entry
    assert modules.definition(modules.by_name["engine"], call.node.func) == (
        modules.entry,
        modules.entry.tree.body[1],
    )
