"""Data that ranks could not each read alike: what threads and processes hand over, samples that differ by process.

One rank can read it for all (templates/feed.py), if what it hands over comes by objects that are asked there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.clocks import shared_clocks
from dp2ddp.codemod.facts.effects import STARTERS
from dp2ddp.codemod.facts.loaders import calls_of_loaders
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.places import ExecutionPlace, Places
from dp2ddp.codemod.facts.randomness import reseeds_from_outside, unseeded_generators
from dp2ddp.codemod.facts.reach import Reach
from dp2ddp.codemod.facts.script import CallSite, Script
from dp2ddp.codemod.facts.tables import of
from dp2ddp.codemod.facts.threads import why_not

NOT_FED = ("torch.multiprocessing.spawn",)  # starts the training itself
BASES = ("threading.Thread", "multiprocessing.Process", "torch.multiprocessing.Process")
MEETING_POINTS = {  # where threads and processes hand over, or wait for each other
    *of("queue", "Queue LifoQueue PriorityQueue SimpleQueue"),
    *of("threading", "Event Condition Semaphore BoundedSemaphore Barrier"),
    *of("multiprocessing", "Queue SimpleQueue JoinableQueue Event Condition Semaphore Manager Value Array"),
    *of("torch.multiprocessing", "Queue SimpleQueue JoinableQueue Event Condition Semaphore Manager"),
    *of("multiprocessing.queues", "Queue SimpleQueue"),
}


@dataclass(frozen=True, eq=False)
class Feeds:
    """What of one file rank 0 has alone, and what is asked there."""

    script: Script
    makers: tuple[CallSite, ...]  # calls that make threads, processes, pools, and where they meet
    stoppers: tuple[tuple[CallSite, str], ...]  # starters that cannot be left to rank 0, and why
    live: tuple[CallSite, ...]  # what makes the samples of loaders another one in each process

    @property
    def why(self) -> str | None:
        """Why ranks could not read alike (None: they can)."""
        if self.makers:
            made = self.makers[0]
            name = made.name or made.node.func.id  # type: ignore[attr-defined]  # a class of the script has a plain name
            return f"{name} ({self.script.where(made.node)}) hands over in an order of its own"
        return None


def find_feeds(
    script: Script, modules: Modules, reach: Reach, places: Places, models: frozenset[str]
) -> Feeds:
    """The sources of one file; `models` are the names of the wrapped models."""
    starters = [
        call
        for call in script.calls
        if is_starter(script, call, modules) and reach.is_called(script, call.node)
    ]
    reasons = ((call, why_not(script, call, modules, places, models)) for call in starters)
    stoppers = tuple((call, why) for call, why in reasons if why)
    stopped = [call for call, _ in stoppers]
    makers = [call for call in script.calls if call in starters and call not in stopped]
    if makers:
        makers += [
            call for call in script.calls_of(*MEETING_POINTS) if places.of(call.node) is ExecutionPlace.MAIN
        ]
    live = tuple(node for node in _live(script, modules, places) if reach.holds(script, node.node))
    return Feeds(
        script,
        tuple(makers),
        stoppers,
        live if live and _are_read_by_loaders(modules) else (),
    )


def is_starter(script: Script, call: CallSite, modules: Modules) -> bool:
    """Whether a call makes a thread, a process or a pool, also of a class of the script's own."""
    if call.name in STARTERS:
        return call.name not in NOT_FED
    return modules.has_base(script, call.node.func, BASES)


def _are_read_by_loaders(modules: Modules) -> bool:
    """Whether the project's data sets are read by loaders alone, and never directly (`train_set[0]`)."""
    sets = set()
    for script in modules.scripts:
        given = (call.argument(0, "dataset") for call in calls_of_loaders(script, modules))
        sets |= {script.text_of(argument) for argument in given if argument is not None}
    for script in modules.scripts:
        for node in script.nodes(ast.Subscript, ast.For, ast.comprehension):
            read = node.value if isinstance(node, ast.Subscript) else getattr(node, "iter", None)
            if read is not None and script.text_of(read) in sets:
                return False
    return bool(sets)


def _live(script: Script, modules: Modules, places: Places) -> Iterator[CallSite]:
    for call in (
        *unseeded_generators(script),
        *reseeds_from_outside(script),
        *shared_clocks(script, modules),
    ):
        if places.of(call.node) is ExecutionPlace.WORKER:
            yield call
