"""Local modules are found by the text of the imports; nothing is imported."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dp2ddp.source import projects
from dp2ddp.source.files import SourceFile
from dp2ddp.source.neighbours import import_of
from dp2ddp.source.projects import read_project
from dp2ddp.source.read_source import read_source


def project(folder: Path, entry: str = "train.py", **files: str) -> list[str]:
    """The modules that are found; `a__b` is a/b.py, and `a____init__` is a/__init__.py."""
    for name, text in files.items():
        path = folder / (re.sub("^([a-z]+)__", r"\1/", name) + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [module.name for module in read_project(folder / entry).modules]


def test_modules_are_reached_through_modules(tmp_path: Path) -> None:
    assert project(tmp_path, train="import a\n", a="from b import c\n", b="raise SystemExit\n", d="") == [
        "a",
        "b",
    ]


def test_packages_and_relative_imports(tmp_path: Path) -> None:
    names = project(
        tmp_path,
        train="from models.net import Net\n",
        models__init="",
        models__net="from .parts import x\n",
        models__parts="",
    )

    assert sorted(names) == ["models.net", "models.parts"]


def test_a_package_comes_before_a_module_of_its_name(tmp_path: Path) -> None:
    names = project(
        tmp_path, train="import net\n", net="import old\n", net____init__="import new\n", old="", new=""
    )
    assert names == ["net", "new"]


def test_a_circle_ends(tmp_path: Path) -> None:
    assert project(tmp_path, train="import a\n", a="import b\n", b="import a, train\n") == ["a", "b"]


def test_a_script_that_its_own_modules_import_runs_once_more(tmp_path: Path) -> None:
    project(tmp_path, train="import a\n", a="def f():\n    from train import args\n")

    assert read_project(tmp_path / "train.py").entry_names == ("train",)


def test_installed_modules_are_not_local(tmp_path: Path) -> None:
    assert project(tmp_path, train="import os, json, numpy, statistics\n", os="", statistics="") == [
        "statistics"
    ]


def test_a_module_that_is_no_python_is_still_listed(tmp_path: Path) -> None:
    assert project(tmp_path, train="import a\n", a="def (\n") == ["a"]


def test_folders_that_are_added_to_the_path(tmp_path: Path) -> None:
    names = project(
        tmp_path / "repository",
        tools__train="import _init_paths\nfrom net import Net\n",
        tools___init_paths="import sys, os.path as osp\nhere = osp.dirname(__file__)\n"
        "lib = osp.join(here, '..', 'lib')\ndef add_path(path):\n    sys.path.insert(0, path)\nadd_path(lib)\n",
        lib__net="",
        entry="tools/train.py",
    )

    assert names == ["_init_paths", "net"]


@pytest.mark.parametrize(
    "adds",
    [
        'HERE = pathlib.Path(__file__).resolve().parent\nsys.path.insert(0, str(HERE.parent / "lib"))',
        'sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))',
        'here: str = os.path.dirname(__file__)\nsys.path.append(f"{here}/../lib")',
        'here = root = os.path.dirname(__file__)\nhere = os.path.join(here, "..")\nsys.path.append(here + "/lib")',
        'sys.path += [os.path.join(os.path.dirname(__file__), os.pardir, "lib")]',
        'sys.path = [os.path.abspath(__file__).rsplit("/", 2)[0] + "/lib"] + sys.path',
        'up = os.path.dirname\nfor d in [up(up(__file__)) + "/lib"]:\n    sys.path.append(d)',
        'def add():\n    sys.path[:0] = [LIB]\nLIB = __file__.rsplit("/", 2)[0] + "/lib"',
        'import site\nsite.addsitedir("%s/../%s" % (os.path.dirname(__file__), "lib"))',
        'sys.path.append("{}/../lib".format(os.path.dirname(__file__)))\ntotal = 0\nshare = 1 / total',
    ],
)
def test_ways_to_write_a_folder_that_is_added(tmp_path: Path, adds: str) -> None:
    files = {"a__train": f"import os, sys, pathlib\n{adds}\nimport net\n", "lib__net": ""}

    assert project(tmp_path / "repository", **files, entry="a/train.py") == ["net"]


def test_what_touches_files_is_not_run_to_find_a_folder(tmp_path: Path) -> None:
    added = 'pathlib.Path(__file__).parent.joinpath("made").mkdir() or pathlib.Path(__file__).unlink()'
    files = {"train": f"import sys, pathlib\nsys.path.append({added})\nsys.path.append(f'{{unknown}}/lib')\n"}

    assert project(tmp_path, **files) == []
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_a_folder_that_the_system_does_not_look_for_is_passed_over(tmp_path: Path) -> None:
    """As one of another user's; as root there is only a name that is too long."""
    assert project(tmp_path, train=f"import sys\nsys.path.append('/{'x' * 300}')\nimport net\n", net="") == [
        "net"
    ]


def test_a_folder_that_is_added_by_its_name_is_the_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"train": 'import sys\nsys.path.append("core")\nimport raft\n', "core__raft": "import parts\n"}
    for folder in (tmp_path / "project", tmp_path / "elsewhere"):
        folder.mkdir()
        monkeypatch.chdir(folder)
        assert project(tmp_path / "project", **files, core__parts="") == ["raft", "parts"]


def test_a_package_in_the_folder_of_sources_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    package = tmp_path / "src" / "detector"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "models.py").touch()
    names = project(tmp_path, "scripts/train.py", scripts__train="from detector import models\n")
    assert names == ["detector", "detector.models"]


def test_a_package_in_the_repository_of_the_script(tmp_path: Path) -> None:
    names = project(
        tmp_path,
        setup="",
        scripts__train="from engine.loop import run\n",
        engine__loop="",
        entry="scripts/train.py",
    )

    assert names == ["engine.loop"]


def test_what_is_installed_is_not_taken_from_the_folders_above(tmp_path: Path) -> None:
    assert (
        project(tmp_path, setup="", tools__train="import pytest\n", pytest="", entry="tools/train.py") == []
    )


def test_a_module_that_is_loaded_by_its_name(tmp_path: Path) -> None:
    names = project(
        tmp_path,
        train="import importlib\nnet = importlib.import_module('models.' + name + '_model')\n",
        models____init__="",
        models__a_model="",
        models__b_model="",
    )

    assert names == ["models", "models.a_model", "models.b_model"]


@pytest.mark.parametrize(
    "name", ['f"{__name__}.{each.name}"', '__name__ + "." + each.name', '"." + each.name, __package__']
)
def test_a_package_that_imports_all_that_it_has(tmp_path: Path, name: str) -> None:
    """They were not read, with a note: what their forwards count was the rank's own."""
    loop = f"import importlib\nfor each in modules(__path__):\n    importlib.import_module({name})\n"
    names = project(tmp_path, train="import zoo\n", zoo____init__=loop, zoo__mlp="", zoo__cnn="")
    assert sorted(names) == ["zoo", "zoo.cnn", "zoo.mlp"]


def test_what_cannot_be_found_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os, torch, nowhere_to_be_found.x\n")

    assert read_project(tmp_path / "train.py").missing == ("nowhere_to_be_found",)


def test_a_script_with_relative_imports_is_a_module_of_its_package(tmp_path: Path) -> None:
    names = project(
        tmp_path, kit____init__="", kit__train="from . import data\nfrom kit.data import x\n", kit__data="",
        data="", entry="kit/train.py",
    )  # fmt: skip
    found = read_project(tmp_path / "kit" / "train.py")

    assert names == ["kit", "kit.data"]  # and not data.py beside the package
    assert found.entry_module == "kit.train"
    assert found.root == tmp_path


def test_relative_imports_that_are_only_tried(tmp_path: Path) -> None:
    text = "try:\n    from .data import x\nexcept ImportError:\n    from data import x\n"
    assert project(tmp_path, train=text, data="") == ["data"]
    assert read_project(tmp_path / "train.py").entry_module == ""


def test_a_file_that_is_imported_by_two_names_is_one_module(tmp_path: Path) -> None:
    project(
        tmp_path,
        train="import os, sys\nsys.path.append(os.path.join(os.path.dirname(__file__), 'kit'))\n"
        "from kit import utils\nimport data\n",
        kit____init__="",
        kit__utils="",
        kit__data="import utils\n",
    )
    modules = read_project(tmp_path / "train.py").modules

    assert [(one.name, one.other_names) for one in modules] == [
        ("kit", ()),
        ("kit.utils", ("utils",)),
        ("data", ()),
    ]


def test_only_what_imports_reach_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        before = f"import m{number - 1}\n" if number else ""
        (tmp_path / f"m{number}.py").write_text(before)
    (tmp_path / "train.py").write_text("import m3\n")
    read = []

    def reading(path: str | Path) -> SourceFile:
        read.append(Path(path).name)
        return read_source(path)

    monkeypatch.setattr(projects, "read_source", reading)
    read_project(tmp_path / "train.py")

    assert read == ["train.py", "m3.py", "m2.py", "m1.py", "m0.py"]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import old, latin, mixed\n")
    (tmp_path / "old.py").write_text("print 'x'\n")
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    (tmp_path / "mixed.py").write_text("if x:\n\ty = 1\n        z = 2\n")

    old, latin, mixed = read_project(tmp_path / "train.py").unread

    assert "old.py:1:1: Python 2" in old
    assert "latin.py: not readable as text" in latin
    assert "mixed.py:3:1: inconsistent use of tabs" in mixed


def test_deep_expressions_are_no_reason_to_stop(tmp_path: Path) -> None:
    assert project(tmp_path, train="import a\nx = m" + ".b(1)" * 250 + "\n", a="") == ["a"]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("from a import (b,\n  net)", True),
        ("import a, \\\n  net", True),
        ("import a\nnet", False),
        ("from " + "to ".join("(0, 0) " for _ in range(40)), False),  # a docstring's line; it took for ever
    ],
)
def test_an_import_of_a_file_is_found_in_bytes(text: str, is_one: bool) -> None:
    assert (import_of([Path("lib/net.py")]).search(text.encode()) is not None) is is_one
