"""What gets installed: every package, every template, from a wheel and from this folder."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from dp2ddp.installed import NEEDED_BY_RUNS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest itself brings it on 3.10

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = sorted(str(path.relative_to(ROOT / "templates")) for path in (ROOT / "templates").rglob("*.py"))
SCRIPT = ROOT / "examples" / "seed_random_dataset" / "train.py"


def declared_packages() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages: list[str] = settings["tool"]["setuptools"]["packages"]
    return packages


def test_pyproject_lists_every_package() -> None:
    folders = [path.parent.relative_to(ROOT) for path in (ROOT / "dp2ddp").rglob("__init__.py")]
    assert declared_packages() == sorted(
        [*(".".join(folder.parts) for folder in folders), "dp2ddp.templates"]
    )


def test_no_folder_with_code_lacks_its_init_file() -> None:
    bare = {
        path.parent for path in (ROOT / "dp2ddp").rglob("*.py") if not (path.parent / "__init__.py").exists()
    }
    assert bare == {ROOT / "dp2ddp" / "new" / "folder"}  # files to copy, which import each other


def run(*command: str | Path, cwd: Path) -> str:
    result = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this folder, so that nothing is built in here."""
    copy = tmp_path_factory.mktemp("source")
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    wanted = ("dp2ddp/", "templates/", "pyproject", "README", "LICENSE", "MANIFEST")
    for name in listed:
        if name.startswith(wanted) and (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    return copy


def wheel_of(source: Path, out: Path) -> Path:
    """Built with our setuptools: no network."""
    options = ("-q", "--no-build-isolation", "--no-deps", "-w", out)
    run(sys.executable, "-m", "pip", "wheel", *options, source, cwd=out.parent)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    return wheel_of(source, source / "out")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a clean environment with the wheel; what dp2ddp depends on is borrowed from ours."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel, cwd=folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(str(Path(pytest.__file__).parent.parent) + "\n")
    return python


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a clean environment with the wheel and what it depends on without an extra."""
    folder = tmp_path_factory.mktemp("light")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel, cwd=folder)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in needed_by(DEPENDENCIES):
        distribution = importlib.metadata.distribution(name)
        for entry in {
            file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")
        }:
            (site / entry).symlink_to(Path(str(distribution.locate_file(entry))))
    return python


DEPENDENCIES: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]


def needed_by(requirements: list[str]) -> set[str]:
    """The distributions that these requirements bring, with theirs in turn."""
    names: set[str] = set()
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace("_", "-")
        marked = "extra" in requirement.partition(";")[2]
        if not marked and name not in names:
            try:
                waiting += importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:  # of another Python, or another system
                continue
            names.add(name)
    return names


def test_a_light_installation_converts_and_checks(light: Path, tmp_path: Path) -> None:
    dp2ddp = light.parent / "dp2ddp"
    for name in NEEDED_BY_RUNS:
        missing = subprocess.run([light, "-c", f"import {name}"], capture_output=True, text=True, check=False)
        assert "ModuleNotFoundError" in missing.stderr
    reports = ("--report", "out.html", "--report", "out.md")
    converted = run(dp2ddp, "convert", SCRIPT, "-o", tmp_path / "out.py", *reports, cwd=tmp_path)
    assert (tmp_path / "out.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "CONVERTED" in (tmp_path / "out.md").read_text(encoding="utf-8")
    assert (tmp_path / "out.py").read_bytes() == SCRIPT.with_name("train_ddp.py").read_bytes()
    assert "not found" not in converted  # torch is known by tables
    run(dp2ddp, "new", "first", cwd=tmp_path)
    assert (tmp_path / "first" / "train_ddp.py").is_file()
    notebook = ROOT / "examples" / "notebook_random_dataset" / "train.ipynb"
    run(dp2ddp, "convert", notebook, "-o", tmp_path / "notebook.py", cwd=tmp_path)
    checked = subprocess.run(
        [dp2ddp, "check", tmp_path / "out.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert checked.returncode in (0, 1)
    assert "Error" not in checked.stderr


@pytest.mark.parametrize("command", [("verify",), ("bench",), ("run", "--mode", "dp")])
def test_a_light_installation_says_what_runs_need(
    light: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    result = subprocess.run(
        [light.parent / "dp2ddp", *command, SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == (
        f"dp2ddp: {command[0]} runs scripts, which needs torch, msgspec, numpy, psutil, safetensors, xxhash: "
        "pip install torch msgspec numpy psutil safetensors xxhash (converting needs none of it)\n"
    )


def test_the_extra_verify_is_what_runs_are_said_to_need() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["verify"]
    assert {re.split(r"\W", requirement)[0] for requirement in extra} == {*NEEDED_BY_RUNS}


def test_the_source_distribution_makes_the_same_wheel(source: Path, wheel: Path) -> None:
    code = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    run(sys.executable, "-c", code, source / "sdist", cwd=source)
    (archive,) = (source / "sdist").glob("*.tar.gz")
    unpacked = source / "unpacked"
    with tarfile.open(archive) as files:
        files.extractall(unpacked, filter="data")
    (folder,) = unpacked.iterdir()
    again = wheel_of(folder, source / "again")
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_holds_the_templates_under_our_name_and_no_other(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert sorted(n.removeprefix("dp2ddp/templates/") for n in names if "/templates/" in n) == TEMPLATES
    assert {name.split("/")[0] for name in names} == {"dp2ddp", "dp2ddp-0.1.0.dist-info"}


def test_the_wheel_holds_the_license_that_pyproject_names(wheel: Path) -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    archive = zipfile.ZipFile(wheel)
    (path,) = [name for name in archive.namelist() if name.endswith("/LICENSE")]
    text = archive.read(path).decode()
    assert text == (ROOT / "LICENSE").read_text()
    assert text.startswith(f"{named} License\n")


def test_an_installed_dp2ddp_is_the_wheel_and_not_this_folder(installed: Path, tmp_path: Path) -> None:
    where = run(installed, "-c", "import dp2ddp; print(dp2ddp.__file__)", cwd=tmp_path)
    assert where.startswith(str(installed.parent.parent))


def test_an_installed_dp2ddp_has_its_templates_as_text(installed: Path, tmp_path: Path) -> None:
    code = "import importlib.resources as r; print(*[p.name for p in r.files('dp2ddp.templates').iterdir()])"
    assert {name for name in TEMPLATES if "/" not in name} <= {
        *run(installed, "-c", code, cwd=tmp_path).split()
    }


def test_a_type_checker_sees_the_importable_helpers_of_the_wheel(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    script = tmp_path / "script.py"
    script.write_text("from dp2ddp.helpers import count_ranks, run_on_rank1\nreveal_type(count_ranks)\n")
    command = [sys.executable, "-m", "mypy", "--no-site-packages", "--follow-imports=silent", "script.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert [line.partition(": ")[2].replace("builtins.", "") for line in result.stdout.splitlines()[:-1]] == [
        'error: Module "dp2ddp.helpers" has no attribute "run_on_rank1"; maybe "run_on_rank0"?  [attr-defined]',
        'note: Revealed type is "def () -> int"',
    ]


def test_an_installed_dp2ddp_writes_reports(installed: Path, tmp_path: Path) -> None:
    code = (
        "from dp2ddp.report.comparison import Report; from dp2ddp.report.report_files import write_report;"
        "from pathlib import Path;"
        "write_report(Report('train.py', (), 'torchrun', 1.0, failure='hangs'), Path('out.html'));"
        "from dp2ddp.report.json_form import Report, schema; print(schema(Report)['$ref'])"
    )
    assert run(installed, "-c", code, cwd=tmp_path) == "#/$defs/Document\n"
    assert (tmp_path / "out.html").read_text().count("<script>") == 1


def test_an_installed_dp2ddp_has_every_cause(installed: Path, tmp_path: Path) -> None:
    code = "from dp2ddp.comparison.causes.catalogue import catalogue; print(*sorted(catalogue()))"
    entries = ROOT / "dp2ddp" / "comparison" / "causes" / "entries"
    assert run(installed, "-c", code, cwd=tmp_path).split() == sorted(path.stem for path in entries.iterdir())


def test_this_folder_is_installed_editable_with_its_templates(tmp_path: Path) -> None:
    code = "import dp2ddp, dp2ddp.templates as t; print(dp2ddp.__file__, t.__file__, sep='\\n')"
    assert run(sys.executable, "-c", code, cwd=tmp_path).splitlines() == [
        str(ROOT / "dp2ddp" / "__init__.py"),
        str(ROOT / "templates" / "__init__.py"),
    ]
