"""Keep the states of the random streams of all devices.

`torch.cuda.get_rng_state_all` and `set_rng_state_all` ask and set the devices of all ranks; so do `get_rng_state` and
`set_rng_state` with a device, and `torch.random.fork_rng`. `torch.cuda.manual_seed_all` under a name of the script's
(`from torch.cuda import manual_seed_all`) becomes `seed_all_devices`.

A rank has one device; a checkpoint holds the state of each.

Ranks follow `torch.manual_seed` and `torch.cuda.manual_seed_all` by themselves. `get_rng_state()` without a device is
the script's own stream; what a module's methods ask is their replica's: both are left alone.

docs/semantics.md#device-streams.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding
from dp2ddp.codemod.looks.mentions import mentions, replaced
from dp2ddp.codemod.looks.wrapper import is_in_layer
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Rule, Untouched, diff, rename

STATES = {
    "torch.cuda.get_rng_state_all": "get_device_states",
    "torch.cuda.set_rng_state_all": "set_device_states",
}
OF_ONE = {  # and where they name the device
    "torch.cuda.get_rng_state": ("get_device_state", 0),
    "torch.cuda.set_rng_state": ("set_device_state", 1),
}
FORKS = "torch.random.fork_rng"
SEEDS = "torch.cuda.manual_seed_all"
BECAUSE = "a device of each rank"


class DeviceStreams(Rule):
    nodes = ("Attribute", "Name")
    examples = (
        diff("""
              import torch
              from torch.cuda import manual_seed_all
              torch.manual_seed(0)
            - manual_seed_all(0)
            - state = torch.cuda.get_rng_state_all()
            - with torch.random.fork_rng():
            + seed_all_devices(0)
            + state = get_device_states()
            + with fork_streams():
                  net(x)
        """),
        Untouched("""
            import torch
            torch.cuda.manual_seed_all(seed)
            state = torch.cuda.get_rng_state()
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        yield from replaced(module, STATES, BECAUSE)
        for call in module.calls:
            helper, place = OF_ONE.get(call.name or "", ("fork_streams", None))
            names_device = place is not None and call.argument(place, "device") is not None
            # of a model: replicas run it on each rank, with its own device's stream
            if (names_device or call.name == FORKS) and not is_in_layer(module, call.node):
                yield rename(call.node.func, helper, BECAUSE)
        for node, _ in mentions(module, [SEEDS]):
            if not (_is_called(module, node) and module.text(node).endswith("cuda.manual_seed_all")):
                yield rename(node, "seed_all_devices", BECAUSE)


def _is_called(module: Module, node: ast.expr) -> bool:
    parent = module.parents[node]
    return isinstance(parent, ast.Call) and parent.func is node
