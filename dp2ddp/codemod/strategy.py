"""Five choices, each with its reason: who loads what, where ranks come together, how gradients are summed, what runs,
and how much of the helpers it takes (tiers.py).

Each has a safe answer that always works; a faster one is taken only where facts prove it (docs/architecture.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from dp2ddp.codemod.choices import FULL, LEAN, PLAIN
from dp2ddp.codemod.facts import Facts

DATA = ("share", "shard", "replicate")  # to ask for
JOIN = ("rows", "outputs")
GRADIENTS = ("graph", "reducer")
ONCE = "once"  # data of the plain tier: rank 0 loads, and sends
# The script's random numbers on a device, in the lean tier: a rank's own (there are none), the same on all ranks from
# the start, or rank 0's again behind each forward, for models that draw there, too.
DEVICE_STREAMS = OWN, SHARED, FOLLOWED = "own", "shared", "followed"
WRAPPERS = {"reducer": "ExactDDP", "graph": "GraphDDP"}
# What the smaller tiers have for a helper of the full one; where a script needs another one, it needs the full tier.
SMALLER = {
    "join_process_group": "init_distributed",
    "on_rank_zero": "run_on_rank0",
    "answer_of_rank_zero": "ask_rank0",
    "log_on_rank_zero": "LogFile",
    "handler_on_rank_zero": "make_handler_on_rank0",
    "object_on_rank_zero": "make_on_rank0",
    "open_on_rank_zero": "open_on_rank0",
    "save_on_rank_zero": "save_on_rank0",
    "rank_zero_first": "rank0_first",
    "share": "Rank0Loader",
    "shard": "Rank0Loader",
    "to_own_device": "to_own_device",
    "tracker_on_rank_zero": "make_on_rank0",
    "world_size": "count_ranks",
}
HELPERS = {
    PLAIN: {**SMALLER, **dict.fromkeys(WRAPPERS.values(), "WholeBatchDDP")},
    LEAN: {
        **SMALLER,
        **dict.fromkeys(WRAPPERS.values(), "WholeBatchParallel"),
        "seed_again": "seed_all_streams",
    },
    FULL: {
        "answer_of_rank_zero": "on_rank_zero",
        "log_on_rank_zero": "open_on_rank_zero",
        "handler_on_rank_zero": "object_on_rank_zero",
    },
}


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
    helpers: Choice = Choice(FULL, "right for everything")
    device_stream: str = OWN
    model_draws: bool = True  # a model may draw random numbers: dropout

    @property
    def choices(self) -> dict[str, Choice]:
        """What is chosen, by the word for it."""
        return {
            "data": self.data,
            "join": self.join,
            "gradients": self.gradients,
            "forward": self.forward,
            "helpers": self.helpers,
        }

    def helper(self, name: str) -> str:
        """The helper of the chosen tier that does what this one of the full tier does."""
        return HELPERS[self.helpers.value].get(name, name)

    @property
    def wrapper(self) -> str:
        """The class that takes DataParallel's place."""
        if self.device_stream == FOLLOWED:
            return "OneStreamParallel"
        if self.helpers.value == PLAIN and self.model_draws:
            return "WholeBatchDropoutDDP"
        return self.helper(WRAPPERS[self.gradients.value])

    @property
    def draws_apart(self) -> bool:
        """Whether models, and nothing else, draw from the stream of a rank's device, which any seed begins anew."""
        return self.helpers.value != FULL and self.device_stream != FOLLOWED

    @property
    def joining(self) -> tuple[str, ...]:
        """The helpers by which a rank joins the others."""
        streams = {SHARED: ("share_device_stream",), FOLLOWED: ("begin_device_streams",)}
        return self.helper("join_process_group"), *streams.get(self.device_stream, ())

    @property
    def wrapper_options(self) -> tuple[str, ...]:
        """What the wrapper is told beside the model: names of options that are True."""
        if self.helpers.value != FULL:
            return ()
        given = {"whole_outputs": (self.join, "outputs"), "pure_forward": (self.forward, "module")}
        return tuple(name for name, (choice, value) in given.items() if choice.value == value)


def choose(
    facts: Facts, data: str | None = None, join: str | None = None, gradients: str | None = None
) -> Strategy:
    """The fastest choices that are proven, unless the user asks for others."""
    loading = _choose_data(facts, data)
    return Strategy(
        data=loading,
        join=_OUTPUTS if join == "outputs" else _ROWS,
        gradients=_as_chosen(gradients, _choose_gradients(facts), safe="graph"),
        forward=_choose_forward(facts),
        shares=loading.value == "share" or loading.value == "feed" and facts.share_stopper is None,
    )


_ROWS = Choice(
    "rows",
    "outputs of up to 64 KB go to all ranks at once; of larger ones each rank keeps its own rows, and only sums go "
    "over the network, until something needs the whole",
)
_OUTPUTS = Choice("outputs", "asked for: all outputs go to all ranks at once")


def _choose_data(facts: Facts, option: str | None) -> Choice:
    stopper = facts.feed_reason or facts.shard_stopper
    if option == "replicate":
        return _replicate("asked for")
    if option == "share":
        return _as_chosen(option, _share(facts, stopper or "asked for"))
    if stopper is None:
        return Choice(
            "shard",
            "each rank loads, moves and holds its own rows of every batch: samples load alone, without random numbers",
        )
    if option == "shard":
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


def _as_chosen(value: str | None, proven: Choice, safe: str | None = None) -> Choice:
    if value is None or value == proven.value:
        return proven
    if value == safe:
        return Choice(value, f"asked for ({proven.value} is proven: {proven.because})")
    return Choice(value, f"asked for, not proven: {proven.because}", forced=True)


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
