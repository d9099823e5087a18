"""What gets installed: every package, every template, from a wheel and from this folder."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest itself brings it on 3.10

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = sorted(path.name for path in (ROOT / "templates").glob("*.py"))
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
    assert [p for p in (ROOT / "dp2ddp").rglob("*.py") if not (p.parent / "__init__.py").exists()] == []


def run(*command: str | Path, cwd: Path) -> str:
    result = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of a copy of this folder, so that nothing is built in here; with our setuptools: no network."""
    copy = tmp_path_factory.mktemp("source")
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    for name in listed:
        if name.startswith(("dp2ddp/", "templates/", "pyproject", "README")) and (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        copy / "out",
        copy,
        cwd=copy,
    )
    (built,) = (copy / "out").glob("*.whl")
    return built


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


def test_the_wheel_holds_the_templates_under_our_name_and_no_other(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert sorted(n.removeprefix("dp2ddp/templates/") for n in names if "/templates/" in n) == TEMPLATES
    assert {name.split("/")[0] for name in names} == {"dp2ddp", "dp2ddp-0.1.0.dist-info"}


def test_an_installed_dp2ddp_is_the_wheel_and_not_this_folder(installed: Path, tmp_path: Path) -> None:
    where = run(installed, "-c", "import dp2ddp; print(dp2ddp.__file__)", cwd=tmp_path)
    assert where.startswith(str(installed.parent.parent))


def test_an_installed_dp2ddp_has_its_templates_as_text(installed: Path, tmp_path: Path) -> None:
    code = "import importlib.resources as r; print(*[p.name for p in r.files('dp2ddp.templates').iterdir()])"
    assert {*TEMPLATES} <= {*run(installed, "-c", code, cwd=tmp_path).split()}


def test_an_installed_dp2ddp_converts_as_this_folder_does(installed: Path, tmp_path: Path) -> None:
    dp2ddp = installed.parent / "dp2ddp"
    assert "convert" in run(dp2ddp, "--help", cwd=tmp_path)
    run(dp2ddp, "convert", SCRIPT, "-o", tmp_path / "out.py", cwd=tmp_path)
    assert (tmp_path / "out.py").read_bytes() == SCRIPT.with_name("train_ddp.py").read_bytes()


def test_an_installed_dp2ddp_writes_reports(installed: Path, tmp_path: Path) -> None:
    code = (
        "from dp2ddp.report.comparison import Report; from dp2ddp.report.files import write_report;"
        "from pathlib import Path;"
        "write_report(Report('train.py', (), 'torchrun', 1.0, failure='hangs'), Path('out.html'));"
        "import importlib.resources as r; print(r.files('dp2ddp.report').joinpath('verify.schema.json').is_file())"
    )
    assert run(installed, "-c", code, cwd=tmp_path) == "True\n"
    assert (tmp_path / "out.html").read_text().count("<script>") == 1


def test_this_folder_is_installed_editable_with_its_templates(tmp_path: Path) -> None:
    code = "import dp2ddp, dp2ddp.templates as t; print(dp2ddp.__file__, t.__file__, sep='\\n')"
    assert run(sys.executable, "-c", code, cwd=tmp_path).splitlines() == [
        str(ROOT / "dp2ddp" / "__init__.py"),
        str(ROOT / "templates" / "__init__.py"),
    ]
