"""Compares torch files by the tensors in them; runs in a process that has torch (called by name through the server)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def main(request: dict[str, Any]) -> None:
    """Writes path -> what differs ("" for nothing) for each pair of `request["pairs"]`."""
    found = {path: difference(Path(a), Path(b), request["allowed"]) for path, a, b in request["pairs"]}
    Path(request["answer"]).write_text(json.dumps(found), encoding="utf-8")


def difference(a: Path, b: Path, allowed: float) -> str:
    """The first difference, or ""."""
    import torch

    try:
        ours, theirs = (torch.load(path, map_location="cpu", weights_only=True) for path in (a, b))
    except Exception as error:  # torch.load raises anything on a file that is not one
        return f"has other bytes, and cannot be read without running code ({type(error).__name__})"
    return next(_differences(ours, theirs, allowed, ""), "")


def _differences(a: Any, b: Any, allowed: float, at: str) -> Iterator[str]:
    import torch

    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        yield from _tensor_differences(a, b, allowed, at)
    elif isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            yield f"has other keys at {at or 'the top'}: {sorted(map(str, a.keys() ^ b.keys()))[:3]}"
        for key in a.keys() & b.keys():
            yield from _differences(a[key], b[key], allowed, f"{at}[{key!r}]")
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        for index, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _differences(x, y, allowed, f"{at}[{index}]")
    elif isinstance(a, float) and isinstance(b, float):
        if a != b and abs(a - b) > allowed * max(abs(a), abs(b)):
            yield f"{at} is {b} instead of {a}"
    elif type(a) is not type(b) or a != b:
        yield f"{at} is {b!r} instead of {a!r}"[:200]


def _tensor_differences(a: Any, b: Any, allowed: float, at: str) -> Iterator[str]:
    if a.shape != b.shape or a.dtype != b.dtype:
        yield f"{at} is {b.dtype} {tuple(b.shape)} instead of {a.dtype} {tuple(a.shape)}"
        return
    if not a.numel():
        return
    away = (a.double() - b.double()).abs().masked_fill_(a == b, 0)
    size = (away.max() / a.double().abs().max().clamp_min(1e-300)).item()
    if not size <= allowed:
        yield f"{at} differs by {size:.1e}"
