"""What a stage installs in a process before the script begins."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dp2ddp.runtime.stage import Stage
from dp2ddp.taps import Taps

if TYPE_CHECKING:
    from dp2ddp.runtime.process.writes import Writes
    from dp2ddp.trace.recorder import Recorder


def import_equipment() -> None:
    """Import what stages install. A parent does it once for all the runs that it forks (0.1 s for each)."""
    import dp2ddp.copies.fence
    import dp2ddp.runtime.hang.collectives
    import dp2ddp.runtime.observe.decisions
    import dp2ddp.runtime.observe.forward_rows
    import dp2ddp.runtime.observe.library_optimizers
    import dp2ddp.runtime.observe.loader_batches
    import dp2ddp.runtime.observe.metering
    import dp2ddp.runtime.perturb.aligned_runs
    import dp2ddp.runtime.perturb.lockstep
    import dp2ddp.runtime.perturb.nudge
    import dp2ddp.runtime.perturb.rank_order
    import dp2ddp.runtime.perturb.sample_streams
    import dp2ddp.runtime.perturb.unseeded
    import dp2ddp.runtime.process.meeting
    import dp2ddp.runtime.process.writes
    import dp2ddp.runtime.virtual_cuda.virtual_devices
    import dp2ddp.trace.recorder  # noqa: F401


def set_stage(stage: Stage, rank: int, writes: Writes | None = None) -> Recorder | None:
    """Install what the stage asks for in this process; returns the recorder, if there is a record.

    The script's code is not touched.
    """
    from dp2ddp.runtime.observe.library_optimizers import let_their_steps_be_seen

    let_their_steps_be_seen()
    streams = None
    if is_virtual(stage):
        from dp2ddp.runtime.virtual_cuda import virtual_devices

        streams = virtual_devices.install(stage.world, stage.dtype).streams
    if stage.seed is not None:
        from dp2ddp.runtime.perturb import unseeded

        unseeded.seed_the_unseeded(Path(stage.run_folder), Taps())
        # Ranks and devices begin apart, as in real life: bringing them together is the script's task.
        seed_all(stage.seed + rank)
        if streams:
            streams.begin_apart(stage.seed, rank)
    if stage.sample_streams:
        from dp2ddp.runtime.perturb import sample_streams

        sample_streams.install_sample_streams(stage.seed)
    _change_sums(stage)
    if stage.aligned:
        from dp2ddp.runtime.perturb import aligned_runs

        order = aligned_runs.leave_order if stage.mode == "dp" else aligned_runs.take_order
        order(Path(stage.aligned), Taps())
        if stage.mode == "dp":
            aligned_runs.leave_weights(Path(stage.aligned))
        elif not stage.starts_ranks:
            aligned_runs.take_weights(Path(stage.aligned), rank, stage.world)
    if stage.scratch:
        from dp2ddp.copies.fence import fence
        from dp2ddp.runtime.process.writes import guard, rename_across_layers

        owned = [Path(folder) for folder in (stage.scratch, *stage.owned)]
        kept = [Path(folder) for folder in stage.kept]
        guard(owned, Path(stage.run_folder) / "unfolding.lock", writes, kept)
        if kept:
            have_own_temporary_folder(Path(stage.scratch) / "tmp")
            fence(kept, [_topmost_without(kept, Path(stage.scratch))])
        if stage.holder:
            rename_across_layers()
    if stage.mode == "ddp" and stage.scratch:
        from dp2ddp.runtime.process.meeting import have_own_ports

        have_own_ports(Path(stage.run_folder))
    return start_recorder(stage, rank) if stage.trace and not stage.starts_ranks else None


def have_own_temporary_folder(folder: Path) -> None:
    """The user's folder may lie among the temporary ones, and beside it nothing new can be made (copies/fence.py)."""
    import tempfile

    folder.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)


def _topmost_without(kept: Sequence[Path], place: Path) -> Path:
    """The highest folder above a place that holds none of those that are kept."""
    free = (
        each for each in (place, *place.parents) if not any(folder.is_relative_to(each) for folder in kept)
    )
    return list(free)[-1]


def _change_sums(stage: Stage) -> None:
    """What makes a run comparable to another one: its sums are in order."""

    if stage.rank_order:
        from dp2ddp.runtime.perturb.rank_order import add_in_rank_order

        add_in_rank_order(Taps())


def _change_steps(stage: Stage, rank: int) -> None:
    """What happens behind each step, once it is recorded: a state is taken over, and moved by an ulp."""
    from dp2ddp.runtime.perturb import lockstep, nudge

    if stage.lockstep and stage.mode == "dp" and not stage.nudged:
        lockstep.lead(Path(stage.lockstep), followers=stage.world + 1)
    elif stage.lockstep:
        lockstep.follow(Path(stage.lockstep), f"{stage.mode}{rank}")
    if stage.nudged:
        nudge.install_nudge(Taps())


def seed_all(seed: int) -> None:
    """random, numpy and torch; what begins without a seed, too."""
    import random

    import numpy
    import torch

    from dp2ddp.runtime.perturb.unseeded import begin_unseeded

    begin_unseeded(seed)
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def is_virtual(stage: Stage) -> bool:
    """Whether its devices are virtual ones, in this process."""
    return not (stage.real and _enough_real_devices(stage.world))


def _enough_real_devices(count: int) -> bool:
    import torch

    return torch.cuda.is_available() and torch.cuda.device_count() >= count


def start_recorder(stage: Stage, rank: int) -> Recorder:
    """Observe this process from now on."""
    from dp2ddp.runtime.observe import decisions, forward_rows, loader_batches
    from dp2ddp.runtime.perturb import aligned_runs
    from dp2ddp.runtime.virtual_cuda import replica_draws
    from dp2ddp.trace.recorder import Recorder

    assert stage.trace is not None
    recorder = Recorder(Path(stage.trace), rank=rank, last_step=stage.steps, every=stage.every)
    recorder.start()
    _change_steps(stage, rank)
    forward_rows.observe_forwards(recorder, aligned_runs.Streams().begin if stage.aligned else None)
    loader_batches.observe_batches(recorder)
    decisions.observe_decisions(recorder)
    replica_draws.ReplicaDraws.observers.append(recorder.saw_host_draws)
    return recorder
