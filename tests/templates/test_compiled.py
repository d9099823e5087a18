"""torch.compile before, in and around the wrappers, for real: two ranks, DataParallel's numbers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import FORKED

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from compiled_program import FEW, KINDS, WAYS, pairs_of  # noqa: E402

pytestmark = pytest.mark.torchrun

ALWAYS = pairs_of("eager", all_kinds=False)
NAMES = [kind.__qualname__ for kind in KINDS]
PREFIXES = {
    "around": "_orig_mod.module.",
    "around, what ranks run": "_orig_mod.module.",
    "before": "module._orig_mod.",
}
Found = Callable[[str, str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, wants_all: bool) -> Found:
    """found(backend, case): what both ranks found; one run for each backend."""
    runs: dict[str, list[dict[str, Any]]] = {}

    def look_up(backend: str, case: str) -> list[dict[str, Any]]:
        if backend not in runs:
            runs[backend] = []  # a run that fails is not tried again
            file = tmp_path_factory.mktemp("compiled") / backend
            command = [*FORKED, "2", str(HERE / "compiled_program.py"), backend, str(file)]
            command += ["--all"] * wants_all
            run = subprocess.run(
                command, capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL
            )
            assert run.returncode == 0, run.stderr[-3000:]
            runs[backend] = [json.loads(file.with_suffix(f".{rank}").read_text()) for rank in (0, 1)]
        assert runs[backend], "the run failed, in the first test that asked for it"
        answers = [answers[case] for answers in runs[backend]]
        assert not any("failed" in answer for answer in answers), (
            answers[0].get("failed") or answers[1]["failed"]
        )
        return answers

    return look_up


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        pytest.param(way, kind.__qualname__, marks=[] if (way, kind) in ALWAYS else [pytest.mark.slow])
        for way in WAYS
        for kind in KINDS
    ],
)
def test_compiled_or_not_the_numbers_are_dataparallels(found: Found, way: str, kind: str) -> None:
    for answer in found("eager", f"{way} {kind}"):
        assert answer["difference"] <= 1e-14
        assert not answer["missing"]


compiles_in_replicas = pytest.mark.skipif(
    not hasattr(torch.compiler, "set_stance"), reason="torch before 2.6 compiles no replica, and says so"
)


@pytest.mark.slow
@compiles_in_replicas
@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("way", FEW)
def test_code_of_inductor_differs_by_rounding(found: Found, way: str, kind: str) -> None:
    for answer in found("inductor", f"{way} {kind}"):
        assert answer["difference"] <= 1e-12
        assert not answer["missing"]


@compiles_in_replicas
@pytest.mark.parametrize(
    "way", ["around, what ranks run", "before", "before, in place", "a method", "random"]
)
def test_a_new_replica_in_each_step_is_compiled_for_the_first_pass_and_the_others(
    found: Found, way: str
) -> None:
    """ExactDDP's first training pass computes with copies of the parameters, the later ones with themselves."""
    graphs = {kind: {answer["graphs"] for answer in found("eager", f"{way} {kind}")} for kind in NAMES}
    assert all(most <= {1, 2} if kind == "ExactDDP" else most == {1} for kind, most in graphs.items()), graphs


@pytest.mark.parametrize("way", PREFIXES)
def test_keys_are_those_of_torch_compile(found: Found, way: str) -> None:
    keys = {answer["keys"] for kind in NAMES for answer in found("eager", f"{way} {kind}")}
    assert keys == {f"{PREFIXES[way]}body.0.weight"}
