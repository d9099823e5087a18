"""Runs the scenarios on forked ranks, writes JSON: python rank_program.py FOLDER --whole 2 3 --checked 4."""

from __future__ import annotations

import argparse
import functools
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import scenarios
import torch
import torch.distributed
from checks import CHECKS
from dp2ddp.templates import late_sums
from dp2ddp.templates.ddp import ExactDDP, GraphDDP
from dp2ddp.templates.half import HalfPrecision
from dp2ddp.templates.lean import WholeBatchParallel
from dp2ddp.templates.plain import WholeBatchDDP
from dp2ddp.templates.process import join_process_group
from forked_ranks import fork_ranks
from lean_checks import LEAN_CHECKS
from loaded_checks import LOADED_CHECKS
from reference import Devices, ReferenceDataParallel
from scenarios import GRAPH_ONLY, IMPURE, NOT_LEAN, NOT_PLAIN, SCENARIOS
from torch import nn

Work = Callable[[int], dict[str, Any]]  # on this rank of so many: what it finds, by name


def compare(name: str, kind: Callable[..., nn.Module], world: int, dtype: torch.dtype) -> dict[str, Any]:
    """The largest relative difference to DataParallel's numbers, and how many of them are not the same bits."""
    torch.set_default_dtype(dtype)
    try:
        wanted = reference_numbers(name, world, dtype, scenarios.STEPS)
        found = list(SCENARIOS[name](kind, Devices().seed, world))
    finally:
        torch.set_default_dtype(torch.float32)
    pairs = list(zip(found, wanted, strict=True))
    return {
        "difference": max(relative_difference(one, other) for one, other in pairs),
        "other_bits": sum(
            not torch.equal(one.nan_to_num(-7.0), other.nan_to_num(-7.0)) for one, other in pairs
        ),
        "compared": len(pairs),
    }


@functools.cache
def reference_numbers(name: str, world: int, dtype: torch.dtype, steps: int) -> list[torch.Tensor]:
    """DataParallel's, in so many steps: once for all kinds of wrapper."""
    devices = Devices()

    def reference(module: nn.Module, dim: int = 0) -> nn.Module:
        return ReferenceDataParallel(module, devices, world, dim)

    return [number.clone() for number in SCENARIOS[name](reference, devices.seed, world)]


def compare_pure(name: str, kind: type[nn.Module], world: int) -> dict[str, Any]:
    """The same of a wrapper that is told that forward leaves no traces; over more steps, since the first is careful."""
    wrap = functools.partial(kind, pure_forward=True)
    with mock.patch.object(scenarios, "STEPS", 4):
        return compare(name, wrap, world, torch.float64)


def compare_soon(name: str, world: int) -> dict[str, Any]:
    """The same of GraphDDP whose sums are taken for large: each layer's sets out as soon as it can."""
    with (
        mock.patch.object(late_sums, "EARLY_BYTES", 0),
        mock.patch.object(late_sums, "BUCKET_BYTES", 600),
    ):
        return compare(name, GraphDDP, world, torch.float64)


def relative_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    if one.shape != other.shape or not torch.equal(one.isnan(), other.isnan()):
        return float("inf")
    one, other = one.double().nan_to_num(), other.double().nan_to_num()
    scale = max(float(other.norm()), 1e-3)
    return float((one - other).norm()) / scale


def run_all(world: int) -> dict[str, Any]:
    """All scenarios and checks on this rank, in the same order on every rank."""
    found: dict[str, Any] = {}
    for name in SCENARIOS:
        for kind in (GraphDDP, ExactDDP) if name not in GRAPH_ONLY else (GraphDDP,):
            for dtype in (torch.float64, torch.float32) if world == 2 else (torch.float64,):
                key = f"{name} {kind.__qualname__} {str(dtype)[6:]}"
                found[key] = attempt(lambda n=name, k=kind, d=dtype: compare(n, k, world, d))  # type: ignore[misc]
            if name not in IMPURE:
                key = f"{name} {kind.__qualname__} pure"
                found[key] = attempt(lambda n=name, k=kind: compare_pure(n, k, world))  # type: ignore[misc]
        for kind, others in ((WholeBatchDDP, NOT_PLAIN), (WholeBatchParallel, NOT_LEAN)):
            if name not in others:
                for dtype in (torch.float64, torch.float32) if world == 2 else (torch.float64,):
                    key = f"{name} {kind.__qualname__} {str(dtype)[6:]}"
                    found[key] = attempt(lambda n=name, k=kind, d=dtype: compare(n, k, world, d))  # type: ignore[misc]
        found[f"{name} soon"] = attempt(lambda n=name: compare_soon(n, world))  # type: ignore[misc]
    return found | run_checks(world)


def run_checks(world: int) -> dict[str, Any]:
    return {name: attempt(check) for name, check in {**CHECKS, **LEAN_CHECKS, **LOADED_CHECKS}.items()}


def attempt(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception:
        return {"failed": traceback.format_exc()}


def be_a_rank(rank: int, world: int, folder: Path, work: Work) -> None:
    warnings.simplefilter("ignore")
    HalfPrecision.is_named = False  # but by checks about it
    join_process_group()
    found = work(world)
    (folder / f"{world}_{rank}.json").write_text(json.dumps(found))


def run_ranks(folder: Path, worlds: Iterable[int], work: Work) -> None:
    """Do the work on so many ranks at once, and then on so many; what each found lies in FOLDER/WORLD_RANK.json."""
    for world in worlds:
        if not fork_ranks(world, functools.partial(be_a_rank, world=world, folder=folder, work=work)):
            sys.exit(1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--whole", type=int, nargs="*", default=[], help="scenarios and checks on so many ranks"
    )
    parser.add_argument("--checked", type=int, nargs="*", default=[], help="the checks alone on so many")
    args = parser.parse_args()
    run_ranks(args.folder, args.whole, run_all)
    run_ranks(args.folder, args.checked, run_checks)
