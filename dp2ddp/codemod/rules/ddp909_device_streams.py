"""Seed the random streams of all devices, and keep their states.

`torch.manual_seed(seed)` becomes `seed_all_streams(torch.manual_seed, seed)`, and so does
`torch.cuda.manual_seed_all(seed)`, unless the script seeds its devices in one place, once.
`torch.cuda.get_rng_state_all` and `set_rng_state_all` ask and set the devices of all ranks; so do `get_rng_state`
and `set_rng_state` with a device, and `torch.random.fork_rng`.

A rank has one device; it follows torch.manual_seed by itself, but not what a script has kept under a name of its own
before the ranks began (`from torch.cuda import manual_seed_all`). A checkpoint holds the state of each device.

What is seeded once is followed by itself. A place in a loop, in a method or in a function that is called in two places
may run twice. `get_rng_state()` without a device is the script's own stream; what a module's methods ask is their
replica's: both are left alone.

docs/semantics.md#device-streams.
"""

import ast
from collections.abc import Iterator
from functools import lru_cache

from dp2ddp.codemod.edits import Finding
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.looks.mentions import replaced
from dp2ddp.codemod.looks.wrapper import is_in_layer
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import COMPREHENSIONS, LOOPS
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.rule import Rule, Untouched, call_by, diff, rename

STATES = {
    "torch.cuda.get_rng_state_all": "get_device_states",
    "torch.cuda.set_rng_state_all": "set_device_states",
}
OF_ONE = {  # and where they name the device
    "torch.cuda.get_rng_state": ("get_device_state", 0),
    "torch.cuda.set_rng_state": ("set_device_state", 1),
}
FORKS = "torch.random.fork_rng"
BECAUSE = "a device of each rank"
PLAIN = "torch.manual_seed"  # ranks follow it by themselves


class DeviceStreams(Rule):
    nodes = ("Attribute", "Call", "Name")
    examples = (
        diff("""
              import torch
              net = torch.nn.DataParallel(net)
              def set_seed(seed):
            -     torch.manual_seed(seed)
            +     seed_all_streams(torch.manual_seed, seed)
              for epoch in range(3):
                  set_seed(epoch)
        """),
        diff("""
              import torch
            - state = torch.cuda.get_rng_state_all()
            - with torch.random.fork_rng():
            + state = get_device_states()
            + with fork_streams():
                  net(x)
        """),
        Untouched("""
            import random
            import torch
            def set_seed(seed):
                random.seed(seed)
                torch.manual_seed(seed)
                if torch.cuda.is_available():
                    torch.cuda.manual_seed_all(seed)
            def main():
                set_seed(0)
                torch.nn.DataParallel(net)
            if __name__ == "__main__":
                main()
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
            if does(call.name) is Does.SEED and not _is_seeded_once(module.program):
                yield call_by(call.node, "seed_all_streams", "replicas' streams begin anew, too")


@lru_cache(maxsize=1)
def _is_seeded_once(program: Program) -> bool:
    """Whether all devices are seeded in one place, with one number, and that place runs once."""
    seeds = [
        (module, call)
        for module, call in program.calls
        if does(call.name) is Does.SEED and program.reach.runs(module, call.node)
    ]
    plain = [each for each in seeds if each[1].name == PLAIN]
    numbers = {ast.unparse(each) for _, call in seeds if (each := call.argument(0, "seed")) is not None}
    if len(plain) != 1 or len(numbers) != 1:
        return False
    home, first = plain[0]
    block = home.block_of(home.statement(first.node))
    around = [{*module.around(call.node)} for module, call in seeds]
    places = [place for each in around for place, statement in enumerate(block) if statement in each]
    if len(places) != len(seeds):
        return False
    seeding = block[min(places) : max(places) + 1]
    return not any(_may_train(home, each) for each in seeding) and _runs_once(home, first.node)


def _may_train(module: Module, statement: ast.stmt) -> bool:
    names = (call.name for call in module.calls_in(statement))
    return any(name is None or module.program.is_local(name) for name in names)


def _runs_once(module: Module, node: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether a place is in no loop, and the function around it is called in one such place, and not handed on."""
    for around in module.around(node):
        if isinstance(around, (*LOOPS, *COMPREHENSIONS, ast.Lambda, ast.AsyncFunctionDef)):
            return False
        if isinstance(around, ast.FunctionDef):
            calls = [*module.program.calls_of(module, around)]
            said = sum(len(each.by_word.get(around.name, ())) for each in module.program.modules)
            is_plain = isinstance(module.parents[around], ast.Module) and not around.decorator_list
            is_seen = is_plain and len(calls) == said == 1 and around not in seen
            return is_seen and _runs_once(calls[0][0], calls[0][1].node, seen | {around})
    return True
