"""Who may import whom; and what each start-up must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Package: those that it may import. Drawn along the processes: converting has no torch, running happens in children,
# comparing reads files. What `__init__` names is looked up where it is used.
_ALLOWED = """
errors:
commands:
masks:
signals:
words:
installed: errors
new: errors source
progress:
styles:
options: errors progress styles codemod
templates:
helpers: templates
source: errors signals
taps:
trace: errors taps
costs: taps
launch: masks
doctor: runtime installed codemod
codemod: errors styles source launch copies
review: words errors options source codemod
runtime: errors signals taps source trace costs copies
copies: words errors source
comparison: words errors trace copies
report: words errors masks styles source codemod review costs comparison runtime
trial: words errors installed options progress source codemod runtime trace costs comparison copies report
api: commands review errors options progress source codemod copies costs report trial
language_server: api errors review
cli: words api language_server commands errors masks new options progress styles source codemod review runtime \
     trace costs report trial launch doctor
testing: errors options report api
__main__: cli
__init__: api codemod costs errors progress report review
"""
ALLOWED = {
    name: {*names.split()} for name, _, names in (row.partition(":") for row in _ALLOWED.split("\n")[1:-1])
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


def test_a_file_imports_only_what_its_package_may() -> None:
    for package, path in package_files():
        beyond = imported_packages(path) - ALLOWED[package] - {package, "__version__"}
        assert not beyond, f"{path.relative_to(ROOT)} imports dp2ddp.{', dp2ddp.'.join(sorted(beyond))}"


# The rooms of runtime; in "" is what all of them know.
ROOMS = {
    "": set(),
    "hang": {""},
    "virtual_cuda": {"hang"},
    "perturb": {"", "hang", "virtual_cuda"},
    "observe": {"hang", "virtual_cuda", "perturb"},
    "process": {"", "hang", "virtual_cuda", "perturb", "observe"},
}


def room_of(module: str) -> str:
    first, *rest = module.removeprefix("dp2ddp.runtime.").split(".")
    return first if rest or first in ROOMS else ""


def test_a_room_of_runtime_imports_only_from_those_below_it() -> None:
    found: dict[str, set[str]] = {room: set() for room in ROOMS}
    for module, imported in imports_of_modules().items():
        if module.startswith("dp2ddp.runtime."):
            found[room_of(module)] |= {room_of(name) for name in imported if "dp2ddp.runtime." in name}
    assert {room: names - {room} for room, names in found.items()} == ROOMS


# Modules that name each other's types: a program has modules, and each knows its program.
CIRCLES = [{"codemod.model.flow", "codemod.model.modules", "codemod.model.program", "codemod.model.reach"}]


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Within functions, too: a late import hides a circle, and does not cut it."""
    circles = [
        {name.removeprefix("dp2ddp.") for name in circle} for circle in circles_in(imports_of_modules())
    ]
    assert [sorted(circle) for circle in circles if not any(circle <= known for known in CIRCLES)] == []


def imports_of_modules() -> dict[str, set[str]]:
    """Module -> the modules that it imports; without `dp2ddp` itself, which looks its names up where they are used."""
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in (ROOT / "dp2ddp").rglob("*.py")
    }
    modules = {
        name.removesuffix(".__init__"): path for name, path in paths.items() if name != "dp2ddp.__init__"
    }
    return {name: modules_named(path) & modules.keys() - {name} for name, path in modules.items()}


def modules_named(path: Path) -> set[str]:
    """What a file imports, and what it imports from that: `from package import module`."""
    named = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            named |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
        elif isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
    return named


def circles_in(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Sets of modules of which each reaches each other."""
    reached = {name: reached_from(name, graph) for name in graph}
    circles = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph}
    return [set(circle) for circle in circles if circle]


def reached_from(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = set(graph[start])
    while waiting:
        reached.add(name := waiting.pop())
        waiting |= graph[name] - reached
    return reached


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


FUNCTIONS = {"convert", "verify", "bench", "check"}  # of `import dp2ddp`: docs/api.md


def test_no_package_has_the_name_of_a_function() -> None:
    """Importing the package would put it in the place of the function."""
    assert {package for package, _ in package_files()} & FUNCTIONS == set()


def test_importing_dp2ddp_loads_nothing_heavy() -> None:
    assert loaded_after("import dp2ddp; assert 'click' not in __import__('sys').modules") == set()


def test_a_function_is_there_without_torch() -> None:
    assert "torch" not in loaded_after("from dp2ddp import bench, convert, verify; import dp2ddp.comparison")


CALL_MAIN = "from dp2ddp.cli import main\ntry: main()\nexcept SystemExit: pass"


def test_help_loads_click_and_nothing_heavy() -> None:
    assert loaded_after(CALL_MAIN, "--help") == set()


def test_the_rules_are_listed_without_libcst() -> None:
    assert loaded_after(CALL_MAIN, "rules") == set()


def test_the_codemod_loads_no_torch_and_libcst_only_to_write() -> None:
    assert loaded_after("import dp2ddp.codemod.convert") == set()


def test_converting_a_script_loads_nothing_heavy_but_libcst() -> None:
    script = str(ROOT / "examples" / "cifar_bn" / "train.py")
    assert loaded_after(CALL_MAIN, "convert", script, "--diff") == {"libcst"}


@pytest.mark.parametrize(
    "text",
    [
        "print('no model here')\n",
        "import torch\nnet = torch.nn.DataParallel(net, device_ids=[0])\n",
        "import torch\ndef build():\n    return torch.nn.DataParallel(Net())\n",
    ],
    ids=["nothing in it", "one device", "nothing runs"],
)
def test_a_file_that_does_not_change_is_not_given_to_libcst(tmp_path: Path, text: str) -> None:
    (tmp_path / "plain.py").write_text(text)
    assert not loaded_after(CALL_MAIN, "convert", str(tmp_path / "plain.py")) & {"torch", "libcst"}


def test_what_libcst_needs_to_match_is_not_loaded_to_convert(tmp_path: Path) -> None:
    """libcst.matchers takes as long to import as all of libcst."""
    script = ROOT / "examples" / "cifar_bn" / "train.py"
    code = f"{CALL_MAIN}\nassert 'libcst' in sys.modules and 'libcst.matchers' not in sys.modules"
    loaded_after(f"import sys\n{code}", "convert", str(script), "--diff")


def test_the_parent_side_of_a_run_loads_neither_torch_nor_libcst() -> None:
    assert not loaded_after("import dp2ddp.runtime.process.run") & {"torch", "libcst"}


def test_a_check_without_a_hit_loads_neither_rules_nor_facts(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print('no model here')\n")
    code = f"{CALL_MAIN}\nassert not [name for name in sys.modules if name.startswith('dp2ddp.codemod')]"
    assert loaded_after(f"import sys\n{code}", "check", str(tmp_path)) == set()


def test_a_check_with_hits_loads_neither_torch_nor_libcst() -> None:
    script = str(ROOT / "examples" / "cifar_bn" / "train.py")
    writes = {"difflib", "subprocess", "textwrap"}  # of use to who writes, shows or describes
    code = f"import sys\n{CALL_MAIN}\nassert not {writes} & {{*sys.modules}}, {writes} & {{*sys.modules}}"
    assert not loaded_after(code, "check", script) & {"torch", "libcst"}
