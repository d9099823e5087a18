"""Wrap the model for the ranks.

`nn.DataParallel` becomes a wrapper of the helpers wherever it is named: called, derived from, asked for, handed on.
The text of the whole program decides which: `WholeBatchDDP` where it shows one model, trained by one forward and one
backward a step; else others, and `convert --json` says why (`trains-more`, `forward-fills`). Over a library's subclass
(torch_geometric's, mmcv's), installed or not, `rebase` puts one when the script runs. `AnyDataParallel`, under all of
them, stands where the script asks for the type.

Rank r computes chunk r of each batch, and all ranks get the outputs of the whole batch.

Names are followed from file to file; what is found by a computed name is a hazard (DDP902), and so is a wrap of what
is certainly no model, but the result of a loss or a layer: on a CPU that goes unnoticed, on two devices DataParallel
itself fails. A note stands where autocast around the model has a dtype, of which DataParallel's threads never heard.

docs/training.md#the-wrapper, docs/semantics.md#batch-size, docs/semantics.md#replicas,
docs/semantics.md#autocast-dtype.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from dp2ddp.codemod.edits import Finding, Hazard, Note
from dp2ddp.codemod.knowledge.derived import CLASSES, DATA_PARALLEL
from dp2ddp.codemod.looks.filling import fillings
from dp2ddp.codemod.looks.forwards import forwards_of
from dp2ddp.codemod.looks.mentions import is_type_test, mentions
from dp2ddp.codemod.looks.replicated import has_own_classes, is_own_class
from dp2ddp.codemod.looks.wrapper import IN_TURNS, Choice, only_prints, parts_take_turns, wrapper
from dp2ddp.codemod.looks.wraps import Wrap, find_wraps
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, diff, flags, rebase, rename

_CHUNKS = "each rank computes its chunk, the loss sees the whole batch"
_SUMS = f"{_CHUNKS}, gradients are summed over ranks"
_MEANINGS = {  # helper -> what takes DataParallel's place
    "WholeBatchDDP": f"{_CHUNKS}, DDP's reducer sums gradients",
    "WholeBatchInParts": "each rank computes its chunk, large outputs stay there, gradients are summed over ranks",
    "AnyDataParallel": "a class of your own is one, too",
}
ONE_DEVICE = Reason("one-device", "one device: DataParallel is a plain call there, so it stays as it is")
ONE_OF_SEVERAL = Reason(
    "one-device-of-several",
    "this DataParallel has one device, beside others with more",
    "take it away here if its `module.` is not needed, then convert again",
)
AUTOCASTS = ("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast")
OWN_DTYPE = Reason(
    "autocast-dtype",
    "DataParallel's replicas computed in float16 here, whatever dtype said; ranks compute in what it says",
)
NO_MODEL = Reason("no-model", "what is wrapped here is not a model but the result of one", "wrap the model")


class DataParallelWrap(Rule):
    examples = (
        diff("""
              import torch
              net = torch.nn.Linear(2, 2)
            - net = torch.nn.DataParallel(net)
            + net = WholeBatchDDP(net)
              optimizer = torch.optim.SGD(net.parameters(), 0.1)
              for x, y in loader:
                  optimizer.zero_grad()
                  torch.nn.functional.mse_loss(net(x), y).backward()
                  optimizer.step()
        """),
        flags("""
            # not a model
            import torch
            loss = torch.nn.functional.smooth_l1_loss(q, target)
            loss = torch.nn.DataParallel(loss, device_ids=[0, 1])
        """),
        Untouched("""
            import torch
            net = torch.nn.parallel.DistributedDataParallel(net)
        """),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        yield from (Note(each, OWN_DTYPE) for each in _autocasts_around(module))
        wraps = {wrap.node: wrap for wrap in find_wraps(module.program)}
        for node, name in mentions(module, CLASSES):
            is_test = is_type_test(module, node)
            if node in wraps and wraps[node].is_single:
                are_all = all(wrap.is_single for wrap in wraps.values())
                yield Note(node, ONE_DEVICE) if are_all else Hazard(node, ONE_OF_SEVERAL)
                continue
            if node in wraps and _is_result(wraps[node]):
                yield Hazard(node, NO_MODEL)
            choice = _choice(module, node, name, is_test)
            helper = choice.helper
            meaning = _of_turns(module.program) if choice in IN_TURNS else _MEANINGS.get(helper, _SUMS)
            because = Reason(choice.reason, f"{name.rpartition('.')[2]} -> {helper}: {meaning}")
            if name == DATA_PARALLEL:
                yield rename(node, helper, because)
            elif not is_test:
                yield rebase(node, helper, because)


def _autocasts_around(module: Module) -> Iterator[ast.AST]:
    """Where autocast has a dtype of its own outside of forwards, and a model runs on several devices."""
    if all(wrap.is_single for wrap in find_wraps(module.program)):
        return
    for call in (each for each in module.calls if each.name in AUTOCASTS):
        dtype, around = call.argument(1, "dtype"), module.function_around(call.node)
        is_other = dtype is not None and module.name(dtype) != "torch.float16"
        if is_other and (module, around) not in forwards_of(module.program).surely_running:
            yield call.node


def _of_turns(program: Program) -> str:
    """With the first place that a person may look at: what does not fill anything need not cost the time."""
    home, node = next((each for each in fillings(program) if not only_prints(*each)), fillings(program)[0])
    place = f"`{ast.unparse(node)[:60]}` ({Path(home.source.name).name}:{getattr(node, 'lineno', 1)})"
    return f"{_SUMS}; {place} may fill what outlives a forward, so every rank runs all replicas, one after another"


def _choice(module: Module, node: ast.expr, name: str, is_test: bool) -> Choice:
    if is_test and has_own_classes(module.program):
        return Choice.TYPE_REQUESTED
    fills = parts_take_turns(module.program)
    if name != DATA_PARALLEL:
        return Choice.OF_LIBRARY_FILLS if fills else Choice.OF_LIBRARY
    if is_own_class(module, node):
        return Choice.OWN_PARTS_FILL if fills else Choice.OWN_PARTS
    return wrapper(module.program)


def _is_result(wrap: Wrap) -> bool:
    """Whether a tensor is wrapped in any case: every other value of its name is the result of a loss or layer."""
    given, module = wrap.call.argument(0, "module") if wrap.call else None, wrap.module
    made: list[ast.AST | None] = [given]
    if wrap.call and isinstance(given, ast.Name):
        made = [binding.node for binding in module.bindings(given) if binding.node is not wrap.call.node]
    return bool(made) and all(isinstance(each, ast.Call) and _is_call_of_loss(module, each) for each in made)


def _is_call_of_loss(module: Module, call: ast.Call) -> bool:
    """`criterion(x, y)` where criterion is a module made in this script, or `F.cross_entropy(x, y)`."""
    maker = module.value(call.func)
    if isinstance(maker, ast.Call):
        return (module.name(maker.func) or "").startswith("torch.nn.")
    return (module.name(call.func) or "").startswith("torch.nn.functional.")
