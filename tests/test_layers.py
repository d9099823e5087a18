"""Who may import whom: the table of docs/architecture.md, as a test; and what each start-up must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# drawn along the processes: converting has no torch, running happens in children, comparing reads files
ALLOWED = {
    "errors": set(),
    "templates": set(),
    "source": {"errors"},
    "trace": {"errors"},
    "bench": {"errors"},
    "codemod": {"errors", "source"},
    "runtime": {"errors", "trace", "bench"},
    "verify": {"errors", "source", "trace"},
    "report": {"errors", "source", "codemod", "trace", "bench", "verify", "runtime"},
    "trial": {"errors", "source", "codemod", "runtime", "trace", "bench", "verify", "report"},
    "cli": {"errors", "source", "codemod", "runtime", "trace", "bench", "verify", "report", "trial"},
    "testing": {"errors", "report", "trial"},
    "__main__": {"cli"},
    "__init__": set(),
}
HEAVY = ("torch", "libcst", "rich", "numpy")


def package_files() -> Iterator[tuple[str, Path]]:
    """(package, file) of everything that gets installed."""
    for path in sorted((ROOT / "dp2ddp").rglob("*.py")):
        yield path.relative_to(ROOT / "dp2ddp").with_suffix("").parts[0], path
    for path in sorted((ROOT / "templates").rglob("*.py")):
        yield "templates", path


def imported_packages(path: Path) -> set[str]:
    """The packages of dp2ddp that a file names in an import statement, at any depth."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [name for node in ast.walk(tree) for name in imported_names(node)]
    return {name.split(".")[1] for name in names if name.startswith("dp2ddp.")}


def imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module == "dp2ddp":
        return [f"dp2ddp.{alias.name}" for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [node.module]
    return []


@pytest.mark.parametrize(
    ("package", "path"),
    [pytest.param(*entry, id=str(entry[1].relative_to(ROOT))) for entry in package_files()],
)
def test_a_file_imports_only_what_its_package_may(package: str, path: Path) -> None:
    beyond = imported_packages(path) - ALLOWED[package] - {package, "__version__"}
    assert not beyond, f"{path.relative_to(ROOT)} imports dp2ddp.{', dp2ddp.'.join(sorted(beyond))}"


def test_the_table_names_every_package_and_no_other() -> None:
    assert {package for package, _ in package_files()} == set(ALLOWED)


def test_templates_import_torch_and_the_standard_library_only() -> None:
    for path in (ROOT / "templates").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {name.split(".")[0] for node in ast.walk(tree) for name in imported_names(node)}
        assert names <= {"torch", *sys.stdlib_module_names}, path.name


def loaded_after(code: str, *arguments: str) -> set[str]:
    """Which heavy modules a fresh interpreter holds after running `code`."""
    report = (
        f"\nimport sys\nprint('loaded:', *[name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    command = [sys.executable, "-c", code + report, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return set(result.stderr.splitlines()[-1].removeprefix("loaded:").split())


CALL_MAIN = "from dp2ddp.cli import main\ntry: main()\nexcept SystemExit: pass"


def test_help_loads_click_and_nothing_heavy() -> None:
    assert loaded_after(CALL_MAIN, "--help") == set()


def test_the_codemod_loads_no_torch() -> None:
    assert "torch" not in loaded_after("import dp2ddp.codemod.convert")


def test_converting_a_script_loads_no_torch() -> None:
    script = str(ROOT / "examples" / "cifar_bn" / "train.py")
    assert "torch" not in loaded_after(CALL_MAIN, "convert", script, "--diff")


def test_a_file_that_cannot_matter_is_not_given_to_libcst(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print('no model here')\n")
    assert not loaded_after(CALL_MAIN, "convert", str(tmp_path / "plain.py")) & {"torch", "libcst"}


def test_the_parent_side_of_a_run_loads_neither_torch_nor_libcst() -> None:
    assert not loaded_after("import dp2ddp.runtime.run") & {"torch", "libcst"}
