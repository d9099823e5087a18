"""DDP711: parts of DataParallel that are used by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from dp2ddp.codemod.edits import Hazard, InsertBefore, Replace, SetArgument
from dp2ddp.codemod.idiomatic.looking import calls_in, class_named, last_word, methods_of
from dp2ddp.codemod.idiomatic.models import WRAP, has_unwrapped, runs_often, wraps_of
from dp2ddp.codemod.idiomatic.new_names import IdiomaticRule, remark, words_of
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.rule import Change, Finding, Flags, Rewrites, Untouched

BECAUSE = "parts of DataParallel run on the rank's own GPU"
# Where each takes devices: a list of them, or one.
LISTS = {"data_parallel": 2, "replicate": 1, "scatter": 1, "scatter_kwargs": 2, "parallel_apply": 3}
OUTPUTS = {"data_parallel": 3, "gather": 1}
LIST_WORDS, OUTPUT_WORDS = ("device_ids", "devices", "target_gpus"), ("output_device", "target_device")
PARTS = {f"torch.nn.parallel.{name}": name for name in (*LISTS, "gather")}


class ByHand(IdiomaticRule):
    """Average gradients by hand where the script does DataParallel's work by hand.

    ## What it does
    `data_parallel`, `replicate`, `scatter`, `parallel_apply` and `gather` get the rank's own GPU for their list of
    devices, and so do classes that override parts of DataParallel. Before each step of an optimizer the gradients are
    averaged over the ranks.

    ## Why
    DDP wraps a module. Here there is none that it could wrap, or its forward is not the module's.

    ## Safety
    Ranks must begin with the same weights: with one seed on all, or loaded. What shares out rows itself (an own
    `scatter`), or copies tensors between GPUs, cannot go on with one: a hazard.

    ## References
    torch/nn/parallel/data_parallel.py; docs/idiomatic.md.
    """

    code = "DDP711"
    name = "idiomatic-by-hand"
    nodes = ("Arg", "BaseStatement")
    examples = (
        Rewrites(
            before="""
                import torch
                import torch.distributed as dist
                out = torch.nn.parallel.data_parallel(net, x, gpus)
                out.mean().backward()
                optimizer.step()
            """,
            after="""
                import torch
                import torch.distributed as dist
                out = torch.nn.parallel.data_parallel(net, x, [local_rank])
                out.mean().backward()
                average_gradients(optimizer)
                optimizer.step()
            """,
        ),
        Flags("from torch.cuda import comm\ncopies = comm.broadcast(x, [0, 1])", "between GPUs"),
        Untouched("out = net(x)\noptimizer.step()"),
    )

    def find(self, module: Module) -> Iterator[Finding]:
        for call, name in _parts_in(module):
            if name is None:
                yield from _own_class(module, call)
            else:
                yield from _own_gpu(module, call, name)
        for call in module.calls if averages(module.program) else ():
            optimizer = _optimizer(call)
            if call.method == "step" and optimizer is not None and optimizer not in call.node.args[1:]:
                code = f"average_gradients({module.text(optimizer)})"
                before = InsertBefore(
                    module.statement(call.node), code, "the mean of all ranks' gradients", False
                )
                yield Change(before, ("average_gradients", "dist"))


def _optimizer(call: Call) -> ast.expr | None:
    """That of `optimizer.step()` and of `scaler.step(optimizer)`."""
    owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    return next((each for each in (owner, *call.node.args) if "opt" in last_word(_inner(each)).lower()), None)


def _inner(node: ast.expr | None) -> ast.expr | None:
    return node.value if isinstance(node, ast.Subscript) else node


@lru_cache(maxsize=8)
def averages(program: Program) -> bool:
    """Whether something is trained whose gradients DDP does not average, or not all of them."""
    if any(_parts_in(module) for module in program.modules) or has_unwrapped(program):
        return True
    late = any(call.method == "add_param_group" for _, call in calls_in(program))
    return late or any(runs_often(wrap) for wrap in wraps_of(program)) and _goes_back_twice(program)


def _goes_back_twice(program: Program) -> bool:
    """Whether a function has two forwards of one model and then two backward passes: DDP averages the first alone."""
    passes: dict[object, list[int]] = {}
    for module, call in calls_in(program):
        if call.method == "backward":
            passes.setdefault((module, module.function_around(call.node)), []).append(call.node.lineno)
    return any(b - a < 4 for lines in passes.values() for a, b in pairwise(sorted(lines)))


def overrides(class_: ast.ClassDef) -> set[str]:
    """The parts of DataParallel that a class has in its own way."""
    return methods_of(class_) & {"scatter", "gather", "replicate", "parallel_apply"}


def patches_parts(program: Program) -> bool:
    """Whether a function replaces parts of a wrapped model: `wrapped.replicate = ...`."""
    nodes = (node for module in program.modules for node in module.all(ast.Attribute))
    return any(
        isinstance(node.ctx, ast.Store) and node.attr in ("replicate", "parallel_apply") for node in nodes
    )


def _own_class_of(module: Module, call: Call) -> ast.ClassDef | None:
    """The class that derives from DataParallel and overrides its parts, of which a call makes an object."""
    home = class_named(module.program, call.name)
    if home is None or not any(home[0].name(base) == WRAP for base in home[1].bases):
        return None
    return home[1] if overrides(home[1]) else None


@lru_cache(maxsize=1000)
def _parts_in(module: Module) -> tuple[tuple[Call, str | None], ...]:
    """Calls of parts, by their names; None for what makes an object that goes its own way with them."""
    return tuple((call, name) for call in module.calls for name in _part(module, call))


def _part(module: Module, call: Call) -> Iterator[str | None]:
    if call.name in PARTS:
        yield PARTS[call.name]
    elif call.name == WRAP and patches_parts(module.program) or _own_class_of(module, call):
        yield None
    elif (call.name or "").startswith(("torch.nn.parallel._functions.", "torch.cuda.comm.")):
        yield "comm"


def _own_gpu(module: Module, call: Call, name: str) -> Iterator[Finding]:
    if name == "comm":
        if any(isinstance(each, ast.ClassDef) for each in module.around(call.node)):
            yield remark(module, call.node, "copies between GPUs: a rank has one; nn.SyncBatchNorm?")
        else:
            yield Hazard(call.node, "tensors are copied between GPUs by hand", "take the exact style")
        return
    words = words_of(module)
    needed = () if words.binds("local_rank") else ("torch",)
    for places, keywords, code in (
        (LISTS, LIST_WORDS, f"[{words.index}]"),
        (OUTPUTS, OUTPUT_WORDS, words.index),
    ):
        given = [call.argument(places[name], word) for word in keywords] if name in places else []
        argument = next((each for each in given if each is not None), None)
        if argument is not None:
            yield Change(Replace(argument, code, BECAUSE), needed)
        elif name == "data_parallel" and places is LISTS:
            yield Change(SetArgument(call.node, "device_ids", code, BECAUSE), needed)


def _own_class(module: Module, call: Call) -> Iterator[Finding]:
    class_ = _own_class_of(module, call)
    if class_ and methods_of(class_) & {"scatter", "__init__"}:
        text = "a class shares out rows in its own way, for which DDP has nothing"
        yield Hazard(call.node, text, "wrap the model in nn.DataParallel itself, or take the exact style")
        return
    words, given = words_of(module), call.argument(1, "device_ids")
    code = f"[{words.index}]"
    needed = () if words.binds("local_rank") else ("torch",)
    yield remark(module, call.node, "on the rank's own GPU; gradients are averaged before each step")
    if given is not None:
        yield Change(Replace(given, code, BECAUSE), needed)
    else:
        yield Change(SetArgument(call.node, "device_ids", code, BECAUSE), needed)
