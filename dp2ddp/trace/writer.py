"""Writes a record while the script runs: numbers in blocks, and a line for each step once its numbers are safe."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from dp2ddp.trace.records import End, Layout, Vector

BLOCK_BYTES = 8 * 2**20
BLOCK_SECONDS = 0.5


@dataclass(frozen=True)
class Line:
    """What `steps.jsonl` says of a step; the numbers lie in its block."""

    step: int
    optimizer: int
    layout: int
    learning_rates: list[float]
    losses: list[float]
    rows: list[tuple[int, ...]]


class Writer:
    """The folder of one rank, being filled."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.*"):  # of a run before: its steps would be read as ours
            if old.suffix in (".jsonl", ".json", ".safetensors"):
                old.unlink()
        self._folder = folder
        self._layouts = 0
        self._block = 0
        self._arrays: dict[str, Any] = {}
        self._lines: list[Line] = []
        self._bytes = 0
        self._written = time.monotonic()
        self._remarks: list[str] = []

    def write_layout(self, layout: Layout) -> int:
        """Returns the number by which steps refer to it."""
        with (self._folder / "layouts.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(layout)) + "\n")
        self._layouts += 1
        return self._layouts - 1

    def write_step(self, line: Line, gradients: Vector, parameters: Vector) -> None:
        self._add(f"{line.step}.gradients", gradients)
        self._add(f"{line.step}.parameters", parameters)
        self._lines.append(line)
        if self._bytes > BLOCK_BYTES or time.monotonic() - self._written > BLOCK_SECONDS:
            self.flush()

    def write_remark(self, text: str) -> None:
        self._remarks.append(text)

    def flush(self) -> None:
        if not self._lines:
            return
        save_file(self._arrays, self._folder / f"block-{self._block:05d}.safetensors")
        with (self._folder / "steps.jsonl").open("a", encoding="utf-8") as file:
            for line in self._lines:
                file.write(json.dumps({**dataclasses.asdict(line), "block": self._block}) + "\n")
        self._arrays, self._lines, self._bytes = {}, [], 0
        self._block += 1
        self._written = time.monotonic()

    def write_end(self, end: End, buffers: dict[str, Any]) -> None:
        self.flush()
        save_file(buffers, self._folder / "buffers.safetensors")
        whole = dataclasses.replace(end, remarks=(*end.remarks, *self._remarks))
        (self._folder / "end.json").write_text(json.dumps(dataclasses.asdict(whole)), encoding="utf-8")

    def _add(self, key: str, vector: Vector) -> None:
        for part, array in (("hashes", vector.hashes), ("values", vector.values), ("sketch", vector.sketch)):
            if array is not None:
                self._arrays[f"{key}.{part}"] = array
                self._bytes += array.nbytes
