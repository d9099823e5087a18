"""DDP105: the random states of devices, kept in a checkpoint and set again."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Lift, Replace
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.facts.script import CallSite
from dp2ddp.codemod.rule import Rewrites, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy

HELPERS = {
    "torch.cuda.get_rng_state_all": "get_device_states",
    "torch.cuda.set_rng_state_all": "set_device_states",
    "torch.cuda.set_rng_state": "set_device_state",
    "torch.cuda.get_rng_state": "get_device_state",
    "torch.random.fork_rng": "fork_streams",
}
ALIASES = {name.replace("torch.cuda.", "torch.cuda.random."): name for name in HELPERS}


class DeviceRandomStates(Rule):
    """Keep the random state of every device, and set each on the rank that has it.

    ## What it does
    `torch.cuda.get_rng_state_all()` becomes `get_device_states()`, and so on for `set_rng_state_all`, `set_rng_state`,
    `get_rng_state(device)` and `torch.random.fork_rng`.

    ## Why
    DataParallel's process has one random stream for each device. Among the ranks, the script draws from the first
    one's on every rank, and each replica's is on its own rank: what a rank sees of the others' is not theirs. A run
    that goes on from a checkpoint would draw other dropout masks, and the ranks other noise.

    ## Safety
    The states are those of DataParallel's devices, so checkpoints go both ways. `get_rng_state()` without a device
    is the script's own stream, and is left alone; so is what a model's forward asks.

    ## References
    templates/replicas.py, DeviceStream; docs/semantics.md#device-streams.
    """

    code = "DDP105"
    name = "device-random-states"
    nodes = ("Attribute", "Name")
    examples = (
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                state = {"cuda": torch.cuda.get_rng_state_all(), "first": torch.cuda.get_rng_state()}
                torch.cuda.set_rng_state_all(state["cuda"])
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                state = {"cuda": get_device_states(), "first": torch.cuda.get_rng_state()}
                set_device_states(state["cuda"])
            """,
        ),
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                state = torch.cuda.get_rng_state(1)
                with torch.random.fork_rng():
                    net(x)
                torch.cuda.random.set_rng_state(state, 1)
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                state = get_device_state(1)
                with fork_streams():
                    net(x)
                set_device_state(state, 1)
            """,
        ),
        Untouched("""
            import torch
            net = torch.nn.DataParallel(net)
            state = torch.get_rng_state(), torch.cuda.get_rng_state()
            torch.set_rng_state(state[0])
        """),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if facts.is_converted or not facts.all_wraps:
            return
        because = "each device of DataParallel has a random stream of its own, which is on its own rank now"
        for call in facts.script.calls_of(*HELPERS, *ALIASES):
            helper = HELPERS[ALIASES.get(call.name or "", call.name or "")]
            if facts.places.of(call.node) is ExecutionPlace.MAIN and not _is_scripts_own(call, helper):
                yield Replace(call.node.func, facts.names.helper(helper), because)
                yield Lift(helper, because)


def _is_scripts_own(call: CallSite, helper: str) -> bool:
    """`torch.cuda.get_rng_state()`: what the script draws from, the same on every rank."""
    return helper == "get_device_state" and not call.node.args and not call.node.keywords
