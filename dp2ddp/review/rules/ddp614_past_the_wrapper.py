"""The model trains past its wrapper: gradients are not summed over the ranks.

Finds a forward of `wrapper.module`, or of the model by its own name (`model = DistributedDataParallel(net)`, `net(x)`),
whose result is differentiated, in a function that never calls the wrapper; and methods that compute.

The wrapper's forward is what prepares the sum. Without it each rank steps with the gradients of its own batch, and the
ranks' weights drift apart (measured with two ranks: different gradients from the first pass on).

Found only where the name is certainly the model, itself, by another name (`raw = wrapper.module`), or in a function of
the file that gets it. Evaluating with `.module` is right, and is not found. Silent where the file reduces gradients
itself, and for a critic of what another wrapper has computed.

https://github.com/k2-fsa/icefall/issues/226.
"""

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.model.nodes import stored_names
from dp2ddp.review.check_rule import CheckRule, DDPScript, Found, Wrap, corrected, inside, values_of
from dp2ddp.review.made import Made

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
        for wrap in script.wraps:
            for model in script.flow.not_handed(wrap.inside):
                call, passes = _call_around(script, model), list(_passes(script, model, {}))
                places = {script.file.function_of(each) for each in (model, *passes)}
                is_past = passes and not _calls(script, wrap, places) and not _reduces(script)
                if call and is_past and not _judges(script, call):
                    yield self.problem(call, name=wrap.name)


def _call_around(script: DDPScript, model: ast.AST) -> ast.Call | None:
    """`net(x)`, `net.loss(x)`, `step(net, x)`."""
    used = script.file.part_of(model)
    if isinstance(used, ast.Attribute) and not OF_MODULES.fullmatch(used.attr):
        call = script.module.parents[used]
        return call if isinstance(call, ast.Call) and call.func is used else None
    return used if isinstance(used, ast.Call) else None


def _passes(script: DDPScript, model: ast.AST, sites: dict[ast.AST, ast.AST | None]) -> Iterator[ast.Call]:
    """The backward passes of what a model computes here, or in functions of the file that it is handed to."""
    call, received = _call_around(script, model), script.flow.received(model)
    if call is None or script.flow.is_without_gradient(call):
        return
    if not received and model not in values_of(call):
        yield from (each.node for each in Made(script, [call], sites).calls if each.method == "backward")
    if received and (function := script.file.callee(call)) and function not in sites:
        own: dict[ast.AST, ast.AST | None] = {**sites, function: call}
        for each in script.flow.spread(*received).union(received):
            yield from _passes(script, each, own)


def _judges(script: DDPScript, call: ast.Call) -> bool:
    """Whether it is given what another wrapper computes: a critic, whose own gradients are not used then."""
    given = {name.id for value in values_of(call) for name in inside(value, ast.Name)}
    runs = (each for each in inside(script.file.turn_of(call), ast.Call) if script.wrap_of(each.func))
    return any(given & stored_names(script.module.statement(each)) for each in runs)


def _calls(script: DDPScript, wrap: Wrap, functions: set[ast.AST]) -> bool:
    """Whether the wrapper itself is called in one of these functions, or handed to something that may call it."""
    wraps = [each.call.node for each in script.wraps]
    mentions = {*wrap.mentions, *script.flow.uses(wrap.call.node)}
    used = (script.file.part_of(each) for each in mentions if script.file.function_of(each) in functions)
    return any(isinstance(each, ast.Call) and each not in wraps for each in used)


def _reduces(script: DDPScript) -> bool:
    """Whether gradients are given to collectives, or to functions that reduce or average something by their names."""
    words = ((each, (each.name or each.method).rpartition(".")[2]) for each in script.module.calls)
    calls = (each for each, word in words if REDUCES.search(word) or each in script.collectives)
    given = (part for each in calls for part in (each.node.func, *each.node.args))
    return any("grad" in script.file.text_of(part) for part in given)
