"""The model trains past its wrapper: gradients are not summed over the ranks.

Finds a forward of `wrapper.module` (or a method of it) whose result is differentiated, in a function that never calls
the wrapper.

The wrapper's forward is what prepares the sum. Without it each rank steps with the gradients of its own batch, and the
ranks' weights drift apart (measured with two ranks: different gradients from the first pass on).

Found only where the name is certainly the wrapper. Evaluating with `.module` is right, and is not found. Silent where
the file reduces gradients itself.

https://github.com/k2-fsa/icefall/issues/226.
"""

import ast
import re

from dp2ddp.codemod.model.nodes import stored_names
from dp2ddp.review.check_rule import Call, CheckRule, DDPScript, Found, corrected, inside

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
        for call in script.module.calls:
            wrapper = _wrapper_of(call.node.func)
            if wrapper is None or not script.wrap_of(wrapper) or script.flow.is_without_gradient(call.node):
                continue
            trains = _is_differentiated(script, call)
            if trains and not _calls(script, call, wrapper) and not _reduces(script):
                yield self.problem(call.node, name=script.file.text_of(wrapper))


def _wrapper_of(function: ast.expr) -> ast.expr | None:
    """`model` of `model.module(x)` and of `model.module.loss(x)`."""
    match function:
        case ast.Attribute(value=wrapper, attr="module"):
            return wrapper
        case ast.Attribute(value=ast.Attribute(value=wrapper, attr="module"), attr=name):
            return None if OF_MODULES.fullmatch(name) else wrapper
    return None


def _is_differentiated(script: DDPScript, call: Call) -> bool:
    """Whether `.backward()` is called on what comes out, or on what the next statements make of it."""
    names = stored_names(script.module.statement(call.node))
    turn = inside(script.file.turn_of(call.node), ast.stmt)
    later = (each for each in turn if not hasattr(each, "body") and each.lineno >= call.node.lineno)
    for statement in sorted(later, key=lambda each: each.lineno):
        if any(node.id in names for node in inside(statement, ast.Name)):
            if script.flow.trains_in(statement):
                return True
            names |= stored_names(statement)
    return False


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
