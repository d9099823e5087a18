"""Four choices, each with its reason: who loads what, where ranks come together, how gradients are summed, what runs.

Each has a safe answer that always works; a faster one is taken only where facts prove it (docs/architecture.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from dp2ddp.codemod.facts import Facts

DATA = ("share", "shard", "replicate")  # to ask for
JOIN = ("rows", "outputs")
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
    forward: Choice
    shares: bool  # rank 0 iterates the loaders for all ranks

    @property
    def choices(self) -> dict[str, Choice]:
        """What is chosen, by the word for it."""
        return {
            "data": self.data,
            "join": self.join,
            "gradients": self.gradients,
            "forward": self.forward,
        }

    @property
    def wrapper(self) -> str:
        """The class that takes DataParallel's place."""
        return WRAPPERS[self.gradients.value]


def choose(
    facts: Facts, data: str | None = None, join: str | None = None, gradients: str | None = None
) -> Strategy:
    """The fastest choices that are proven, unless the user asks for others."""
    loading = _choose_data(facts, data)
    return Strategy(
        data=loading,
        join=_OUTPUTS if join == "outputs" else _ROWS,
        gradients=_asked(gradients, _choose_gradients(facts), safe="graph"),
        forward=_choose_forward(facts),
        shares=loading.value == "share" or loading.value == "feed" and facts.share_stopper is None,
    )


_ROWS = Choice(
    "rows",
    "outputs of up to 64 KB go to all ranks at once; of larger ones each rank keeps its own rows, and only sums go "
    "over the network, until something needs the whole",
)
_OUTPUTS = Choice("outputs", "asked for: all outputs go to all ranks at once")


def _choose_data(facts: Facts, asked: str | None) -> Choice:
    stopper = facts.feed_reason or facts.shard_stopper
    if asked == "replicate":
        return _replicate("asked for")
    if asked == "share":
        return _asked(asked, _share(facts, stopper or "asked for"))
    if stopper is None:
        return Choice(
            "shard",
            "each rank loads, moves and holds its own rows of every batch: samples load alone, without random numbers",
        )
    if asked == "shard":
        return Choice("shard", f"asked for, not proven: {stopper}", forced=True)
    if facts.feed_reason is not None:
        return Choice(
            "feed",
            "rank 0 reads; the others map the memory of what it reads, and each rank moves and holds its own rows: "
            f"{stopper}",
        )
    return _share(facts, stopper)


def _share(facts: Facts, why: str) -> Choice:
    stopper = facts.share_stopper
    if stopper is not None:
        return _replicate(f"{why}; share: {stopper}")
    return Choice(
        "share",
        "rank 0 loads each batch, as one process would; the others map its memory, and each rank moves and holds its "
        f"own rows (shard: {why})",
    )


def _replicate(why: str) -> Choice:
    return Choice(
        "replicate", f"every rank loads the whole batches itself, which is always right (shard: {why})"
    )


def _asked(value: str | None, found: Choice, safe: str | None = None) -> Choice:
    if value is None or value == found.value:
        return found
    if value == safe:
        return Choice(value, f"asked for ({found.value} is proven: {found.because})")
    return Choice(value, f"asked for, not proven: {found.because}", forced=True)


def _choose_gradients(facts: Facts) -> Choice:
    stopper = facts.gradient_stopper
    if stopper is None:
        return Choice(
            "reducer",
            "one forward and one backward of the wrapped model a step, nothing else touches gradients",
        )
    return Choice("graph", f"{stopper}; summing inside the graph is right for everything")


def _choose_forward(facts: Facts) -> Choice:
    trace = facts.forward_trace
    if trace is None:
        return Choice("module", "the module itself runs on a rank's rows: its forward only computes")
    return Choice("replica", f"a rank runs a copy of the module, as DataParallel does: {trace}")
