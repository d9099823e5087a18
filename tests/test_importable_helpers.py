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


def loaded_by(*steps: str) -> list[set[str]]:
    """The modules that each line of code loads, one after the other in a fresh interpreter."""
    told = ["import json, sys; known = {*sys.modules}; told = []"]
    for step in steps:
        told += [step, "told.append([*({*sys.modules} - known)]); known |= {*sys.modules}"]
    code = "\n".join([*told, "print(json.dumps(told))"])
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [set(step) for step in json.loads(run.stdout.splitlines()[-1])]


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


def test_importing_it_alone_loads_nothing_but_python() -> None:
    (loaded,) = loaded_by("import dp2ddp.helpers")
    assert not {"torch", "dp2ddp.templates"} & loaded


def test_a_script_loads_what_it_needs_and_beyond_torch_only_pythons_own() -> None:
    names = "init_distributed, WholeBatchDDP, run_on_rank0, save_on_rank0"
    _, some, others = loaded_by(
        "import torch, torch.distributed, torch.utils.data, torch.nn.parallel, torch.func",
        f"from dp2ddp.helpers import {names}",
        f"from dp2ddp.helpers import {', '.join(names_of_rules())}",
    )
    of_others = {name.split(".")[0] for name in some | others} - set(sys.stdlib_module_names)
    assert of_others - {"torch"} == {"dp2ddp"}
    own = {name for name in some | others if name.startswith("dp2ddp")}
    assert {".".join(name.split(".")[:2]) for name in own} == {"dp2ddp", "dp2ddp.helpers", "dp2ddp.templates"}
    needed, spared = ({name.rpartition(".")[2] for name in step} for step in (some, others))
    assert {"ddp", "ranks", "rank0", "checkpoints"} <= needed
    assert {
        *["model", "overlapping", "parts", "turns", "loader", "batches", "files", "trackers", "synced"]
    } <= spared
