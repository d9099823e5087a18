"""Three choices, each with its reason: who loads what, where the ranks come together, how gradients are summed.

Each has a safe answer that always works; a faster one is taken only where facts prove it (DESIGN.md section 3).
"""

from __future__ import annotations

from dataclasses import dataclass

from dp2ddp.codemod.facts import Facts

DATA = ("replicate", "shard")
JOIN = ("batch", "outputs")
GRADIENTS = ("graph", "reducer")
WRAPPERS = {"reducer": "ExactDDP", "graph": "GraphDDP"}


@dataclass(frozen=True)
class Choice:
    """One choice and why it was made."""

    value: str
    because: str
    forced: bool = False  # asked for against the facts


@dataclass(frozen=True)
class Strategy:
    """How a script becomes a DDP script."""

    data: Choice
    join: Choice
    gradients: Choice

    @property
    def wrapper(self) -> str:
        """The class that takes DataParallel's place."""
        return WRAPPERS[self.gradients.value]


def choose(
    facts: Facts, data: str | None = None, join: str | None = None, gradients: str | None = None
) -> Strategy:
    """The fastest choices that are proven, unless the user asks for others."""
    return Strategy(
        data=_asked(data, _choose_data(facts)),
        join=_asked(join, _choose_join(facts)),
        gradients=_asked(gradients, _choose_gradients(facts), safe="graph"),
    )


def _asked(value: str | None, found: Choice, safe: str | None = None) -> Choice:
    if value is None or value == found.value:
        return found
    if value == safe:
        return Choice(value, f"asked for ({found.value} is proven: {found.because})")
    return Choice(value, f"asked for, not proven: {found.because}", forced=True)


def _choose_data(facts: Facts) -> Choice:
    return Choice("replicate", "every rank loads the whole batch, which is right for any loader")


def _choose_join(facts: Facts) -> Choice:
    return Choice("batch", "every rank has the whole batch; the wrapped model splits it as DataParallel does")


def _choose_gradients(facts: Facts) -> Choice:
    stopper = facts.training.reducer_stopper
    if stopper is None:
        return Choice(
            "reducer",
            "one forward and one backward of the wrapped model a step, nothing else touches gradients",
        )
    return Choice(
        "graph", f"{stopper.why} (line {stopper.line}); summing inside the graph is right for everything"
    )
