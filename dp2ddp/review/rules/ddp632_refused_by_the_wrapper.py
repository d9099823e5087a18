"""The wrapper of a converted script refuses this when it runs.

Finds, behind `WholeBatchDDP`: a backward hook on the model (`wandb.watch` sets some), parameters that are frozen, two
forwards or two backwards in a step, second derivatives, a copy of the model, or the model saved as a whole.

torch's reducer does not see these, or sees them too late, so the wrapper ends the run with an error. `convert` takes it
for scripts without them; an edit may have brought one.

Found where the wrapper is certainly meant: in the flow behind the wrap, and in functions of the file that are called
with it.

docs/training.md#the-wrapper, https://github.com/pytorch/pytorch/issues/47260,
https://github.com/pytorch/pytorch/issues/105723.
"""

import ast
from collections.abc import Iterator

from dp2ddp.codemod.model.nodes import last_name
from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, literal, right, wrong
from dp2ddp.review.made import Made

# What templates/ddp.py says.
WHOLE = "the model is copied, or saved as a whole"
FROZEN = "other parameters are trained than at the wrap"
HOOKED = "a parameter or a layer has a backward hook"
TWICE = "a step has two forwards, or two backwards"
SECOND = "gradients of gradients are wanted"

COPIES = ("copy.copy", "copy.deepcopy", "pickle.dump", "pickle.dumps", "torch.save")
HOOKS = ("register_backward_hook", "register_full_backward_hook", "register_hook")
CONVERTED = """\
import torch
from ddp_helpers import WholeBatchDDP, WholeBatchParallel, init_distributed, save_on_rank0
init_distributed()
"""


class RefusedByTheWrapper(CheckRule):
    start = CONVERTED
    message = "WholeBatchDDP refuses this at run time: {reason}"
    advice = "convert anew with --import, and take WholeBatchParallel"
    examples = (
        wrong("""
            # two backwards
            model = WholeBatchDDP(net)
            for x, y in loader:
                loss, other = criterion(model(x), y)
                loss.backward(retain_graph=True)
                other.backward()
        """),
        wrong("""
            # a parameter or a layer has a backward hook
            import wandb
            model = WholeBatchDDP(net)
            wandb.watch(model)
            for x, y in loader:
                criterion(model(x), y).backward()
        """),
        right("""
            model = WholeBatchDDP(net)
            for x, y in loader:
                loss = criterion(model(x), y)
                loss.backward()
                with torch.no_grad():
                    again = model(x)
            save_on_rank0({"model": model.state_dict()}, "model.pt")
        """),
    )

    def find(self, script: DDPScript) -> Found:
        wraps = [wrap for wrap in script.whole_batch_wraps if wrap.helper == "WholeBatchDDP"]
        models = {each for wrap in wraps for each in wrap.mentions}
        for node, reason in (*_misused(script, models), *_run_twice(script, models)) if models else ():
            yield self.problem(node, reason=reason)


def _misused(script: DDPScript, models: set[ast.AST]) -> Iterator[tuple[ast.AST, str]]:
    """Copies, hooks, and parts that are frozen."""
    for call in script.module.calls:
        first, owner = call.argument(0), getattr(call.node.func, "value", None)
        is_saved = call.name in COPIES or script.helper_calls.get(call) == "save_on_rank0"
        if is_saved and not models.isdisjoint(first.values if isinstance(first, ast.Dict) else [first]):
            yield call.node, WHOLE
        name = last_name(call.node.func)
        hooked = first if name == "watch" else owner if name in HOOKS else None
        if hooked is not None and not models.isdisjoint(script.flow.wholes(hooked)):
            yield call.node, HOOKED
    told = script.told_to_train
    parts = (owner for owner, _ in told if not models.isdisjoint(script.flow.wholes(owner)))
    yield from ((each, FROZEN) for each in parts if all(value is False for _, value in told))


def _run_twice(script: DDPScript, models: set[ast.AST]) -> Iterator[tuple[ast.AST, str]]:
    """Backward passes that keep the graph for another one, and forwards of one statement that are differentiated."""
    runs = [each.node for each in script.module.calls if each.node.func in models]
    runs = [each for each in runs if not script.flow.is_without_gradient(each)]
    statements = [script.module.statement(each) for each in runs]
    for run, statement in zip(runs, statements, strict=True):
        passes = [each for each in Made(script, [run]).calls if each.method == "backward"]
        for each in passes:
            if literal(each.argument(None, "create_graph")) is True:
                yield each.node, SECOND
            if literal(each.argument(None, "retain_graph")) is True and len(passes) > 1:
                yield each.node, TWICE
        if passes and isinstance(statement, ast.Assign) and statements.count(statement) > 1:
            yield statement, TWICE
