"""A stage: everything that one run of a script needs to know, as plain data that crosses processes."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dp2ddp.taps import Taps

if TYPE_CHECKING:
    from dp2ddp.runtime.writes import Writes
    from dp2ddp.trace.recorder import Recorder

Mode = Literal["dp", "ddp"]


@dataclass(frozen=True)
class Stage:
    """One run: `world` is the number of devices (dp: in one process; ddp: one rank each)."""

    script: str  # absolute path
    mode: Mode
    world: int
    folder: str  # the working folder
    run_folder: str  # where ranks leave files for the parent: how they ended, where they wait (run_folder.py)
    name: str  # what the script finds in sys.argv[0]
    module: str | None = None  # what it is called, if it is started with `python -m`
    arguments: tuple[str, ...] = ()
    trace: str | None = None  # a folder for the record of each step
    steps: int | None = None  # end the script after so many optimizer steps
    timed: str | None = (
        None  # a folder for what steps take (costs/clock.py); `steps` are measured, and then it ends
    )
    counted: str | None = (
        None  # a folder for what a step moves, sends and holds (costs/counter.py); `steps` likewise
    )
    warm_up: int = 0  # steps before the first measured one
    every: int = 1  # the record keeps the values of each so many-th step, hashes and sketches of the others
    dtype: str = "float32"
    sample_streams: bool = False
    nudged: bool = False  # parameters are moved by one ulp after each step: what rounding makes of the run
    lockstep: str | None = None  # a folder, over which runs take over the state of one of them (lockstep.py)
    rank_order: bool = False  # sums over ranks are added first rank first, as DataParallel does
    aligned: str | None = (
        None  # a folder, over which both runs of a pair draw the same numbers (aligned_runs.py)
    )
    seed: int | None = None  # where random, numpy and torch begin on rank 0; None: anywhere, as in real life
    real: bool = True  # use real CUDA devices when there are enough of them
    scratch: str | None = None  # the folder of all that the run may leave behind
    owned: tuple[str, ...] = ()  # folders where links out of them must not be written through (writes.py)
    holder: int | None = None  # the process that holds the mounts which the run sees (copies/namespace.py)
    moved: tuple[tuple[str, str], ...] = ()  # folders that the run has copies of: original, copy
    kept: tuple[str, ...] = ()  # folders of the user's in which the run must not write (copies/fence.py)
    own_hashes: bool = False  # strings have other hashes on each rank, as in real life
    replaced: tuple[tuple[str, str], ...] = ()  # files that run in the words of others (overlay.py)
    capture: bool = False  # the ranks' stdout and stderr go to files in the run folder
    variables: tuple[
        tuple[str, str], ...
    ] = ()  # for each rank; {rank}, {local_rank}, {world} stand for its own
    rank_in_arguments: bool = False  # they do so in the arguments, too
    starts_ranks: bool = (
        False  # ddp: the script is started once, and starts its ranks itself (spawned_ranks.py)
    )

    @property
    def ranks(self) -> range:
        """The ranks of a ddp run; of a dp run the one process, 0."""
        return range(self.world if self.mode == "ddp" else 1)

    @property
    def processes(self) -> range:
        """The processes that we start, by rank."""
        return range(1) if self.starts_ranks else self.ranks

    def filled_in(self, text: str, rank: int) -> str:
        """A text of the stage with {rank}, {local_rank} and {world} filled in; all ranks are on one node."""
        for name, value in (("{rank}", rank), ("{local_rank}", rank), ("{world}", self.world)):
            text = text.replace(name, str(value))
        return text

    def to_json(self) -> str:
        """The stage as text; `from_json` reads it again."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Stage:
        """The stage that `to_json` wrote."""
        import msgspec  # of the extra `verify`: what is converted on the way runs without

        return msgspec.convert(json.loads(text), cls)  # json reads names that are no UTF-8

    def write(self) -> Path:
        """Write the stage into its run folder, where the ranks read it."""
        run_folder = Path(self.run_folder)
        run_folder.mkdir(parents=True, exist_ok=True)
        path = run_folder / "stage.json"
        path.write_text(self.to_json(), encoding="utf-8")
        return path


def import_equipment() -> None:
    """Import what stages install. A parent does it once for all the runs that it forks (0.1 s for each)."""
    import dp2ddp.copies.fence
    import dp2ddp.runtime.aligned_runs
    import dp2ddp.runtime.collectives
    import dp2ddp.runtime.decisions
    import dp2ddp.runtime.forward_rows
    import dp2ddp.runtime.library_optimizers
    import dp2ddp.runtime.loader_batches
    import dp2ddp.runtime.lockstep
    import dp2ddp.runtime.meeting
    import dp2ddp.runtime.metering
    import dp2ddp.runtime.nudge
    import dp2ddp.runtime.rank_order
    import dp2ddp.runtime.sample_streams
    import dp2ddp.runtime.unseeded
    import dp2ddp.runtime.virtual_devices
    import dp2ddp.runtime.writes
    import dp2ddp.trace.recorder  # noqa: F401


def set_stage(stage: Stage, rank: int, writes: Writes | None = None) -> Recorder | None:
    """Install what the stage asks for in this process; returns the recorder, if there is a record.

    The script's code is not touched.
    """
    from dp2ddp.runtime.library_optimizers import let_their_steps_be_seen

    let_their_steps_be_seen()
    streams = None
    if is_virtual(stage):
        from dp2ddp.runtime import virtual_devices

        streams = virtual_devices.install(stage.world, stage.dtype).streams
    if stage.seed is not None:
        from dp2ddp.runtime import unseeded

        unseeded.seed_the_unseeded(Path(stage.run_folder), Taps())
        # Ranks and devices begin apart, as in real life: bringing them together is the script's task.
        seed_all(stage.seed + rank)
        if streams:
            streams.begin_apart(stage.seed, rank)
    if stage.sample_streams:
        from dp2ddp.runtime import sample_streams

        sample_streams.install_sample_streams(stage.seed)
    _change_sums(stage)
    if stage.aligned:
        from dp2ddp.runtime import aligned_runs

        order = aligned_runs.leave_order if stage.mode == "dp" else aligned_runs.take_order
        order(Path(stage.aligned), Taps())
        if stage.mode == "dp":
            aligned_runs.leave_weights(Path(stage.aligned))
        elif not stage.starts_ranks:
            aligned_runs.take_weights(Path(stage.aligned), rank, stage.world)
    if stage.scratch:
        from dp2ddp.copies.fence import fence
        from dp2ddp.runtime.writes import guard, rename_across_layers

        owned = [Path(folder) for folder in (stage.scratch, *stage.owned)]
        kept = [Path(folder) for folder in stage.kept]
        guard(owned, Path(stage.run_folder) / "unfolding.lock", writes, kept)
        if kept:
            have_own_temporary_folder(Path(stage.scratch) / "tmp")
            fence(kept, [_topmost_without(kept, Path(stage.scratch))])
        if stage.holder:
            rename_across_layers()
    if stage.mode == "ddp" and stage.scratch:
        from dp2ddp.runtime.meeting import have_own_ports

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
        from dp2ddp.runtime.rank_order import add_in_rank_order

        add_in_rank_order(Taps())


def _change_steps(stage: Stage, rank: int) -> None:
    """What happens behind each step, once it is recorded: a state is taken over, and moved by an ulp."""
    from dp2ddp.runtime import lockstep, nudge

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

    from dp2ddp.runtime.unseeded import begin_unseeded

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
    from dp2ddp.runtime import (
        aligned_runs,
        decisions,
        forward_rows,
        loader_batches,
        replica_draws,
    )
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
