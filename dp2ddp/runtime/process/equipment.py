"""What a process of a run gets before the script begins: devices, seeds, order, guards, and whoever observes it.

Imports torch, and all that stages install: a parent does it once for all the runs that it forks (0.1 s for each).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import dataloader

from dp2ddp.copies.fence import fence
from dp2ddp.costs.clock import Clock, FirstOptimizer, Meter
from dp2ddp.costs.counter import Counter
from dp2ddp.runtime.hang.collectives import CallRing, observe_collectives
from dp2ddp.runtime.observe import count_rows, observe_batches, observe_decisions, observe_forwards
from dp2ddp.runtime.perturb import aligned_runs
from dp2ddp.runtime.perturb.rank_order import add_in_rank_order
from dp2ddp.runtime.perturb.seeds import install_sample_streams, seed_all, seed_the_unseeded
from dp2ddp.runtime.perturb.steps import change_steps
from dp2ddp.runtime.process.meeting import have_own_ports
from dp2ddp.runtime.process.writes import Writes, guard, rename_across_layers
from dp2ddp.runtime.run_folder import Heartbeat
from dp2ddp.runtime.stage import Stage
from dp2ddp.runtime.virtual_cuda import virtual_devices
from dp2ddp.runtime.virtual_cuda.function_mode import VirtualDevices
from dp2ddp.runtime.virtual_cuda.places import HOST, PLACE
from dp2ddp.runtime.virtual_cuda.virtual_data_parallel import ReplicaDraws
from dp2ddp.taps import Taps, when_imported
from dp2ddp.trace.recorder import Recorder


def is_virtual(stage: Stage) -> bool:
    """Whether its devices are virtual ones, in this process."""
    return not (stage.real and torch.cuda.is_available() and torch.cuda.device_count() >= stage.world)


def set_stage(stage: Stage, rank: int, writes: Writes) -> None:
    """Install what the stage asks for in this process; the script's code is not touched."""
    # whoever has hooks for every step of torch's optimizers hears of fastai's own, too
    when_imported("fastai.optimizer", lambda module: Taps().around("step", _telling, module.Optimizer))
    if stage.mode == "ddp" and stage.trace and stage.dtype == "float64":
        # outputs of a short test, too, stay in parts, as the large ones of a training do (templates/parts.py)
        when_imported("ddp_helpers", lambda helpers: vars(helpers).update(LARGE=0))
    streams = virtual_devices.install(stage.world, stage.dtype).streams if is_virtual(stage) else None
    if stage.seed is not None:
        seed_the_unseeded(Path(stage.run_folder), Taps())
        # Ranks and devices begin apart, as in real life: bringing them together is the script's task.
        seed_all(stage.seed + rank)
        if streams:
            streams.begin_apart(stage.seed, rank)
        if stage.sample_streams:
            install_sample_streams(stage.seed)
    if stage.rank_order:
        add_in_rank_order(Taps())
    if stage.aligned and stage.mode == "dp":
        aligned_runs.leave_order(Path(stage.aligned), Taps())
        aligned_runs.leave_weights(Path(stage.aligned))
    elif stage.aligned:
        aligned_runs.take_order(Path(stage.aligned), Taps())
    if stage.scratch:
        _keep_writes_in(Path(stage.scratch), stage, writes)


def _keep_writes_in(scratch: Path, stage: Stage, writes: Writes) -> None:
    run_folder = Path(stage.run_folder)
    kept = [Path(folder) for folder in stage.kept]
    guard([scratch, *map(Path, stage.owned)], run_folder / "unfolding.lock", writes, kept)
    if kept:
        # the user's folder may lie among the temporary ones, and beside it nothing new can be made (fence.py)
        (scratch / "tmp").mkdir(exist_ok=True)
        os.environ["TMPDIR"] = tempfile.tempdir = str(scratch / "tmp")
        fence(kept, [_topmost_without(kept, scratch)])
    if stage.holder:
        rename_across_layers()
    if stage.mode == "ddp":
        have_own_ports(run_folder)


def _topmost_without(kept: Sequence[Path], place: Path) -> Path:
    """The highest folder above a place that holds none of those that are kept."""
    free = (
        each for each in (place, *place.parents) if not any(folder.is_relative_to(each) for folder in kept)
    )
    return list(free)[-1]


def _start_recorder(stage: Stage, rank: int, folder: Path) -> Recorder:
    recorder = Recorder(folder, rank=rank, last_step=stage.steps)
    recorder.start()
    change_steps(stage, rank)
    observe_forwards(recorder, aligned_runs.Streams().begin if stage.aligned else None)
    observe_batches(recorder)
    observe_decisions(recorder)
    ReplicaDraws.observers.append(recorder.saw_host_draws)
    return recorder


def follow_rank(stage: Stage, rank: int, virtual: bool) -> Callable[[], None]:
    """Follow a rank from now on; returns what is done at its end for whoever records it, or measures it.

    Called behind `set_stage`: what is measured is the script on its devices, and not their making.
    """
    if stage.aligned and stage.mode == "ddp":
        aligned_runs.take_weights(Path(stage.aligned), rank, stage.world)
    recorder = _start_recorder(stage, rank, Path(stage.trace)) if stage.trace else None
    meter = None if recorder else _start_meter(stage, rank, virtual)
    if stage.mode == "ddp" and not stage.timed:  # nobody stands beside a timed run: of a hang the stacks tell
        observe_collectives(CallRing(Path(stage.run_folder), rank), recorder.add if recorder else None)
    observer = recorder or meter
    return observer.finish if observer else no_record


def _start_meter(stage: Stage, rank: int, virtual: bool) -> Meter | None:
    if not (stage.timed or stage.counted):
        return None
    meter: Meter
    steps = stage.steps or 1
    if stage.timed:
        meter = Clock(Path(stage.timed), rank, stage.warm_up, steps, virtual)
    else:
        # a tensor without a mark is none of a device's
        where = (lambda tensor: getattr(tensor, PLACE, HOST)) if virtual else None
        meter = counter = Counter(Path(str(stage.counted)), rank, stage.warm_up, steps, stage.world, where)

        def show(original: Any, mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            """Each function that virtual devices answer, also within the functions of a tensor's own class."""
            return counter.called(args, lambda: original(mode, func, types, args, kwargs))

        Taps().around("__torch_function__", show, VirtualDevices)
    count_rows(meter.saw_rows)
    return meter


def no_record() -> None:
    """What is done at the end of a process that nobody records: nothing."""


def count_steps(heartbeat: Heartbeat, stage: Stage) -> None:
    """Count optimizer steps from now on, which are progress; of a run that is measured as costs/clock.py does."""
    first = FirstOptimizer()

    def step(optimizer: Any, *ignored: object) -> None:
        if (stage.timed or stage.counted) and not first.is_it(optimizer):
            heartbeat.beat()
        else:
            heartbeat.step()

    optimizers.register_optimizer_step_post_hook(step)


def beat_on_progress(heartbeat: Heartbeat) -> None:
    """A backward, and a batch from a loader, are progress as well."""
    for owner, name in ((torch.autograd, "backward"), (dataloader._BaseDataLoaderIter, "__next__")):
        Taps().before(name, lambda *args, **kwargs: heartbeat.beat(), owner)


def _telling(step: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """As torch's Optimizer.profile_hook_step; Any: as it is called."""
    for hook in optimizers._global_optimizer_pre_hooks.values():
        hook(optimizer, args, kwargs)
    result = step(optimizer, *args, **kwargs)
    for hook in optimizers._global_optimizer_post_hooks.values():
        hook(optimizer, args, kwargs)
    return result
