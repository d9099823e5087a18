"""What happens behind each step, once it is recorded: a state is taken over (lockstep), and moved by an ulp.

Lockstep: after each optimizer step a run takes over parameters, optimizer state and buffers of another run. So each
step begins from the same numbers, and is judged by itself: what rounding did in the steps before cannot hide what goes
wrong in this one. The leader (DataParallel) writes a snapshot behind each step; followers (the ranks, and DataParallel
an ulp away) wait for it. The leader is never more than a few steps ahead, and clears up behind them.

In the folder: step-NNNNNNN.safetensors; NAME.at, one byte for each step that a follower has taken over; NAME.pid, the
process of a run: when it has ended, in whatever way, nobody waits for it.

A run whose parameters are moved by one ulp, again and again, shows what rounding alone makes of a training. A right
port computes the same sums in another order, so each of its steps ends about an ulp away. This does that to
DataParallel itself. Parameters are moved and not inputs: an input may be a mask, an index in floating point or stand
exactly at a threshold, where an ulp changes what is computed; parameters are numbers of no special value. They are
multiplied by 1 + ulp or 1 - ulp, so zeros stay zeros (pruned weights, fresh biases).
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.optim import optimizer as optimizers

from dp2ddp.runtime.processes import has_ended
from dp2ddp.runtime.run_folder import write_whole
from dp2ddp.runtime.stage import Stage
from dp2ddp.taps import Taps
from dp2ddp.trace.tensor_names import KnownOptimizer, living_roots, parameters_of
from dp2ddp.trace.tensors import as_kind_of, as_real

AHEAD = 3  # snapshots on the disk
LEADER = "leader"
_LOOK = 0.001  # seconds between two looks
_ALIVE = 0.1  # seconds between two looks whether a process is there, which take a tenth of a millisecond
_SEED = 1  # of the directions; the script's own streams are left alone


def change_steps(stage: Stage, rank: int) -> None:
    """Install what the stage asks for; behind the recorder, which is told of each step first."""
    if stage.lockstep and stage.mode == "dp" and not stage.nudged:
        run, followers = _Run(Path(stage.lockstep), LEADER), stage.world + 1
        optimizers.register_optimizer_step_post_hook(lambda optimizer, *_: run.leave(optimizer, followers))
    elif stage.lockstep:
        follower = _Run(Path(stage.lockstep), f"{stage.mode}{rank}")
        optimizers.register_optimizer_step_post_hook(lambda optimizer, *_: follower.take_over(optimizer))
    if stage.nudged:
        install_nudge(Taps())


class _Run:
    """One that leads or follows."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._steps = 0
        self._known: WeakKeyDictionary[Any, KnownOptimizer] = WeakKeyDictionary()
        self._over: set[str] = set()
        self._looked_at: dict[str, float] = {}
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{name}.pid", str(os.getpid()))

    def leave(self, optimizer: Any, followers: int) -> None:
        from safetensors.torch import save_file

        with torch.no_grad(), torch._C.DisableTorchFunction():
            tensors = {
                name: as_real(tensor).clone().contiguous() for name, tensor in self._tensors(optimizer)
            }
            path = self._snapshot(self._steps)
            save_file(tensors, path.with_suffix(".new"))
            path.with_suffix(".new").rename(path)
        self._steps += 1
        _wait(lambda: self._behind(followers) <= AHEAD)
        self._snapshot(self._steps - AHEAD - 2).unlink(missing_ok=True)

    def take_over(self, optimizer: Any) -> None:
        from safetensors.torch import load_file

        path = self._snapshot(self._steps)
        _wait(lambda: path.exists() or self._is_over(LEADER))
        if not path.exists():  # the leader takes no more steps
            return
        with torch.no_grad(), torch._C.DisableTorchFunction():
            given = load_file(path)
            for name, tensor in self._tensors(optimizer):
                if name in given and given[name].shape == as_real(tensor).shape:
                    tensor.data.copy_(as_kind_of(tensor, given[name]))
        self._steps += 1
        with (self._folder / f"{self._name}.at").open("ab") as file:
            file.write(b".")

    def _tensors(self, optimizer: Any) -> Iterator[tuple[str, torch.Tensor]]:
        known = self._known.get(optimizer)
        if known is None or not known.is_up_to_date(optimizer):
            known = self._known[optimizer] = KnownOptimizer(0, optimizer, living_roots())
        yield from zip(known.layout.names, parameters_of(optimizer), strict=True)
        for layout, tensors in (known.state(optimizer), known.buffers()):
            yield from zip(layout.names, tensors, strict=True)

    def _behind(self, followers: int) -> int:
        """How many steps the slowest follower is behind; those that have ended do not count."""
        begun = {path.stem: path.stat().st_size for path in self._folder.glob("*.at")}
        over = {path.stem for path in self._folder.glob("*.pid") if self._is_over(path.stem)}
        going = [count for name, count in begun.items() if name not in over]
        if len(begun.keys() | over) < followers:  # one has not come to its first step yet
            going.append(0)
        return self._steps - min(going, default=self._steps)

    def _snapshot(self, step: int) -> Path:
        return self._folder / f"step-{step:07d}.safetensors"

    def _is_over(self, name: str) -> bool:
        """Whether a run has begun, and ended."""
        now = time.monotonic()
        if name not in self._over and now - self._looked_at.get(name, -math.inf) >= _ALIVE:
            self._looked_at[name] = now
            note = self._folder / f"{name}.pid"
            if note.exists() and has_ended(int(note.read_text())):
                self._over.add(name)
        return name in self._over


def _wait(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(_LOOK)


# ---- an ulp away

# where the function is held: in torch.nn.parallel some of these names are functions
_REPLICATE = [sys.modules[f"torch.nn.parallel{name}"] for name in (".replicate", ".data_parallel", "")]


def install_nudge(taps: Taps) -> None:
    """Move the parameters of a model before it is replicated, or run on one device, for the first time, and each
    optimizer's after each step."""
    nudge = _Nudge()
    taps.before(
        "forward", lambda wrapper, *inputs, **kwargs: nudge.move_new(wrapper.module), torch.nn.DataParallel
    )
    taps.before("replicate", lambda network, *devices, **kwargs: nudge.move_new(network), *_REPLICATE)
    handle = optimizers.register_optimizer_step_post_hook(
        lambda optimizer, args, kwargs: nudge.move(_stepped(optimizer))
    )
    taps.on_undo(handle.remove)


def _stepped(optimizer: Any) -> list[torch.Tensor]:
    """A parameter without a gradient was not computed anew, and cannot have been rounded."""
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return [parameter for parameter in parameters if parameter.grad is not None]


class _Nudge:
    """The parameters that were moved once at least, and a direction for each of their elements."""

    def __init__(self) -> None:
        self._moved: set[int] = set()
        self._directions = np.random.Generator(np.random.PCG64(_SEED))

    def move_new(self, model: torch.nn.Module) -> None:
        self.move(each for each in model.parameters() if id(each) not in self._moved)

    def move(self, parameters: Iterable[torch.Tensor]) -> None:
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for parameter in parameters:
                if parameter.requires_grad:  # a float, or complex: then both parts
                    self._moved.add(id(parameter))
                    self._move(as_real(parameter.data))

    def _move(self, values: torch.Tensor) -> None:
        """By one ulp, or by two where that rounds so; up or down, by chance but the same in every run."""
        count = values.numel()
        bits = np.unpackbits(np.frombuffer(self._directions.bytes((count + 7) // 8), np.uint8))[:count]
        signs = torch.tensor(bits, dtype=values.dtype).mul_(2).sub_(1)
        values.mul_(signs.mul_(torch.finfo(values.dtype).eps).add_(1).reshape(values.shape))
