"""The model trains past its wrapper: gradients are not summed over the ranks.

Finds a forward of `wrapper.module`, or of the model by its own name (`model = DistributedDataParallel(net)`, `net(x)`),
whose result is differentiated, in a function that never calls the wrapper; and methods that compute.

The wrapper's forward is what prepares the sum. Without it each rank steps with the gradients of its own batch, and the
ranks' weights drift apart (measured with two ranks: different gradients from the first pass on).

Found only where the name is certainly the wrapper. Evaluating with `.module` is right, and is not found. Silent where
the file reduces gradients itself, and for a critic of what another wrapper has computed.

https://github.com/k2-fsa/icefall/issues/226.
"""

import ast
import re

from dp2ddp.codemod.model.nodes import stored_names
from dp2ddp.review.check_rule import Call, CheckRule, DDPScript, Found, corrected, inside, values_of

REDUCES = re.compile(r"reduce|average|sync")
# Methods of every module that compute nothing.
OF_MODULES = re.compile(
    r"(named_)?(parameters|modules|children|buffers)|(load_)?state_dict|train|eval|to|cuda|cpu|zero_grad|apply"
    r"|requires_grad_|half|float|double|register_forward_hook"
)


class PastTheWrapper(CheckRule):
    message = "this pass goes past the wrapper, so its gradients are not summed over the ranks"
    advice = "call {name}(...); what it should do belongs into its forward"
    examples = corrected("""
        # not summed
          model = DistributedDataParallel(net)
          for x, y in loader:
        -     loss = criterion(model.module(x), y)
        +     loss = criterion(model(x), y)
              loss.backward()
    """)

    def find(self, script: DDPScript) -> Found:
        for call in script.module.calls if script.wraps else ():
            wrapper = _wrapper_past(script, call)
            if wrapper is None or script.flow.is_without_gradient(call.node) or _judges(script, call):
                continue
            trains = any(map(script.flow.trains_in, script.flow.readers(call.node)))
            if trains and not _calls(script, call, wrapper) and not _reduces(script):
                yield self.problem(call.node, name=script.file.text_of(wrapper))


def _wrapper_past(script: DDPScript, call: Call) -> ast.expr | None:
    """`model` of `model.module(x)`, of `model.module.loss(x)`, and of `net(x)` behind `model = ...(net)`."""
    function = call.node.func
    computes = isinstance(function, ast.Attribute) and not OF_MODULES.fullmatch(function.attr)
    for inner in (function, function.value) if computes else (function,):  # type: ignore[attr-defined]
        if wrap := script.wrap_around(inner):
            match inner, script.module.parents[wrap.call.node]:
                case (ast.Attribute(value=wrapper, attr="module"), _) | (_, ast.Assign(targets=[wrapper])):
                    return wrapper
    return None


def _judges(script: DDPScript, call: Call) -> bool:
    """Whether it is given what another wrapper computes: a critic, whose own gradients are not used then."""
    given = {name.id for value in values_of(call.node) for name in inside(value, ast.Name)}
    runs = (each for each in inside(script.file.turn_of(call.node), ast.Call) if script.wrap_of(each.func))
    return any(given & stored_names(script.module.statement(each)) for each in runs)


def _calls(script: DDPScript, call: Call, wrapper: ast.expr) -> bool:
    """Whether the wrapper itself is called, or handed to something that may call it; `net = DDP(net)` makes it."""
    function, wraps = script.file.function_of(call.node), [wrap.call.node for wrap in script.wraps]
    for mention in script.file.alike(wrapper):
        used = next(each for each in script.module.around(mention) if not isinstance(each, ast.keyword))
        if isinstance(used, ast.Call) and used not in wraps and function in script.module.around(mention):
            return True
    return False


def _reduces(script: DDPScript) -> bool:
    """Whether gradients are given to collectives, or to functions that reduce or average something by their names."""
    words = ((each, (each.name or each.method).rpartition(".")[2]) for each in script.module.calls)
    calls = (each for each, word in words if REDUCES.search(word) or each in script.collectives)
    given = (part for each in calls for part in (each.node.func, *each.node.args))
    return any("grad" in script.file.text_of(part) for part in given)
