"""Ranks step differently: their rates and weights drift apart.

Finds `step()` and `zero_grad()` of an optimizer or a scheduler, the clipping of gradients, and a `break`, `return` or
`continue` that leaves out what trains, where one rank alone comes by. And what each rank decides by numbers of its own
share of the data, in a loop over a loader with a `DistributedSampler`, if these are nowhere reduced nor gathered:
`ReduceLROnPlateau.step(loss)`, `if loss > limit: break`, `continue` above the backward pass.

Gradients are the same on all ranks still. A rank that steps by another rate, or not at all, has other weights from then
on, and nothing says so. One that leaves a backward pass out sums another step's gradients with the others from then on;
one that leaves the loop makes them wait.

Silent where such numbers are handed to a function of another file, which may reduce them, or to anything with
`reduce`, `gather`, `metric`, `broadcast` or the like in its name, ReduceLROnPlateau itself aside; for an optimizer that
one rank alone uses, for another model; and for a step of one rank in a file that broadcasts weights, or what nobody can
read: they may be sent behind it.

https://github.com/rmchurch/disruptcnn/issues/3, https://github.com/lucidrains/DALLE-pytorch/issues/268.
"""

import ast
from itertools import takewhile

from dp2ddp.review.check_rule import Call, CheckRule, DDPScript, Found, corrected, inside
from dp2ddp.review.own_numbers import OwnNumbers

PLATEAU = "torch.optim.lr_scheduler.ReduceLROnPlateau"
CLIPS = ("clip_grad_norm_", "clip_grad_value_")
ALONE = "one rank alone does this part of the step: rates and weights drift apart"
BY_LOSS = "each rank decides by the loss of its own share: rates and weights drift apart"
LEAVES_ALONE = "one rank alone ends, or skips a step: others wait, or sum another step's gradients"
LEAVES = "each rank ends, or skips a step, by the loss of its own share: others wait, or sum another step's gradients"
TELL = "let one rank decide, broadcast() what it decides, and all ranks act on that"
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
            if is_alone and not script.sends_weights and not _do_others_too(script, call.node):
                yield self.problem(call.node, what=ALONE, how="let all ranks do it")
        for leaving in script.module.nodes(ast.Break, ast.Continue, ast.Return):
            if _leaves_alone(script, leaving) and not _do_others_too(script, leaving):
                yield self.problem(leaving, what=LEAVES_ALONE, how=TELL)
        for loop in (loop for loader in script.loaders for loop in loader.shares):
            numbers = OwnNumbers(script, loop)
            if not numbers.are_joined:
                plateaus = (call.node for call in numbers.calls if _is_plateau(script, call))
                yield from (self.problem(each, what=BY_LOSS, how=ALIKE) for each in plateaus)
                exits = (each for each in numbers.conditions if _decides(script, each))
                yield from (self.problem(each, what=LEAVES, how=ALIKE) for each in exits)


def _is_part_of_a_step(script: DDPScript, call: Call) -> bool:
    """`optimizer.step()`, `scaler.step(optimizer)`, `clip_grad_norm_(model.parameters(), 1)`."""
    if call.method in ("step", "zero_grad", "update") and isinstance(call.node.func, ast.Attribute):
        return any(map(script.is_optimizer, (call.node.func.value, *call.node.args)))
    is_clip = (call.name or "").startswith("torch.nn.utils.") and (call.name or "").endswith(CLIPS)
    return is_clip and script.is_of_wrapped(call.node)


def _leaves_alone(script: DDPScript, leaving: ast.AST) -> bool:
    """Whether one rank leaves a loop by itself that all ranks are in."""
    condition, loop = script.ranks.at(leaving).condition, script.file.loop_around(leaving)
    is_inside = condition is not None and loop is script.file.loop_around(condition)
    return is_inside and _leaves_out(script, leaving)


def _do_others_too(script: DDPScript, node: ast.AST) -> bool:
    """Whether the other branch of the condition of one rank does the same."""
    where = script.ranks.at(node)
    others = script.file.other_branch(where.condition, where.place) if where.condition and where.place else []
    does = ast.unparse(getattr(node, "func", node))
    return any(
        ast.unparse(getattr(each, "func", each)) == does
        for other in others
        for each in inside(other, type(node))
    )


def _is_plateau(script: DDPScript, call: Call) -> bool:
    """Whether ReduceLROnPlateau is given something."""
    owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    made = (each for each in script.file.values(owner) if isinstance(each, ast.Call))
    return call.method == "step" and any(script.module.name(each.func) == PLATEAU for each in made)


def _decides(script: DDPScript, condition: ast.If) -> bool:
    """Whether a condition ends a loop that trains, or leaves out a backward pass or a step."""
    last = condition.body[-1]
    if isinstance(last, (ast.Break, ast.Continue, ast.Return)):
        return _leaves_out(script, last)
    within = {each for part in (*condition.body, *condition.orelse) for each in ast.walk(part)}
    return any(call.node in within and _is_part_of_a_step(script, call) for call in script.module.calls)


def _leaves_out(script: DDPScript, leaving: ast.AST) -> bool:
    """Whether a backward pass does not run any more behind `break`, `return` or `continue`."""
    loop = script.file.loop_around(leaving)
    if not isinstance(leaving, ast.Continue):
        return loop is not None and script.flow.trains_in(loop)
    within = takewhile(lambda each: each is not loop, (leaving, *script.module.around(leaving)))
    later = (each for part in within if isinstance(part, ast.stmt) for each in script.module.behind(part))
    return any(map(script.flow.trains_in, later))
