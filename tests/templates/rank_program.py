"""Runs the scenarios on forked ranks (W = 2, 3, 4), writes JSON: python rank_program.py FOLDER [W ...]."""

from __future__ import annotations

import functools
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import scenarios
import torch
import torch._dynamo  # every optimizer imports it: once here, and not once a rank
import torch.distributed
from checks import CHECKS
from dp2ddp.templates import late_sums
from dp2ddp.templates.ddp import ExactDDP, GraphDDP
from dp2ddp.templates.half import HalfPrecision
from dp2ddp.templates.lean import WholeBatchParallel
from dp2ddp.templates.plain import WholeBatchDDP
from dp2ddp.templates.process import join_process_group
from lean_checks import LEAN_CHECKS
from loaded_checks import LOADED_CHECKS
from reference import Devices, ReferenceDataParallel
from scenarios import GRAPH_ONLY, IMPURE, NOT_LEAN, NOT_PLAIN, SCENARIOS
from torch import nn

from dp2ddp.runtime.ports import free_port

WORLDS = (2, 3, 4)


def compare(name: str, kind: Callable[..., nn.Module], world: int, dtype: torch.dtype) -> dict[str, Any]:
    """The largest relative difference to DataParallel's numbers, and how many of them are not the same bits."""
    torch.set_default_dtype(dtype)
    devices = Devices()

    def reference(module: nn.Module, dim: int = 0) -> nn.Module:
        return ReferenceDataParallel(module, devices, world, dim)

    try:
        wanted = list(SCENARIOS[name](reference, devices.seed, world))
        found = list(SCENARIOS[name](kind, devices.seed, world))
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


def work(world: int) -> dict[str, Any]:
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
    for name, check in {**CHECKS, **LEAN_CHECKS, **LOADED_CHECKS}.items():
        found[name] = attempt(check)
    return found


def attempt(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception:
        return {"failed": traceback.format_exc()}


def be_a_rank(rank: int, world: int, port: int, folder: Path) -> None:
    warnings.simplefilter("ignore")
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    HalfPrecision.is_named = False  # but by checks about it
    join_process_group()
    found = work(world)
    (folder / f"{world}_{rank}.json").write_text(json.dumps(found))


def main(folder: Path, worlds: tuple[int, ...]) -> int:
    for world in worlds:
        port = free_port()
        children = []
        for rank in range(world):
            child = os.fork()
            if child == 0:
                be_a_rank(rank, world, port, folder)
                sys.exit()
            children.append(child)
        if any(os.waitpid(child, 0)[1] for child in children):
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), tuple(map(int, sys.argv[2:])) or WORLDS))
