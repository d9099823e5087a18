"""Writes a record while the script runs: numbers in blocks, and a line for each step once its numbers are safe."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors.numpy import save_file

from dp2ddp.trace.record_folder import begin_record
from dp2ddp.trace.records import PASSES, End, Events, Final, Layout, Source, Vector

FULL_BYTES = 256 * 2**20
HEAD = 100  # steps
_PER_DOUBLING = 8  # steps with values for each doubling of the number of steps, behind the head
BLOCK_BYTES = 8 * 2**20
BLOCK_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class StepLine(Events):
    """What `steps.jsonl` says of a step; the numbers lie in its block."""

    step: int
    optimizer: int
    layout: int
    learning_rates: tuple[float, ...]
    state: int | None = None  # the layout of the optimizer's state, if that is kept
    buffers: int | None = None
    source: Source = "step"


class Writer:
    """The folder of one rank, being filled."""

    def __init__(self, folder: Path, part: str = "") -> None:
        """`part`: what names of files begin with, of a part of the record that has begun there."""
        if not part:
            begin_record(folder)
        self._folder, self._part = folder, part
        self._layouts: dict[str, dict[Layout, int]] = {"layouts.jsonl": {}, "others.jsonl": {}}
        self._block = 0
        self._arrays: dict[str, Any] = {}
        self._lines: list[StepLine] = []
        self._bytes = 0
        self._written = time.monotonic()

    def of_passes(self) -> Writer:
        """For backward passes of a script that takes no step, in the place of steps."""
        return Writer(self._folder, PASSES)

    def write_layout(self, layout: Layout, of: str = "parameters") -> int:
        """Write the layout of parameters, state or buffers once; returns the number by which steps refer to it."""
        file = "layouts.jsonl" if of == "parameters" else "others.jsonl"
        known = self._layouts[file]
        if layout not in known:
            self._append(file, dataclasses.asdict(layout))
            known[layout] = len(known)
        return known[layout]

    def write_initial(self, optimizer: int, vectors: dict[str, Vector]) -> None:
        """Parameters and buffers before an optimizer's first step."""
        arrays = _arrays("", vectors)
        self._save(f"initial-{optimizer:05d}", arrays)
        layouts = {name: self.write_layout(vector.layout, name) for name, vector in vectors.items()}
        self._append("initial.jsonl", {"optimizer": optimizer, **layouts})

    def write_step(self, line: StepLine, vectors: dict[str, Vector]) -> None:
        """`vectors`: gradients and parameters, and what else there is of unclipped, state and buffers."""
        arrays = {**_arrays(f"{line.step}.", vectors), **_digests(f"{line.step}.", line)}
        self._arrays.update(arrays)
        self._bytes += sum(array.nbytes for array in arrays.values())
        self._lines.append(line)
        if self._bytes > BLOCK_BYTES or time.monotonic() - self._written > BLOCK_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what is pending: a block of numbers, then the lines of its steps."""
        if not self._lines:
            return
        self._save(f"block-{self._block:05d}", self._arrays)
        self._append("steps.jsonl", *({**_fields(line), "block": self._block} for line in self._lines))
        self._arrays, self._lines, self._bytes = {}, [], 0
        self._block += 1
        self._written = time.monotonic()

    def write_final(self, final: Final) -> None:
        """What the models hold when the script ends."""
        arrays = {**_arrays("", {"tensors": final.vector}), "kinds": final.kinds}
        self._save("final", arrays)
        self._append("final.jsonl", dataclasses.asdict(final.vector.layout))

    def write_end(self, end: End, buffers: dict[str, Any] | None = None) -> None:
        """Write what is pending, the buffers, and what was known at the end."""
        self.flush()
        if buffers is not None:
            self._save("buffers", buffers)
        self.write_broken_end(end)

    def write_broken_end(self, end: End) -> None:
        """Write an end without what is pending, which may be what cannot be written."""
        self._save("end", _digests("", end))
        self._path("end.json").write_text(json.dumps(_fields(end)), encoding="utf-8")

    def _save(self, name: str, arrays: dict[str, Any]) -> None:
        save_file(arrays, self._path(f"{name}.safetensors"))

    def _append(self, name: str, *lines: dict[str, Any]) -> None:
        with self._path(name).open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))

    def _path(self, name: str) -> Path:
        return self._folder / f"{self._part}{name}"


def _arrays(prefix: str, vectors: dict[str, Vector]) -> dict[str, Any]:
    parts = (
        (f"{prefix}{name}.{part}", getattr(vector, part))
        for name, vector in vectors.items()
        for part in ("hashes", "values", "sketch")
    )
    return {key: array for key, array in parts if array is not None}


def _digests(prefix: str, events: Events) -> dict[str, Any]:
    digests = [digest for each in events.forwards for digest in (*each.digests, *each.firsts)]
    return {f"{prefix}digests": np.array(digests, dtype=np.uint64)} if digests else {}


def _fields(events: Events) -> dict[str, Any]:
    """As JSON; of the rows' digests, which are many, only the number."""
    fields = {field.name: getattr(events, field.name) for field in dataclasses.fields(events)}
    return {
        **fields,
        "forwards": [
            (forward.training, forward.rows, len(forward.digests), len(forward.firsts))
            for forward in events.forwards
        ],
        "draws": msgspec.to_builtins(events.draws),
    }


# ---- what is kept


class Keeper:
    """Says which steps are kept whole: at the start, where faults show first, then ever more seldom.

    Of all other steps there are hashes and sketches. So a record is bounded, whatever the number of steps.
    """

    def __init__(self, budget: int) -> None:
        # a quarter is for the landmarks behind the head, of which large models could not have any otherwise
        self._left = {"head": budget - budget // 4, "landmarks": budget // 4}

    def keeps(self, step: int, size: int) -> bool:
        """Whether the step's tensors, of that many bytes, are kept whole; then they count."""
        part = "head" if step < HEAD else "landmarks"
        if part == "landmarks" and not _is_landmark(step):
            return False
        if size > self._left[part]:
            return False
        self._left[part] -= size
        return True


def _is_landmark(step: int) -> bool:
    return bool(step % max(1, (1 << step.bit_length() - 1) // _PER_DOUBLING) == 0)


class Collected:
    """The fields of `Events`, being filled; `take` gives them away and begins anew."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: defaultdict[str, list[Any]] = defaultdict(list)

    def add(self, name: str, value: Any = None) -> None:
        """Something happened: one more of what the field of this name holds or counts."""
        with self._lock:
            self._values[name].append(value)

    def take(self) -> dict[str, Any]:
        """Keyword arguments of `Events`."""
        with self._lock:
            collected = self._collected()
            self._values.clear()
        return collected

    def peek(self) -> dict[str, Any]:
        """The same, and nothing begins anew."""
        with self._lock:
            return self._collected()

    def _collected(self) -> dict[str, Any]:
        values = self._values
        first_places: dict[str, str] = {}
        for what, place in values["casts"]:
            first_places.setdefault(what, place)
        return {
            **{name: tuple(values[name]) for name in ("losses", "forwards", "draws", "clips", "limits")},
            **{name: len(values[name]) for name in ("skipped", "scheduled")},
            "precision": tuple(dict.fromkeys(values["precision"])),
            "casts": tuple(first_places.items()),
            "collectives": tuple(sorted(Counter(values["collectives"]).items())),
        }
