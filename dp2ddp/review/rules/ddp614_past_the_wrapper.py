"""DDP614: a training pass that goes past the wrapper."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.model.modules import Call
from dp2ddp.codemod.rule import Flags, Untouched
from dp2ddp.review.check_rule import CheckRule, Problem
from dp2ddp.review.ddp_script import DDPScript
from dp2ddp.review.problems import Level

OF_MODULES = {  # methods of every module that compute nothing
    *(
        "parameters",
        "named_parameters",
        "state_dict",
        "load_state_dict",
        "train",
        "eval",
        "to",
        "cuda",
        "cpu",
    ),
    *(
        "zero_grad",
        "apply",
        "modules",
        "named_modules",
        "children",
        "named_children",
        "buffers",
        "named_buffers",
    ),
    *("requires_grad_", "half", "float", "double", "register_forward_hook"),
}


class PastTheWrapper(CheckRule):
    """The model trains past its wrapper: gradients are not summed over the ranks.

    ## What it does
    Finds a forward of `wrapper.module` (or a method of it) whose result is differentiated, in a function that
    never calls the wrapper.

    ## Why
    The wrapper's forward is what prepares the sum. Without it each rank steps with the gradients of its own
    batch, and the ranks' weights drift apart (measured with two ranks: different gradients from the first pass
    on).

    ## Safety
    Found only where the name is certainly the wrapper. Evaluating with `.module` is right, and is not found. Silent
    where the file reduces gradients itself.

    ## References
    https://github.com/k2-fsa/icefall/issues/226.
    """

    code = "DDP614"
    name = "past-the-wrapper"
    level = Level.ERROR

    examples = (
        Flags(
            before="""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net)
                for x, y in loader:
                    loss = criterion(model.module(x), y)
                    loss.backward()
                    optimizer.step()
            """,
            message="not summed",
        ),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                model = DistributedDataParallel(net)
                for x, y in loader:
                    loss = criterion(model(x), y)
                    loss.backward()
                    optimizer.step()
        """),
        Untouched("""
                import torch.distributed as dist
                from torch.nn.parallel import DistributedDataParallel
                dist.init_process_group("nccl")
                import torch
                model = DistributedDataParallel(net)
                for x, y in loader:
                    loss = criterion(model(x), y)
                    loss.backward()
                    optimizer.step()
                    with torch.no_grad():
                        out = model.module(x)
        """),
    )

    def find(self, script: DDPScript) -> Iterator[Problem]:
        if any("grad" in script.file.text_of(argument) for argument in _reduced(script)):
            return
        for call in script.module.calls:
            module = _module_of(call.node.func)
            if (
                module is None
                or script.wrap_behind(module.value) is None
                or script.is_without_gradient(call.node)
            ):
                continue
            function = script.sites.function_of(call.node)
            if _is_differentiated(script, call) and not _calls_wrapper(script, function, module.value):
                yield Problem(
                    call.node,
                    "this pass goes past the wrapper, so its gradients are not summed over the ranks",
                    f"call {script.file.text_of(module.value)}(...); what it should do belongs into its forward",
                )


def _reduced(script: DDPScript) -> Iterator[ast.expr]:
    """What is given to collectives, and to functions that reduce or average something by their names."""
    for call in script.module.calls:
        word = (call.name or call.method or "").rpartition(".")[2]
        if call in script.collectives or re.search("reduce|average|sync", word):
            yield from (call.node.func, *call.node.args)


def _module_of(function: ast.expr) -> ast.Attribute | None:
    """`model.module` of `model.module(x)` and of `model.module.loss(x)`."""
    match function:
        case ast.Attribute(attr="module"):
            return function
        case ast.Attribute(value=ast.Attribute(attr="module") as module, attr=name) if name not in OF_MODULES:
            return module
    return None


def _is_differentiated(script: DDPScript, call: Call) -> bool:
    """Whether `.backward()` is called on what comes out, or on what the next statements make of it."""
    names = set(_targets(script.module.statement(call.node)))
    loop = script.sites.loop_around(call.node) or script.sites.function_of(call.node)
    later = [
        node
        for node in ast.walk(loop)
        if isinstance(node, ast.stmt) and node.lineno >= call.node.lineno and not hasattr(node, "body")
    ]
    for statement in sorted(later, key=lambda node: node.lineno):
        read = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        if read & names:
            if script.trains_in(statement):
                return True
            names |= set(_targets(statement))
    return False


def _targets(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _calls_wrapper(script: DDPScript, function: ast.AST, wrapper: ast.expr) -> bool:
    """Whether the wrapper itself is called, or handed to something that may call it; `net = DDP(net)` makes it."""
    text = script.file.text_of(wrapper)
    wraps = [wrap.node for wrap in script.wraps]
    return any(
        script.file.text_of(part) == text
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and node not in wraps
        for part in (node.func, *node.args, *(keyword.value for keyword in node.keywords))
        if isinstance(part, (ast.Name, ast.Attribute))
    )
