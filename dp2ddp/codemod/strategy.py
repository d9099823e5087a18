"""Three choices, each with its reason: who loads what, where the ranks come together, how gradients are summed.

Each has a safe answer that always works; a faster one is taken only where facts prove it (DESIGN.md section 3).
"""

from __future__ import annotations

from dataclasses import dataclass

from dp2ddp.codemod.facts import Facts

DATA = ("share", "shard", "replicate")  # to ask for
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
    shares: bool  # rank 0 iterates the loaders for all ranks

    @property
    def wrapper(self) -> str:
        """The class that takes DataParallel's place."""
        return WRAPPERS[self.gradients.value]


def choose(
    facts: Facts, data: str | None = None, join: str | None = None, gradients: str | None = None
) -> Strategy:
    """The fastest choices that are proven, unless the user asks for others.

    Outputs can only be joined where the ranks' rows stay apart, so the first two choices go together.
    """
    gradient = _asked(gradients, _choose_gradients(facts), safe="graph")
    stopper = facts.feed_reason or facts.data_stopper
    found = (_shard(), _outputs()) if stopper is None else (_whole(facts, stopper), _batch(stopper))
    if data == "share":
        found = (_asked(data, _share(facts, stopper or "asked for")), _batch(stopper or "asked for"))
    elif data == "replicate":
        found = (_replicate("asked for"), _batch("asked for"))
    elif join == "batch" and data is None:
        found = (_whole(facts, stopper or "join is asked for"), _batch(stopper or "asked for"))
    elif (data, join) == ("shard", "batch"):
        found = (Choice("shard", "asked for", forced=stopper is not None), _batch("asked for"))
    elif stopper is not None and join == "outputs":
        found = (
            Choice("shard", f"asked for, not proven: {stopper}", forced=True),
            Choice("outputs", f"asked for, not proven: {stopper}", forced=True),
        )
    elif stopper is not None and data == "shard":
        found = (Choice("shard", f"asked for, not proven: {stopper}", forced=True), _batch(stopper))
    shares = found[0].value == "share" or found[0].value == "feed" and facts.share_stopper is None
    return Strategy(*found, gradients=gradient, shares=shares)


def _shard() -> Choice:
    return Choice("shard", "samples load alone, without random numbers: every rank loads only its rows")


def _whole(facts: Facts, why: str) -> Choice:
    """Whole batches on every rank: made once wherever rank 0 may make them."""
    if facts.feed_reason is not None:
        return Choice("feed", f"rank 0 reads, and every rank gets what it reads: {why}")
    return _share(facts, why)


def _share(facts: Facts, why: str) -> Choice:
    stopper = facts.share_stopper
    if stopper is not None:
        return _replicate(f"{why}; share: {stopper}")
    return Choice(
        "share", f"rank 0 makes each batch, as one process would; the others map its memory (shard: {why})"
    )


def _replicate(why: str) -> Choice:
    return Choice(
        "replicate", f"every rank makes the whole batches itself, which is always right (shard: {why})"
    )


def _outputs() -> Choice:
    return Choice(
        "outputs", "each batch goes from its loader into one forward; what is used behind it is gathered"
    )


def _batch(why: str) -> Choice:
    return Choice("batch", f"every rank has the whole batch, and the wrapper splits it (outputs: {why})")


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
