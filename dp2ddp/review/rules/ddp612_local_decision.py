"""Ranks step differently: their rates and weights drift apart.

Finds `step()` and `zero_grad()` of an optimizer or a scheduler, and the clipping of gradients, where one rank alone
comes by. And, in a file that neither reduces nor gathers, what each rank decides by the loss of its own share of the
data, in a loop over a loader with a `DistributedSampler`: `ReduceLROnPlateau.step(loss)`, `if loss > limit: break`, and
`continue` above the backward pass.

Gradients are the same on all ranks still. A rank that steps by another rate, or not at all, has other weights from then
on, and nothing says so. One that leaves a backward pass out sums another step's gradients with the others from then on;
one that leaves the loop makes them wait.

Silent where a loss is handed to a function of another file, which may reduce it; where any name of the file has
`reduce`, `gather`, `metric` or `broadcast` in it, ReduceLROnPlateau itself aside; for an optimizer that one rank alone
uses, for another model; and for a step of one rank in a file that broadcasts, since weights may be sent behind it.

https://github.com/rmchurch/disruptcnn/issues/3, https://github.com/lucidrains/DALLE-pytorch/issues/268.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.model.nodes import stored_names
from dp2ddp.review.check_rule import Call, CheckRule, DDPScript, Found, Loop, corrected, inside, values_of
from dp2ddp.review.ddp_script import KNOWN

LOGS = words("tqdm wandb mlflow loguru rich matplotlib pandas scipy sklearn tensorboardX")
CLIPS = ("clip_grad_norm_", "clip_grad_value_")
ALONE = "one rank alone does this part of the step: rates and weights drift apart"
BY_LOSS = "each rank decides by the loss of its own share: rates and weights drift apart"
LEAVES = "each rank ends, or skips a step, by the loss of its own share: others wait, or sum another step's gradients"
ALIKE = "all_reduce() the loss first, so that all ranks decide alike"


class LocalDecision(CheckRule):
    message = "{what}"
    advice = "{how}"
    examples = (
        *corrected("""
            # drift apart
              from torch.optim.lr_scheduler import ReduceLROnPlateau
              from torch.utils.data import DistributedSampler
              model = DistributedDataParallel(net)
              scheduler = ReduceLROnPlateau(optimizer)
              loader = DataLoader(data, sampler=DistributedSampler(data))
              for epoch in range(10):
                  total = torch.zeros(1)
                  for x, y in loader:
                      total += step(model, x, y).item()
            +     dist.all_reduce(total)
                  scheduler.step(total)
        """),
        *corrected("""
            # one rank alone
              model = DistributedDataParallel(net)
              optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
              scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
              for epoch in range(90):
                  train(model, optimizer)
            -     if dist.get_rank() == 0:
            -         scheduler.step()
            +     scheduler.step()
        """),
    )

    def find(self, script: DDPScript) -> Found:
        if not script.trains_on_ranks:
            return
        for call in script.module.calls:
            is_alone = _is_part_of_a_step(script, call) and script.ranks.at(call.node).are_one
            if is_alone and not script.sends_weights and not _do_others_too(script, call):
                yield self.problem(call.node, what=ALONE, how="let all ranks do it")
        if script.may_reduce:
            return
        for loop in (loop for loader in script.loaders if loader.sampler for loop in loader.loops):
            for node, what in (*_plateaus(script, loop), *_exits(script, loop)):
                yield self.problem(node, what=what, how=ALIKE)


def _is_part_of_a_step(script: DDPScript, call: Call) -> bool:
    """`optimizer.step()`, `scaler.step(optimizer)`, `clip_grad_norm_(model.parameters(), 1)`."""
    if call.method in ("step", "zero_grad") and isinstance(call.node.func, ast.Attribute):
        return any(map(script.is_optimizer, (call.node.func.value, *call.node.args)))
    is_clip = (call.name or "").startswith("torch.nn.utils.") and (call.name or "").endswith(CLIPS)
    return is_clip and script.is_of_wrapped(call.node)


def _do_others_too(script: DDPScript, call: Call) -> bool:
    """Whether the other branch of the condition of one rank makes the same call."""
    condition = script.ranks.at(call.node).condition
    others = script.file.other_branch(condition, call.node) if condition else []
    function = script.file.text_of(call.node.func)
    return any(
        script.file.text_of(each.func) == function for other in others for each in inside(other, ast.Call)
    )


def _plateaus(script: DDPScript, loop: Loop) -> Iterator[tuple[ast.AST, str]]:
    """Where ReduceLROnPlateau is given what a loop adds up, or differentiates."""
    added = {node.target.id for node in inside(loop.node, ast.AugAssign) if isinstance(node.target, ast.Name)}
    for maker in script.file.calls_of("torch.optim.lr_scheduler.ReduceLROnPlateau"):
        for use in script.flow.uses(maker.node):
            match list(script.module.around(use))[:2]:
                case [ast.Attribute(attr="step"), ast.Call(args=[value, *_]) as call]:
                    if _speaks_of(script, value, loop, added | _losses(loop)):
                        yield call, BY_LOSS


def _exits(script: DDPScript, loop: Loop) -> Iterator[tuple[ast.AST, str]]:
    """Where a condition on a loss ends a loop, or the one around it, or leaves out a backward pass."""
    for node in inside(script.file.turn_of(loop.node), ast.If):
        is_within, last = script.file.loop_around(node) is loop.node, node.body[-1]
        skips = isinstance(last, ast.Continue) and any(map(script.flow.trains_in, script.module.behind(node)))
        is_exit = isinstance(last, ast.Break) or is_within and (isinstance(last, ast.Return) or skips)
        is_own = is_within or script.file.loop_around(node) is script.file.loop_around(loop.node)
        if is_exit and is_own and _speaks_of(script, node.test, loop, _losses(loop)):
            yield node, LEAVES


def _losses(loop: Loop) -> set[str]:
    """The names that are differentiated in a loop, and those of what is made of them there."""
    methods = (call.func for call in inside(loop.node, ast.Call) if isinstance(call.func, ast.Attribute))
    names = {name for each in methods if each.attr == "backward" for name in _roots(each.value)}
    nodes = (each for each in inside(loop.node, ast.stmt) if isinstance(each, (ast.Assign, ast.AugAssign)))
    made = [(stored_names(each), _names(each.value)) for each in nodes]
    names &= {name for stored, _ in made for name in stored}  # no scaler, and no number of ranks
    return names.union(*(stored for stored, read in made if len(stored) == 1 and read & names))


def _roots(loss: ast.expr) -> set[str]:
    """`loss` of `loss.backward()`, `(loss / 4).backward()`, `scaler.scale(loss).backward()`; no inputs of a model."""
    match loss:
        case ast.Name(id=name):
            return {name}
        case ast.BinOp(left=left, right=right):
            return _roots(left) | _roots(right)
        case ast.Call(func=ast.Attribute(attr="scale"), args=[scaled]):
            return _roots(scaled)
        case ast.Call(func=ast.Attribute(value=reduced), args=[]):
            return _roots(reduced)
    return set()


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in inside(node, ast.Name)}


def _speaks_of(script: DDPScript, value: ast.expr, loop: Loop, names: set[str]) -> bool:
    """Whether one of these names of a loop's function is in a value, or in what a name in it is set to."""
    function = script.file.function_of(value)
    if script.file.function_of(loop.node) is not function:
        return False
    behind = (each for name in inside(value, ast.Name) for each in script.file.values(name) if each)
    if not any(_names(each) & names for each in (value, *behind)):
        return False
    handed = names | _names(value)
    return not any(
        handed & _names_given(call.node) and _may_reduce(script, call)
        for call in script.module.calls
        if script.file.function_of(call.node) is function
    )


def _names_given(call: ast.Call) -> set[str]:
    return {name for value in values_of(call) for name in _names(value)}


def _may_reduce(script: DDPScript, call: Call) -> bool:
    """Whether a function that a loss is handed to may bring the ranks' losses together, in a file that is not read."""
    function = call.node.func
    methods = script.module.program.methods_named.get(call.method or "", [])
    own = [each for each in (script.file.definition(function), *(each for _, each in methods)) if each]
    if own:
        within = (each for each in script.module.calls if script.file.function_of(each.node) in own)
        return any(each.name and _is_unknown(each.name) for each in within)
    if call.name or not isinstance(function, ast.Attribute):
        return _is_unknown(call.name or "")
    # `comm.mean(loss)`; no `losses.append(loss)`, no `scaler.scale(loss)`
    is_read = not isinstance(script.module.parents[call.node], ast.Expr)
    return is_read and function.attr != "scale" and not _names(function) & _names_given(call.node)


def _is_unknown(name: str) -> bool:
    return name.split(".")[0] not in (*KNOWN, *LOGS)
