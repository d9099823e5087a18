"""Keep the random states of all devices.

`torch.cuda.get_rng_state_all` and `set_rng_state_all` ask and set the devices of all ranks; so do `get_rng_state`
and `set_rng_state` with a device, and `torch.random.fork_rng`.

A rank has one device; a checkpoint holds the state of each.

A checkpoint of the script under DataParallel can be read: it has a state for each device. `get_rng_state()` without
a device is the script's own stream; what a module's methods ask is their replica's. Both are left alone.

docs/semantics.md#device-streams.
"""

from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding
from dp2ddp.codemod.looks.mentions import replaced
from dp2ddp.codemod.looks.wrapper import is_in_layer
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Rule, Untouched, diff, rename

HELPERS = {
    "torch.cuda.get_rng_state_all": "get_device_states",
    "torch.cuda.set_rng_state_all": "set_device_states",
}
OF_ONE = {
    "torch.cuda.get_rng_state": ("get_device_state", 0),
    "torch.cuda.set_rng_state": ("set_device_state", 1),
}
FORKS = "torch.random.fork_rng"
BECAUSE = "a device of each rank"


class DeviceRandomStates(Rule):
    nodes = ("Attribute", "Name")
    examples = (
        diff("""
              import torch
            - state = torch.cuda.get_rng_state_all()
            - torch.cuda.set_rng_state_all(state)
            - with torch.random.fork_rng():
            + state = get_device_states()
            + set_device_states(state)
            + with fork_streams():
                  net(x)
        """),
        Untouched("import torch\nstate = torch.cuda.get_rng_state()"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        yield from replaced(module, HELPERS, BECAUSE)
        for call in module.calls:
            helper, place = OF_ONE.get(call.name or "", ("fork_streams", None))
            names_device = place is not None and call.argument(place, "device") is not None
            # of a model: replicas run it on each rank, with its own device's stream
            if (names_device or call.name == FORKS) and not is_in_layer(module, call.node):
                yield rename(call.node.func, helper, BECAUSE)
