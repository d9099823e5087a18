"""Say what a replica would leave on its own rank.

A hazard where a backward of a torch.autograd.Function, or a hook on gradients, prints or fills a list, a counter,
an object; where a forward reads a variable of a file that is learned, or compares the device of a tensor with one
that has a number; where, in a program whose forwards fill something, one asks for the number of its device, has a
gradient retained, or may fill it in a checkpoint; where a function is asked for its `cache_info()`; and for draws in
such a backward or hook (shake-shake), or in a function under `functools.lru_cache`, whose memory each rank has for
itself.

DataParallel's replicas are threads of one process: each finds there what the others have left, and the script all
of it. Where a forward fills what outlives it, each rank runs all replicas (DDP201), on one device. Backward runs on
all ranks at once. Each device draws from a stream of its own in backward, too; a rank has its device's stream only
while its replica runs forward.

What a backward keeps in its context, and what is set to the same constant by all, needs nothing. A hook on a
parameter sees the sum over all ranks, as under DataParallel.

docs/semantics.md#replicas, docs/semantics.md#device-streams.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.methods import MethodDoes, method
from dp2ddp.codemod.looks.devices import compared_device, devices_of
from dp2ddp.codemod.looks.filling import fillings, fillings_in_backward
from dp2ddp.codemod.looks.forwards import forwards_of
from dp2ddp.codemod.looks.wrapper import takes_turns
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import FUNCTIONS, constant, inside, last_name
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, flags

IN_BACKWARD = Reason(
    "filled-in-backward",
    "`{code}` in a backward: each rank would have that of its own rows",
    "do it behind backward(), or in a hook on a parameter",
)
IN_CHECKPOINT = Reason(
    "filled-in-checkpoint",
    "`{code}` may be part of a checkpoint: in backward each rank runs that again for its own rows alone",
    "fill it outside of the checkpoint",
)
COUNTED = Reason(
    "cache-counted",
    "`{code}` counts calls, of which each rank may make its own in forwards",
    "count in an object of the script: every rank has that of all",
)
NUMBERED = Reason(
    "device-number-in-turns",
    "`{code}` tells replicas apart, but every rank runs all of them on its own device, as forwards fill what outlives "
    "them",
    "let forwards fill nothing, or do without the number",
)
RETAINED = Reason(
    "gradient-retained-in-turns",
    "`{code}` in a forward: each rank would have the gradient that comes to its own replica alone",
    "give the tensor back as an output, and retain its gradient there",
)
LEARNED = Reason(
    "learned-outside",
    "a forward reads `{code}`, which is learned: each rank would have the gradient of its own rows",
    "make it a parameter of the model",
)
DRAWN = Reason(
    "draw-in-backward",
    "{name}() is drawn in a backward, where each device has a stream of its own",
    "draw it in the forward, and keep it with ctx.save_for_backward",
)
KEPT = Reason(
    "draw-kept",
    "{name}() is drawn once, and kept by functools: a rank would draw and keep its own",
    "draw it in __init__, as a buffer of the module",
)
COMPARED = Reason(
    "device-compared",
    "`{code}` tells the first replica from the others: each rank's device is its own here",
    "do it outside of the forward",
)
CACHES = ("functools.lru_cache", "functools.cache")


class LeftOnOneRank(Rule):
    examples = (
        flags("""
            # `x.retain_grad()` in a forward
            # `x.get_device()` tells replicas apart
            # `print(len(gradient))` in a backward
            # uniform_() is drawn in a backward
            import torch
            class Scale(torch.autograd.Function):
                @staticmethod
                def backward(ctx, gradient):
                    print(len(gradient))
                    return gradient * torch.empty(1).uniform_()
            class Net(torch.nn.Module):
                def forward(self, x):
                    x.retain_grad()
                    self.states[x.get_device()].append(x)
                    return Scale.apply(x)
            net = torch.nn.DataParallel(Net())
        """),
        flags("""
            # `seen.append` may be part of a checkpoint
            import torch
            from torch.utils.checkpoint import checkpoint
            seen, rows = [], []
            class Block(torch.nn.Module):
                def forward(self, x):
                    seen.append(len(x))
                    return x
            class Net(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.block = Block()
                def forward(self, x):
                    rows.append(len(x))
                    return checkpoint(self.block, x, use_reentrant=False)
            net = torch.nn.DataParallel(Net())
        """),
        Untouched("""
            import torch
            norms, net = [], torch.nn.DataParallel(Net())
            for p in net.parameters():
                p.register_hook(lambda gradient: norms.append(gradient.norm()))
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        forwards, program = forwards_of(module.program), module.program
        for home, node in fillings_in_backward(program):
            around = home.parents[node]
            is_set_to_constant = isinstance(around, ast.Assign) and isinstance(around.value, ast.Constant)
            if home is module and not is_set_to_constant:
                yield Hazard(node, IN_BACKWARD.of(code=ast.unparse(node)))
        for home, node in fillings(program) if takes_turns(program) else ():
            if home is module and _may_be_checkpointed(module, node):
                yield Hazard(node, IN_CHECKPOINT.of(code=ast.unparse(node)))
        functions = (each for home, each in forwards.surely_running if home is module)
        for node in dict.fromkeys(node for each in functions for node in forwards.nodes_of(each)):
            for what, why in _in_forward(module, node):
                yield Hazard(what, why.of(code=ast.unparse(what)))
        parts = (part for home, part in forwards.in_backward if home is module)
        in_backward = {node for part in parts for node in ast.walk(part)}
        for call in module.calls:
            if call.method == "cache_info":
                yield Hazard(call.node, COUNTED.of(code=ast.unparse(call.node)))
            elif _draws(call) and (call.node in in_backward or _is_cached(module, call)):
                why = DRAWN if call.node in in_backward else KEPT
                yield Hazard(call.node, why.of(name=call.name or f".{call.method}"))


def _may_be_checkpointed(module: Module, node: ast.AST) -> bool:
    """Whether forwards call a checkpoint, but not in the function around, which is then outside of it."""
    running, own = forwards_of(module.program).running, module.function_around(node)
    around = [
        {*home.around(call.node)}
        for home, call in module.program.calls
        if (call.name or "").startswith("torch.utils.checkpoint.checkpoint")
        if home.function_around(call.node) in running
    ]
    return bool(around) and not any(own in each for each in around)


def _in_forward(module: Module, node: ast.AST) -> Iterator[tuple[ast.AST, Reason]]:
    """What a forward does for sure, and would leave on its own rank."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and module.scope(node) is module.top:
        if any(_makes_learned(*each) for each in module.program.flow.origins(module, node)):
            yield node, LEARNED
    elif compared_device(module, node, devices_of(module.program)):
        yield node, COMPARED
    elif takes_turns(module.program):
        if _tells_replicas_apart(module, node):
            yield node, NUMBERED
        elif isinstance(node, ast.Call) and module.call(node).method == "retain_grad":
            yield node, RETAINED


def _tells_replicas_apart(module: Module, node: ast.AST) -> bool:
    """`x.get_device()`, `x.device.index`, but where a tensor is put there; `states[x.device]`, but for a cache."""
    match node:
        case ast.Subscript(value=table, slice=ast.Attribute(attr="device")):
            tests = inside(module.function_around(node) or module.tree, ast.Compare)
            return not any(ast.dump(table) in map(ast.dump, each.comparators) for each in tests)
    return _is_number(module, node) and not _says_where(module, module.parents[node])


def _is_number(module: Module, node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="index", value=ast.Attribute(attr="device")):
            return True
        case ast.Call(func=func):
            return last_name(func) == "get_device" or module.name(func) == "torch.cuda.current_device"
    return False


def _says_where(module: Module, around: ast.AST) -> bool:
    """Whether what is around the number puts something on that device, or compares two devices."""
    match around:
        case ast.keyword(arg="device") | ast.Call(func=ast.Attribute(attr="cuda" | "to")):
            return True
        case ast.Call(func=func):
            return (module.name(func) or "").startswith("torch.")
        case ast.Compare(left=left, comparators=others):
            return all(_is_number(module, each) for each in (left, *others))
    return False


def _makes_learned(module: Module, made: ast.AST) -> bool:
    """Whether a tensor is made that wants a gradient."""
    if not isinstance(made, ast.Call):
        return False
    call = module.call(made)
    if call.method == "requires_grad_":
        return call.is_bare
    requested = call.argument(None, "requires_grad")
    return constant(requested) is True or requested is None and (call.name or "").endswith(".Parameter")


def _draws(call: Call) -> bool:
    return does(call.name) is Does.DRAW or call.name is None and method(call.method) is MethodDoes.DRAW


def _is_cached(module: Module, call: Call) -> bool:
    around = (each for each in module.around(call.node) if isinstance(each, FUNCTIONS))
    decorators = (decorator for each in around for decorator in getattr(each, "decorator_list", ()))
    return any(
        module.name(each.func if isinstance(each, ast.Call) else each) in CACHES for each in decorators
    )
