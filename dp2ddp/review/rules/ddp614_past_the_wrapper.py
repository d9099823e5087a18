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
            # what a function is handed, is looked at from there
            received = {use for each in wrap.inside for use in script.flow.received(each)}
            for model in wrap.inside - script.flow.spread(*received) - received:
                call = _call_around(script, model)
                if call is None or _judges(script, call):
                    continue
                results, places = list(_results(script, model)), [model]
                if any(isinstance(each, ast.Return) for each in results):
                    places += script.file.sites_of(script.file.function_of(model))
                    results += [each for site in places for each in script.flow.readers(site)]
                is_past = not any(_calls(script, wrap, each) for each in places)
                if is_past and any(map(script.flow.trains_in, results)) and not _reduces(script):
                    yield self.problem(call, name=wrap.name)


def _call_around(script: DDPScript, model: ast.AST) -> ast.Call | None:
    """`net(x)`, `net.loss(x)`, `step(net, x)`."""
    match [each for each in script.module.around(model) if not isinstance(each, ast.keyword)][:2]:
        case [ast.Call() as call, *_]:
            return call
        case [ast.Attribute(attr=method) as function, ast.Call(func=called) as call] if called is function:
            return None if OF_MODULES.fullmatch(method) else call
    return None


def _results(script: DDPScript, model: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> Iterator[ast.stmt]:
    """The statements that read what a model computes here, or in functions of the file that it is handed to."""
    call = _call_around(script, model)
    if call is None or script.flow.is_without_gradient(call):
        return
    received = script.flow.received(model)
    if not received and model not in values_of(call):
        yield from script.flow.readers(call)
    for inner in script.flow.spread(model) if received and model not in seen else ():
        results = list(_results(script, inner, seen | {model}))
        yield from results
        if any(isinstance(each, ast.Return) for each in results):
            yield from script.flow.readers(call)


def _judges(script: DDPScript, call: ast.Call) -> bool:
    """Whether it is given what another wrapper computes: a critic, whose own gradients are not used then."""
    given = {name.id for value in values_of(call) for name in inside(value, ast.Name)}
    runs = (each for each in inside(script.file.turn_of(call), ast.Call) if script.wrap_of(each.func))
    return any(given & stored_names(script.module.statement(each)) for each in runs)


def _calls(script: DDPScript, wrap: Wrap, model: ast.AST) -> bool:
    """Whether the wrapper itself is called in a function, or handed to something that may call it."""
    wraps = [each.call.node for each in script.wraps]
    for mention in {*wrap.mentions, *script.flow.uses(wrap.call.node)}:
        used = next(each for each in script.module.around(mention) if not isinstance(each, ast.keyword))
        is_beside = script.file.function_of(mention) is script.file.function_of(model)
        if is_beside and isinstance(used, ast.Call) and used not in wraps:
            return True
    return False


def _reduces(script: DDPScript) -> bool:
    """Whether gradients are given to collectives, or to functions that reduce or average something by their names."""
    words = ((each, (each.name or each.method).rpartition(".")[2]) for each in script.module.calls)
    calls = (each for each, word in words if REDUCES.search(word) or each in script.collectives)
    given = (part for each in calls for part in (each.node.func, *each.node.args))
    return any("grad" in script.file.text_of(part) for part in given)
