"""DDP702: the wrap."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import DropArgument, Hazard, Replace, SetArgument
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.rule import Flags, Rewrites, Untouched
from dp2ddp.codemod.small.mentions import is_type_test, mentions
from dp2ddp.codemod.small.rule import Change, Finding, Rule
from dp2ddp.codemod.small_idiomatic.models import WRAP, Wrap, last_word, move_of, runs_often, wraps_of
from dp2ddp.codemod.small_idiomatic.words import names_cuda, remark, words_of

BECAUSE = "each rank trains on its own GPU; gradients are averaged over the ranks"
PARTS = {"scatter", "gather", "replicate", "parallel_apply"}
BY_HAND = tuple(f"torch.nn.parallel.{name}" for name in (*sorted(PARTS), "data_parallel", "scatter_kwargs"))


class Wrapped(Rule):
    """Wrap the model in DistributedDataParallel, on its own GPU.

    ## What it does
    `nn.DataParallel(net)` becomes `DDP(net, device_ids=[local_rank])`; a model that is moved behind the wrap is moved
    before it. Where a model runs twice before one backward pass, `broadcast_buffers=False` keeps its buffers as the
    first run left them. Types that are asked for (`isinstance(net, nn.DataParallel)`) are DDP's.

    ## Why
    DDP takes parameters as they are when it is made: on the device, with `requires_grad` as it is to be.

    ## Safety
    What changes parameters behind the wrap (`net.apply(init)`) runs on each rank by itself: a comment says so. Parts of
    DataParallel that are called or overridden by hand have no counterpart: a hazard.

    ## References
    torch/nn/parallel/distributed.py; docs/idiomatic.md.
    """

    code = "DDP702"
    name = "idiomatic-wrap"
    nodes = ("Arg", "Attribute", "Name")
    examples = (
        Rewrites(
            before="""
                import torch
                from torch import nn
                from torch.nn.parallel import DistributedDataParallel as DDP
                net = nn.DataParallel(net, device_ids=[0, 1]).cuda()
                if isinstance(net, nn.DataParallel):
                    print(net.module)
            """,
            after="""
                import torch
                from torch import nn
                from torch.nn.parallel import DistributedDataParallel as DDP
                net = DDP(net.cuda(), device_ids=[local_rank])
                if isinstance(net, DDP):
                    print(net.module)
            """,
        ),
        Flags("import torch\nout = torch.nn.parallel.parallel_apply(replicas, inputs)", "by hand"),
        Untouched("import torch\nnet = torch.nn.Linear(2, 2)"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        called = {wrap.call.node.func: wrap for wrap in wraps_of(module.program) if wrap.module is module}
        for node, _ in mentions(module, [WRAP]):
            if wrap := called.get(node):
                yield from _wrapped(wrap)
            elif _overrides(module, node):
                yield _by_hand(node)
            else:
                because = "the type of a wrapped model" if is_type_test(module, node) else BECAUSE
                yield Change(Replace(node, words_of(module)["DDP"], because), ("DDP",))
        for node, _ in mentions(module, BY_HAND):
            yield _by_hand(node)
        yield from _changed_behind(module)


def _by_hand(node: ast.AST) -> Hazard:
    return Hazard(
        node,
        "parts of DataParallel are used by hand, for which DDP has nothing",
        "wrap the model as a whole; or take the exact style",
    )


def _overrides(module: Module, node: ast.AST) -> bool:
    parent = module.parents[node]
    if not isinstance(parent, ast.ClassDef):
        return False
    return bool(PARTS & {each.name for each in parent.body if isinstance(each, ast.FunctionDef)})


def _wrapped(wrap: Wrap) -> Iterator[Finding]:
    module, call, model = wrap.module, wrap.call.node, wrap.model
    words, has_cuda = words_of(module), names_cuda(module.program)
    needed = ("DDP", *(("torch",) if has_cuda and not words.binds("local_rank") else ()))
    move = move_of(wrap) if has_cuda and model is not None else ""
    options = [f"device_ids=[{words.index}]"] * has_cuda
    if runs_often(wrap):
        options.append("broadcast_buffers=False")
    if wrap.chain is not None and model is not None and has_cuda:
        code = f"{words['DDP']}({{model}}{move}, {', '.join(options)})"
        yield Change(Replace(wrap.chain, code, BECAUSE, {"model": model}), needed)
        return
    yield Change(Replace(call.func, words["DDP"], BECAUSE), needed)
    if move and model is not None:
        why = "on its device before it is wrapped"
        yield Change(Replace(model, f"{{model}}{move}", why, {"model": model}))
    dropped = [each for each in call.keywords if each.arg in ("device_ids", "output_device", "dim")]
    for given in (*call.args[1:], *dropped):
        yield Change(DropArgument(given, call, "torchrun starts one process for each GPU"))
    for option in options:
        name, _, code = option.partition("=")
        yield Change(SetArgument(call, name, code, BECAUSE))


def _changed_behind(module: Module) -> Iterator[Finding]:
    for wrap in wraps_of(module.program):
        name = last_word(wrap.target)
        for call in module.calls if wrap.module is module and name else ():
            owner = call.node.func
            is_apply = isinstance(owner, ast.Attribute) and owner.attr == "apply"
            if is_apply and last_word(owner.value) == name and call.node.lineno > wrap.call.node.lineno:  # type: ignore[attr-defined]
                text = "changed behind the wrap: alike on all ranks only if they have one seed; move it above the wrap"
                yield remark(module.statement(call.node), text)
