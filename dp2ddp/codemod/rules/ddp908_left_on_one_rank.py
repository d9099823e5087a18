"""Say what a replica would leave on its own rank.

A hazard where a backward of a torch.autograd.Function, or a hook on gradients, prints or fills a list, a counter,
an object; where a forward reads a variable of a file that is learned; where a forward asks for the number of its
device, in a program whose forwards fill something; and where a function is asked for its `cache_info()`.

DataParallel's replicas are threads of one process: each finds there what the others have left, and the script all
of it. Where a forward fills what outlives it, each rank runs all replicas (DDP201), on one device. Backward runs on
all ranks at once.

What a backward keeps in its context needs nothing. A hook on a parameter sees the sum over all ranks, as under
DataParallel.

docs/semantics.md#replicas.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.looks.filling import fillings_in_backward
from dp2ddp.codemod.looks.forwards import Forwards, forwards_of
from dp2ddp.codemod.looks.wrapper import parts_take_turns
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import inside, last_name
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, flags

IN_BACKWARD = Reason(
    "filled-in-backward",
    "`{code}` in a backward: each rank would have that of its own rows",
    "do it behind backward(), or in a hook on a parameter",
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
LEARNED = Reason(
    "learned-outside",
    "a forward reads `{code}`, which is learned: each rank would have the gradient of its own rows",
    "make it a parameter of the model",
)


class LeftOnOneRank(Rule):
    nodes = ("Attribute", "Call", "Name")
    examples = (
        flags("""
            # `x.get_device()` tells replicas apart
            # `print(len(gradient))` in a backward
            import torch
            class Scale(torch.autograd.Function):
                @staticmethod
                def backward(ctx, gradient):
                    print(len(gradient))
                    return gradient
            class Net(torch.nn.Module):
                def forward(self, x):
                    self.states[x.get_device()].append(x.detach())
                    return Scale.apply(x)
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
        forwards = forwards_of(module.program)
        filled = (node for home, node in fillings_in_backward(module.program) if home is module)
        for node in (each for each in filled if not _is_set_to_constant(module, each)):
            yield Hazard(node, IN_BACKWARD.of(code=ast.unparse(node)))
        for call in (each for each in module.calls if each.method == "cache_info"):
            yield Hazard(call.node, COUNTED.of(code=ast.unparse(call.node)))
        takes_turns = parts_take_turns(module.program)
        for node in _in_forwards(module, forwards):
            if takes_turns and _tells_replicas_apart(module, node):
                yield Hazard(node, NUMBERED.of(code=ast.unparse(node)))
            if isinstance(node, ast.Name) and _is_learned_outside(module, node):
                yield Hazard(node, LEARNED.of(code=node.id))


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


def _is_learned_outside(module: Module, node: ast.Name) -> bool:
    """Whether a variable of a file is a tensor that wants a gradient."""
    if not isinstance(node.ctx, ast.Load) or module.scope(node) is not module.top:
        return False
    return any(_makes_learned(*each) for each in module.program.flow.origins(module, node))


def _makes_learned(module: Module, made: ast.AST) -> bool:
    if not isinstance(made, ast.Call):
        return False
    call = module.call(made)
    if call.method == "requires_grad_":
        return not call.node.args and not call.node.keywords
    is_parameter = (call.name or "").endswith(".Parameter")
    requested = call.argument(None, "requires_grad")
    return (
        is_parameter if requested is None else isinstance(requested, ast.Constant) and requested.value is True
    )


def _in_forwards(module: Module, forwards: Forwards) -> Iterator[ast.AST]:
    """What of a file runs in forwards for sure."""
    functions = (each for home, each in forwards.surely_running if home is module)
    return (node for each in functions for node in forwards.nodes_of(each))


def _is_set_to_constant(module: Module, node: ast.AST) -> bool:
    match module.parents[node]:
        case ast.Assign(value=ast.Constant()):
            return True
    return False
