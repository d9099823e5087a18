"""Wrap the model in DistributedDataParallel, on its own GPU.

`nn.DataParallel(net)` becomes `DDP(net, device_ids=[local_rank])`; a model that is moved behind the wrap is moved
before it. Where a model runs twice before one backward pass, `broadcast_buffers=False` keeps its buffers as the
first run left them. Criteria and teachers are wrapped only if they have anything to train.
Where an optimizer has parameters of what is not wrapped, two backward passes follow one forward, or the script does
DataParallel's work by hand, gradients are averaged over the ranks before each step. `data_parallel`, `replicate`,
`scatter`, `parallel_apply` and `gather` get the rank's own GPU for their devices.

DDP takes parameters as they are when it is made: on the device, with `requires_grad` as it is to be. It averages
the gradients of what it wraps, once a forward: ranks would drift apart in the rest.

Comments say where the wrap hangs on an option, where the model is changed behind it, and what a class derived from
DataParallel did by itself. `find_unused_parameters=True` stands where a forward may leave layers out, as far as the
text tells; without it, DDP raises where one does.

torch/nn/parallel/distributed.py; docs/idiomatic.md.
"""

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard, InsertBefore, Replace, SetArgument
from dp2ddp.codemod.idiomatic import models
from dp2ddp.codemod.idiomatic.models import BY_HAND, ModelWrap
from dp2ddp.codemod.idiomatic.new_names import names_cuda, remark, words_of
from dp2ddp.codemod.knowledge.derived import DATA_PARALLEL, WRAPPERS
from dp2ddp.codemod.looks.mentions import is_type_test, mentions
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import last_name
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, diff

OF_DEVICES = re.compile(r"device|cuda|n_?gpu|__name__", re.IGNORECASE)
APART = "ranks that do not wrap it would train apart: wrap it always"
LATE = "DDP does not know parameters that come behind the wrap: move it above, and average_gradients may go"
COPIES = "copies between GPUs: a rank has one; nn.SyncBatchNorm?"
OVERRIDES = "{} of its own no longer run: a rank has the samples of one GPU"
MEAN = "the mean of all ranks' gradients"
OWN_GPU = "parts of DataParallel run on the rank's own GPU"
BARE = "a loss has nothing to train: DDP would refuse it"
BECAUSE = "each rank trains on its own GPU; gradients are averaged over the ranks"
OWN_SHARES = Reason("own-shares", "{name} shares batches out in its own way", "convert it in the exact style")


class Wrapped(Rule):
    nodes = ("Arg", "Attribute", "BaseStatement", "Call", "Name")
    examples = (
        diff("""
              import torch
              import torch.distributed as dist
              from torch import nn
              from torch.nn.parallel import DistributedDataParallel as DDP
            - net = nn.DataParallel(net, device_ids=[0, 1]).cuda()
            - if isinstance(net, nn.DataParallel):
            + net = DDP(net.cuda(), device_ids=[local_rank])
            + if isinstance(net, DDP):
                  print(net.module)
            - out = torch.nn.parallel.data_parallel(net, x, gpus)
            + out = torch.nn.parallel.data_parallel(net, x, [local_rank])
              out.mean().backward()
            + average_gradients(optimizer)
              optimizer.step()
        """),
        Untouched("import torch\nnet = torch.nn.Linear(2, 2)"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        wraps = {
            wrap.call.node.func: wrap for wrap in models.wraps_of(module.program) if wrap.module is module
        }
        for wrap in wraps.values():
            if wrap.model is not None:
                yield from _wrapped(wrap, wrap.model)
            yield from _said(wrap)
        for node, _ in mentions(module, [DATA_PARALLEL]):
            if node not in wraps or wraps[node].model is None:
                because = "the type of a wrapped model" if is_type_test(module, node) else BECAUSE
                yield Replace(node, words_of(module)["DDP"], because)
        for node, name in mentions(module, WRAPPERS):
            if not is_type_test(module, node):
                yield Hazard(node, OWN_SHARES.of(name=name))
        for call in module.calls:
            yield from _by_hand(module, call)


def _wrapped(wrap: ModelWrap, model: ast.expr) -> Iterator[Finding]:
    module, program, words = wrap.module, wrap.module.program, words_of(wrap.module)
    has_cuda, is_plain_class = names_cuda(program), wrap.call.name != DATA_PARALLEL and not wrap.overrides
    moved, made = f"{{model}}{wrap.move if has_cuda else ''}", module.text(wrap.target or model)
    kind = module.text(wrap.call.node.func) if is_plain_class else words["DDP"]
    options = f", device_ids=[{words.index}]" if has_cuda else ""
    if wrap.runs_often:
        options += ", broadcast_buffers=False"
    if models.may_leave_out(program):
        options += ", find_unused_parameters=True"
    if wrap.has_no_parameters:
        yield Replace(wrap.whole, moved, BARE, {"model": model})
        for node in module.by_word.get("module", ()):
            if isinstance(node, ast.Attribute) and last_name(node.value) == last_name(wrap.target) != "":
                yield Replace(node, "{owner}", BARE, {"owner": node.value})
    elif wrap.may_be_frozen and wrap.target is not None:
        value = moved.replace("{model}", module.text(model))
        trained = f"any(each.requires_grad for each in {made}.parameters())"
        if value != made:
            statement = module.statement(wrap.whole)
            yield InsertBefore(statement, f"{made} = {value}", BECAUSE, apart=False)
        yield Replace(wrap.whole, f"{kind}({made}{options}) if {trained} else {made}", BECAUSE)
    else:
        yield Replace(wrap.whole, f"{kind}({moved}{options})", BECAUSE, {"model": model})


def _said(wrap: ModelWrap) -> Iterator[Finding]:
    """Comments on what a wrap hangs on, and on what is done behind it."""
    module = wrap.module
    if wrap.overrides:
        yield remark(module, wrap.call.node, OVERRIDES.format(", ".join(wrap.overrides)))
    if _hangs_on_options(wrap):
        yield remark(module, wrap.call.node, APART)
    for statement in wrap.changes:
        yield remark(module, statement, LATE)


def _hangs_on_options(wrap: ModelWrap) -> bool:
    """Whether it stands under a condition that is not about devices, and that has no other branch with a wrap."""
    module, wraps = wrap.module, {each.call.node for each in models.wraps_of(wrap.module.program)}
    conditions = (each for each in module.around(wrap.call.node) if isinstance(each, (ast.If, ast.IfExp)))
    return any(
        not OF_DEVICES.search(ast.unparse(each.test)) and len(wraps & set(ast.walk(each))) == 1
        for each in conditions
    )


# --- what DDP does not average


def _by_hand(module: Module, call: Call) -> Iterator[Finding]:
    name = call.name or ""
    if name.startswith(("torch.nn.parallel._functions.", "torch.cuda.comm.")):
        yield remark(module, call.node, COPIES)
    elif name in BY_HAND:
        index = words_of(module).index
        devices, is_whole = call.argument(*BY_HAND[name]), name.endswith(".data_parallel")
        code = index if name.endswith(".gather") else f"[{index}]"
        output = call.argument(3, "output_device") if is_whole else None
        if devices is not None:
            yield Replace(devices, code, OWN_GPU)
        elif is_whole:
            yield SetArgument(call.node, "device_ids", code, OWN_GPU)
        if output is not None:
            yield Replace(output, index, OWN_GPU)
    elif (optimizer := _stepped(call)) is not None and models.trains_beside(module.program):
        code = f"average_gradients({module.text(optimizer)})"
        yield InsertBefore(module.statement(call.node), code, MEAN, apart=False)


def _stepped(call: Call) -> ast.expr | None:
    """The optimizer of `optimizer.step()` and of `scaler.step(optimizer)`."""
    owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    given = (owner, *call.node.args[:1]) if call.method == "step" else ()
    words = ((each, last_name(each.value if isinstance(each, ast.Subscript) else each)) for each in given)
    return next((each for each, word in words if "opt" in word.lower()), None)
