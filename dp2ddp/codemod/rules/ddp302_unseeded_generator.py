"""Seed alike what nobody seeds, and keep the states of all devices' streams.

`np.random.default_rng()` becomes `ask_rank0(np.random.default_rng)`, `random.seed()` `share_streams(random.seed)`;
the same where the seed may be None: an option of the command line, say. `torch.cuda.get_rng_state_all` and
`set_rng_state_all` ask and set the devices of all ranks; so do `get_rng_state` and `set_rng_state` with a device, and
`torch.random.fork_rng`. `torch.cuda.manual_seed_all` under a name of the script's (`from torch.cuda import
manual_seed_all`) becomes `seed_all_devices`.

Without a seed the operating system gives one, another to each rank. A rank has one device; a checkpoint holds the state
of each.

A seed that must be a number elsewhere (`torch.manual_seed(seed)`, `seed + 1`) is one; ranks follow that of
`torch.manual_seed` and `torch.cuda.manual_seed_all` by themselves. A hazard for generators that nobody can seed
(`random.SystemRandom`), and for `torch.seed()` and `generator.seed()`. `get_rng_state()` without a device is the
script's own stream; what a module's methods ask is their replica's: both are left alone.

docs/semantics.md#unseeded, docs/semantics.md#device-streams.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.knowledge.functions import Does, does, what_is
from dp2ddp.codemod.knowledge.methods import MethodDoes, method
from dp2ddp.codemod.looks.mentions import handed_on, mentions, replaced
from dp2ddp.codemod.looks.uses import DEPTH
from dp2ddp.codemod.looks.wrapper import is_in_layer
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import constant
from dp2ddp.codemod.model.scopes import Binds
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, call_by, diff, flags, hand_on, rename

NUMBERS = tuple(f"builtins.{name}" for name in ("int", "hash", "sum", "len", "abs", "round", "ord"))
NOISE = ("/dev/urandom", "/dev/random")
UNSEEN = {Binds.PART, Binds.CONTEXT, Binds.CAUGHT}
HELPERS = {Does.MAKE_STREAM: "ask_rank0", Does.SEED_BY_SYSTEM: "share_streams"}
OF_DEVICES = ("torch.seed", "torch.cuda.seed", "torch.cuda.seed_all")  # they seed streams of devices as well
STATES = {
    "torch.cuda.get_rng_state_all": "get_device_states",
    "torch.cuda.set_rng_state_all": "set_device_states",
}
OF_ONE = {  # and where they name the device
    "torch.cuda.get_rng_state": ("get_device_state", 0),
    "torch.cuda.set_rng_state": ("set_device_state", 1),
}
ALIKE = "all ranks draw what rank 0 draws"
OF_EACH = Reason("device-streams", "a device of each rank")

BY_SYSTEM = Reason(
    "drawn-by-system", "{name} draws from the operating system: nobody can seed it", "use random.Random"
)
FROM_FILE = Reason(
    "drawn-from-file", "this draws from the operating system: nobody can seed it", "use os.urandom(n)"
)
OWN_SEED = Reason("own-seed", "{code}: another seed on each rank", "give it a number: manual_seed")


class UnseededGenerator(Rule):
    examples = (
        diff("""
              import random
              import numpy as np
            - rng = np.random.default_rng()
            - random.seed(args.seed)
            + rng = ask_rank0(np.random.default_rng)
            + share_streams(random.seed, args.seed)
              fixed = np.random.default_rng(7)
        """),
        flags("""
            # random.SystemRandom draws from the operating system
            import random
            dice = random.SystemRandom()
        """),
        Untouched("""
            import random
            import torch
            def set_seed(seed):
                random.seed(seed)
                torch.manual_seed(seed)
                torch.cuda.manual_seed_all(seed)
            state = torch.cuda.get_rng_state()
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        for call in module.calls:
            row = what_is(call.name)
            if why := _refusal(call.name):
                yield Hazard(call.node, why)
            elif call.name == "builtins.open" and constant(call.argument(0, "file")) in NOISE:
                yield Hazard(call.node, FROM_FILE)
            elif call.name is None and method(call.method) is MethodDoes.SEED and call.is_bare:
                yield Hazard(call.node, OWN_SEED.of(code=module.text(call.node)))
            elif row and row.does in HELPERS:
                given = call.argument(row.position, row.keyword)
                if call.may_have_more or given is None or _may_be_none(module, given):
                    yield call_by(call.node, HELPERS[row.does], ALIKE)
        for node, name in handed_on(module, Does.DRAW_BY_SYSTEM, *HELPERS):
            if why := _refusal(name):
                yield Hazard(node, why)
            elif kind := does(name):
                yield hand_on(module, node, HELPERS[kind], ALIKE)
        yield from replaced(module, STATES, OF_EACH)
        yield from _of_devices(module)


def _refusal(name: str | None) -> Reason | None:
    if name in OF_DEVICES:
        return OWN_SEED.of(code=name)
    return BY_SYSTEM.of(name=name) if does(name) is Does.DRAW_BY_SYSTEM else None


def _of_devices(module: Module) -> Iterator[Finding]:
    for call in module.calls:
        helper, place = OF_ONE.get(call.name or "", ("fork_streams", None))
        names_device = place is not None and call.argument(place, "device") is not None
        # of a model: replicas run it on each rank, with its own device's stream
        if (names_device or call.name == "torch.random.fork_rng") and not is_in_layer(module, call.node):
            yield rename(call.node.func, helper, OF_EACH)
    for node, _ in mentions(module, ["torch.cuda.manual_seed_all"]):
        if not (module.call_of(node) and module.text(node).endswith("cuda.manual_seed_all")):
            yield rename(node, "seed_all_devices", OF_EACH)


def _may_be_none(module: Module, node: ast.AST, depth: int = DEPTH) -> bool:
    """Whether a seed may be None, by what is seen of it: constants, what a function is given.

    `torch.manual_seed(seed)` of the same text, anywhere in the program, says that it is a number.
    """
    seeds = (call.node for _, call in module.program.calls if does(call.name) is Does.SEED)
    if ast.unparse(node) in (ast.unparse(seed.args[0]) for seed in seeds if seed.args):
        return False
    match node:
        case ast.Constant(value=value):
            return value is None
        case ast.BinOp() | ast.UnaryOp() | ast.List() | ast.Tuple():
            return False
        case ast.IfExp(body=body, orelse=other):
            return _may_be_none(module, body, depth) or _may_be_none(module, other, depth)
        case ast.Call(func=func):
            return module.name(func) not in NUMBERS
        case ast.Name() if depth:
            given = module.program.flow.given(module, node)
            return _is_unseen(module, node) or any(_may_be_none(*each, depth - 1) for each in given)
    return True


def _is_unseen(module: Module, node: ast.Name) -> bool:
    """Whether a name may get what is not seen: by `with`, by unpacking, as one of `*args` or `**options`."""
    scope = module.scope(node)
    ways = {each.how for each in module.bindings(node)}
    if scope is None or ways & UNSEEN:
        return True
    function = scope.node
    is_init = getattr(function, "name", "") == "__init__"
    called = module.parents[function] if is_init else function
    calls = module.program.calls_of(module, called) if Binds.PARAMETER in ways else ()
    return any(call.may_have_more for _, call in calls)
