"""`dp2ddp.helpers`: what `--import` writes into scripts, by names that type checkers see, and no module beyond need."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import dp2ddp.helpers
from dp2ddp.codemod.lift import TEMPLATES, all_templates

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "dp2ddp" / "helpers.py"
# Words of the codemod that are names of templates by chance.
OTHER_WORDS = {"clear", "exact", "plain"}


def modules_after(code: str, before: str = "") -> set[str]:
    """The modules that `code` loads in a fresh interpreter, beyond those of `before`."""
    report = "print(json.dumps([*({*sys.modules} - known)]))"
    report = f"import json, sys\n{before}\nknown = {{*sys.modules}}\n{code}\n{report}"
    run = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(json.loads(run.stdout.splitlines()[-1]))


def names_of_rules() -> set[str]:
    """The templates' definitions that the codemod names: what a conversion may ask for."""
    known = set(all_templates().homes)
    trees = (
        ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "dp2ddp" / "codemod").rglob("*.py")
    )
    texts = {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return (known & {text for text in texts if isinstance(text, str)}) - OTHER_WORDS


def test_every_helper_that_a_conversion_may_ask_for_can_be_imported() -> None:
    asked_for = names_of_rules()
    assert {"WholeBatchDDP", "WholeBatchParallel", "init_distributed", "save_on_rank0"} <= asked_for
    homes = {name: dp2ddp.helpers.homes()[name] for name in asked_for}
    assert homes == {name: all_templates().module_of(name) for name in asked_for}


def test_type_checkers_are_shown_every_template() -> None:
    shown = {
        node.module
        for node in ast.walk(ast.parse(SOURCE.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dp2ddp.templates.")
    }
    assert shown == {f"{TEMPLATES}.{name}" for name in all_templates().texts}


def test_an_unknown_name_is_refused_in_the_usual_words() -> None:
    with pytest.raises(ImportError, match="cannot import name 'WholeBatches' from 'dp2ddp.helpers'"):
        exec("from dp2ddp.helpers import WholeBatches")


def test_what_it_imports_is_torch_and_pythons_own() -> None:
    torchs = "import torch, torch.distributed, torch.utils.data, torch.nn.parallel, torch.func"
    every = modules_after(f"from dp2ddp.helpers import {', '.join(names_of_rules())}", torchs)
    others = {name.split(".")[0] for name in every} - set(sys.stdlib_module_names)
    assert others - {"torch"} == {"dp2ddp"}
    own = {name for name in every if name.startswith("dp2ddp")}
    assert {".".join(name.split(".")[:2]) for name in own} == {"dp2ddp", "dp2ddp.helpers", "dp2ddp.templates"}


def test_importing_it_alone_loads_nothing_but_python() -> None:
    assert not {"torch", "dp2ddp.templates"} & modules_after("import dp2ddp.helpers")


def test_an_ordinary_script_loads_what_it_needs() -> None:
    every = modules_after(
        "from dp2ddp.helpers import init_distributed, WholeBatchDDP, run_on_rank0, save_on_rank0"
    )
    own = {name.rpartition(".")[2] for name in every if name.startswith("dp2ddp.templates.")}
    assert {"ddp", "ranks", "rank0", "checkpoints"} <= own
    assert (
        not {"model", "overlapping", "parts", "turns", "loader", "batches", "files", "trackers", "synced"}
        & own
    )
