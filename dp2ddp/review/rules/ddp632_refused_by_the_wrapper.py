"""The wrapper of a converted script refuses this when it runs.

Finds, behind `WholeBatchDDP`: a backward hook on the model, parameters that are frozen, two forwards or two backwards
in a step, second derivatives, a copy of the model, or the model saved as a whole.

torch's reducer does not see these, or sees them too late, so the wrapper ends the run with an error. `convert` takes it
for scripts without them; an edit may have brought one.

Found where the wrapper is certainly meant: in the flow behind the wrap, and in functions of the file that are called
with it.

docs/training.md#the-wrapper, https://github.com/pytorch/pytorch/issues/47260,
https://github.com/pytorch/pytorch/issues/105723.
"""

import ast
from collections.abc import Iterator

from dp2ddp.review.check_rule import Call, CheckRule, DDPScript, Found, Wrap, inside, literal, right, wrong

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
        for node, reason in _Wrapped(script, wraps).refused() if wraps else ():
            yield self.problem(node, reason=reason)


class _Wrapped:
    """A script, and where its wrapper is certainly meant."""

    def __init__(self, script: DDPScript, wraps: list[Wrap]) -> None:
        self.script, self.module, self.file = script, script.module, script.file
        self.mentions = {use for wrap in wraps for use in wrap.mentions}

    def refused(self) -> Iterator[tuple[ast.AST, str]]:
        """The places, and what the wrapper says."""
        for call in self.module.calls:
            if reason := self._refused_call(call):
                yield call.node, reason
        told = self.script.told_to_train
        if all(value is False for _, value in told):  # none may be trained again
            yield from ((owner, FROZEN) for owner, _ in told if self._is_part(owner))

    def _refused_call(self, call: Call) -> str | None:
        is_saved = call.name in COPIES or self.script.helper_calls.get(call) == "save_on_rank0"
        if is_saved and call.node.args and self._holds_whole(call.node.args[0]):
            return WHOLE
        if call.method in HOOKS and self._is_part(getattr(call.node.func, "value", None)):
            return HOOKED
        if call.method != "backward" or not (runs := self._runs_before(call)):
            return None
        if literal(call.argument(None, "create_graph")) is True:
            return SECOND
        return TWICE if self._is_second(call, runs) else None

    def _runs_before(self, call: Call) -> list[ast.Call]:
        """The forwards with gradients in the statements above a call, in its block."""
        statement = self.module.statement(call.node)
        before = (*self.file.block_before(statement), statement)
        runs = (node for each in before for node in inside(each, ast.Call) if node.func in self.mentions)
        return [node for node in runs if not self.script.flow.is_without_gradient(node)]

    def _is_second(self, call: Call, runs: list[ast.Call]) -> bool:
        """Whether a backward above keeps the graph of the last forward, or one statement uses two forwards."""
        last = max(each.lineno for each in runs)
        is_kept = any(
            other.method == "backward"
            and literal(other.argument(None, "retain_graph")) is True
            and last <= other.node.lineno < call.node.lineno
            and self.file.loop_around(other.node) is self.file.loop_around(call.node)
            for other in self.module.calls
        )
        statements = [self.module.statement(each) for each in runs]
        double = (each for each in statements if isinstance(each, ast.Assign) and statements.count(each) > 1)
        attributes = ([part.attr for part in inside(each, ast.Attribute)] for each in double)
        return is_kept or any(not any(each.startswith("detach") for each in names) for names in attributes)

    def _is_part(self, node: ast.AST | None) -> bool:
        """Whether it is the model, or a part of it."""
        return not self.mentions.isdisjoint(self.script.flow.wholes(node))

    def _holds_whole(self, thing: ast.AST) -> bool:
        """`model`, `{"model": model}`."""
        things = thing.values if isinstance(thing, ast.Dict) else [thing]
        return not self.mentions.isdisjoint(things)
