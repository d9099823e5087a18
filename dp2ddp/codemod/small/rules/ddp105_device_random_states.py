"""DDP105: random states of all devices."""

from __future__ import annotations

from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Finding, Rewrites, Rule, Untouched
from dp2ddp.codemod.small.mentions import replaced

HELPERS = {
    "torch.cuda.get_rng_state_all": "get_device_states",
    "torch.cuda.set_rng_state_all": "set_device_states",
}


class DeviceRandomStates(Rule):
    """Keep the random states of all devices.

    ## What it does
    `torch.cuda.get_rng_state_all` and `set_rng_state_all` ask and set the devices of all ranks.

    ## Why
    A rank has one device; a checkpoint holds the state of each.

    ## Safety
    A checkpoint of the script under DataParallel can be read: it has a state for each device.

    ## References
    docs/semantics.md#device-streams.
    """

    code = "DDP105"
    name = "device-random-states"
    nodes = ("Attribute", "Name")
    examples = (
        Rewrites(
            before="""
                import torch
                net = torch.nn.DataParallel(net)
                state = torch.cuda.get_rng_state_all()
                torch.cuda.set_rng_state_all(state)
            """,
            after="""
                import torch
                net = torch.nn.DataParallel(net)
                state = get_device_states()
                set_device_states(state)
            """,
        ),
        Untouched(
            """
                import torch
                net = torch.nn.DataParallel(net)
                state = torch.cuda.get_rng_state()
            """
        ),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        return replaced(module, HELPERS, "a device of each rank")
