"""A stage: everything that one run of a script needs to know, as plain data that crosses processes."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from typing import Literal

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
    beside: str = ""  # what a trial says of it beside mode and precision: ", moved by an ulp"
    module: str | None = None  # what it is called, if it is started with `python -m`
    arguments: tuple[str, ...] = ()
    trace: str | None = None  # a folder for the record of each step
    steps: int | None = None  # end the script after so many optimizer steps
    # folders for what steps take (costs/clock.py), or for what a step moves, sends and holds (costs/counter.py);
    # `steps` are measured, and then it ends
    timed: str | None = None
    counted: str | None = None
    warm_up: int = 0  # steps before the first measured one
    dtype: str = "float32"
    sample_streams: bool = False
    nudged: bool = False  # parameters are moved by one ulp after each step: what rounding makes of the run
    lockstep: str | None = (
        None  # a folder, over which runs take over the state of one of them (perturb/steps.py)
    )
    rank_order: bool = False  # sums over ranks are added first rank first, as DataParallel does
    aligned: str | None = None  # a folder, over which a pair of runs draws the same numbers (aligned_runs.py)
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
    rank_in_arguments: bool = False  # {rank}, {local_rank}, {world} stand for a rank's own there
    starts_ranks: bool = False  # ddp: the script, started once, starts its ranks itself (boot.py)

    @property
    def words(self) -> str:
        """What the run is called among others of its script: "dp in float64, moved by an ulp"."""
        return f"{self.mode} in {self.dtype}{self.beside}"

    @property
    def ranks(self) -> range:
        """The ranks of a ddp run; of a dp run the one process, 0."""
        return range(self.world if self.mode == "ddp" else 1)

    @property
    def processes(self) -> range:
        """The processes that we start, by rank."""
        return range(1) if self.starts_ranks else self.ranks

    def arguments_of(self, rank: int) -> tuple[str, ...]:
        """The script's arguments on a rank; all ranks are on one node."""
        if not self.rank_in_arguments:
            return self.arguments
        of_rank = re.compile(r"\{(local_)?rank\}")
        return tuple(
            of_rank.sub(str(rank), each).replace("{world}", str(self.world)) for each in self.arguments
        )

    def to_json(self) -> str:
        """The stage as text; `from_json` reads it again."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Stage:
        """The stage that `to_json` wrote."""
        import msgspec  # of the extra `verify`, which the doctor does without

        return msgspec.convert(json.loads(text), cls)  # json reads names that are no UTF-8
