"""Local modules are found by the text of the imports; nothing is imported."""

from __future__ import annotations

from pathlib import Path

from dp2ddp.source.projects import read_project


def project(folder: Path, **files: str) -> list[str]:
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return [module.name for module in read_project(folder / "train.py").modules]


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


def test_a_circle_ends(tmp_path: Path) -> None:
    assert project(tmp_path, train="import a\n", a="import b\n", b="import a, train\n") == ["a", "b"]


def test_installed_modules_are_not_local(tmp_path: Path) -> None:
    assert project(tmp_path, train="import os, json, numpy\n") == []


def test_a_module_that_is_no_python_is_still_listed(tmp_path: Path) -> None:
    assert project(tmp_path, train="import a\n", a="def (\n") == ["a"]
