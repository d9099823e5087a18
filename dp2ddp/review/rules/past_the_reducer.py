"""What the wrapper does not see."""

import ast
import re
from collections.abc import Iterator

from dp2ddp.codemod.model.nodes import all_from, inside, stored_names, values_of
from dp2ddp.review.check_rule import CheckRule, CheckWarning, DDPScript, Found, corrected
from dp2ddp.review.ddp_script import Wrap
from dp2ddp.review.made import Made
from dp2ddp.review.own_file import literal, unmoved

REDUCES = re.compile(r"reduce|average|sync")
# Methods of every module that compute nothing.
OF_MODULES = re.compile(
    r"(named_)?(parameters|modules|children|buffers)|(load_)?state_dict|train|eval|to|cuda|cpu|zero_grad|apply"
    r"|requires_grad_|half|float|double|register_forward_hook"
)
HAS_PARAMETERS = re.compile(
    r"torch\.nn\.(?:\w+\.)*(?:\w*Linear|Conv\w+|\w+Norm\w*|Embedding\w*|Parameter|LSTM|GRU|PReLU)$"
)


class PastTheWrapper(CheckRule):
    """The model trains past its wrapper: gradients are not summed over the ranks.

    Finds a forward of `wrapper.module`, or of the model by its own name (`model = DistributedDataParallel(net)`,
    `net(x)`), whose result is differentiated, in a function that never calls the wrapper; and methods that compute.

    The wrapper's forward is what prepares the sum. Without it each rank steps with the gradients of its own batch, and
    the ranks' weights drift apart (measured with two ranks: different gradients from the first pass on).

    Found only where the name is certainly the model, itself, by another name (`raw = wrapper.module`, or `raw = net`
    above the wrap), or in a function of the file that gets it. Evaluating with `.module` is right, and is not found.
    Silent where the file reduces gradients itself, and for a critic of what another wrapper has computed.

    https://github.com/k2-fsa/icefall/issues/226.
    """

    code, name = "DDP614", "past-the-wrapper"
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
                    target = script.flow.target(wrap.call.node)
                    yield self.problem(call, name=script.file.text_of(target) if target else "the wrapper")


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
        for each in script.flow.spread(model):
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


class LayersAfterWrap(CheckRule):
    """The model gets layers after it was wrapped, or layers that were frozen are trained.

    Finds `SyncBatchNorm.convert_sync_batchnorm` of a wrapper; `model.module.head = Linear(...)` of a layer that has
    parameters; and `requires_grad = True` for parts of a model behind its wrap, in a function of the file, too, where
    something was frozen before it.

    The wrapper has listed the parameters that are trained, and the buffers, when it was made. It does not know the
    others: their gradients are not summed, and each rank trains its own layer, which may have begun with numbers of its
    own. Where a layer takes the place of another, torch ends the second step, unless it searches for unused parameters.

    Found only where the name is certainly the wrapper, or the model inside, and nothing wraps the model anew.

    https://github.com/NVIDIA/apex/issues/109, https://github.com/NVIDIA/apex/issues/88.
    """

    code, name = "DDP618", "layers-after-wrap"
    message = "the model is wrapped already, and its wrapper will not know the {what}"
    advice = "change the model before wrapping it"
    examples = corrected("""
        # before wrapping
          from torch.nn import SyncBatchNorm
        - model = DistributedDataParallel(net)
        - model = SyncBatchNorm.convert_sync_batchnorm(model)
        + net = SyncBatchNorm.convert_sync_batchnorm(net)
        + model = DistributedDataParallel(net)
    """)

    def find(self, script: DDPScript) -> Found:
        for call in script.module.calls:
            module = call.argument(0, "module")
            if module is None or not (call.name or "").endswith("SyncBatchNorm.convert_sync_batchnorm"):
                continue
            if script.wrap_of(module) or any(wrap.call.node is module for wrap in script.wraps):
                yield self.problem(call.node, what="new layers' buffers")
        for node in script.module.all(ast.Assign) if script.wraps else ():
            match node.targets:  # `net.fc = Linear(2, 2)`, `net.blocks[0] = Block()`
                case [ast.Attribute(value=owner) | ast.Subscript(value=owner)]:
                    if _makes_parameters(script, node.value) and script.wrap_of_part(owner):
                        yield self.problem(node, what="new layer's parameters")
        told = [*_told_to_train(script)] if script.wraps else []
        frozen = [owner for owner, trains in told if trains is False]
        for owner in (owner for owner, trains in told if trains is True):
            wrap = script.wrap_of_part(owner)
            function = script.file.function_of
            before = (each for each in frozen if wrap and each.lineno < wrap.call.node.lineno)
            if wrap and any(function(each) is function(wrap.call.node) for each in before):
                yield self.problem(owner, what="parameters that were frozen")


def _told_to_train(script: DDPScript) -> Iterator[tuple[ast.expr, object]]:
    """What `requires_grad` is set of, and to what; by `freeze(net)`, too, where a function of the file does it."""
    told: list[tuple[ast.expr, ast.expr]] = []
    for node in script.module.nodes(ast.Call, ast.Assign):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="requires_grad_")):
                told.append((owner, next(iter(values_of(node)), ast.Constant(True))))
            case ast.Assign(targets=[ast.Attribute(value=owner, attr="requires_grad")], value=value):
                told.append((owner, value))

    def by_calls(told: tuple[ast.expr, ast.expr]) -> Iterator[tuple[ast.expr, ast.expr]]:
        wholes = {
            script.file.variable(each) for each in script.flow.wholes(told[0]) if isinstance(each, ast.Name)
        }
        function = script.file.function_of(told[0])
        for call in script.module.all(ast.Call) if any(owner is function for owner, _ in wholes) else ():
            given = dict(script.file.given(call))
            told_here = given.get(script.file.variable(told[1]), told[1])
            yield from ((given[each], told_here) for each in wholes & given.keys())

    return ((owner, literal(value)) for owner, value in all_from(told, by_calls))


def _makes_parameters(script: DDPScript, value: ast.AST) -> bool:
    """`Linear(...)`, `Sequential(ReLU(), Linear(...)).cuda()`, a layer of the file that makes such."""
    calls = (each for body in script.flow.runs(value) for each in inside(body, ast.Call))
    return isinstance(unmoved(value), ast.Call) and any(
        HAS_PARAMETERS.match(script.module.name(each.func) or "") for each in calls
    )


class ForwardOutsideNoSync(CheckWarning):
    """`no_sync` stands around the backward pass only, and does nothing there.

    Finds `with model.no_sync():`, and the same in `... if ... else ...`, whose block differentiates and calls no model,
    where the forward came before it.

    The wrapper decides in its forward whether the next backward sums (measured: the gradients of two ranks are the same
    afterwards). So gradients travel in every step of an accumulation, which is what no_sync was to save.

    Found where the block holds nothing but the backward pass.

    https://github.com/pytorch/PiPPy/issues/1133, https://github.com/KellerJordan/modded-nanogpt/pull/31.
    """

    code, name = "DDP625", "forward-outside-no-sync"
    message = "does nothing: the forward, which came before, has decided to sum the gradients"
    advice = "put the forward pass into the block as well"
    examples = corrected("""
        # forward
          model = DistributedDataParallel(net)
          for x, y in loader:
        -     loss = criterion(model(x), y)
              with model.no_sync():
        +         loss = criterion(model(x), y)
                  loss.backward()
    """)

    def find(self, script: DDPScript) -> Found:
        for block in filter(_only_differentiates, script.module.all(ast.With)):
            for item in block.items:
                wrapper = _unsynced(item)
                if wrapper is not None and _ran_before(script, block, wrapper):
                    yield self.problem(item.context_expr)


def _unsynced(item: ast.withitem) -> ast.expr | None:
    """`model` of `with model.no_sync():`, and of `with model.no_sync() if accumulates else nullcontext():`."""
    called = (each.func for each in inside(item.context_expr, ast.Call))
    methods = (each for each in called if isinstance(each, ast.Attribute) and each.attr == "no_sync")
    return next((each.value for each in methods), None)


def _only_differentiates(block: ast.With) -> bool:
    calls = (call for statement in block.body for call in inside(statement, ast.Call))
    words = {getattr(call.func, "attr", "") for call in calls}
    return "backward" in words and words <= {"backward", "scale"}


def _ran_before(script: DDPScript, block: ast.With, wrapper: ast.expr) -> bool:
    """Whether the wrapper is called further up, in the same turn of a loop, and not under no_sync itself."""
    text, calls = script.file.text_of(wrapper), inside(script.file.turn_of(block), ast.Call)
    before = (each for each in calls if each.lineno < block.lineno and script.file.text_of(each.func) == text)
    around = ([item for each in script.file.around(call, ast.With) for item in each.items] for call in before)
    return not all(any(map(_unsynced, items)) for items in around)
