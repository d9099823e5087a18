"""Whether a script is ordinary enough for the smaller tiers of helpers (codemod/tiers.py).

Each question names what a tier has no answer for; what cannot be followed is not ordinary. That forwards only compute
is asked before (traces.py), and, for the plain tier, that gradients are summed rightly by DDP's reducer (training.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from dp2ddp.codemod.facts.iterations import LOOPS, catches
from dp2ddp.codemod.facts.models import Wrap, WrapKind
from dp2ddp.codemod.facts.models_beside import is_model, models_beside
from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.facts.script import CallSite, Script, Variable, literal
from dp2ddp.codemod.facts.sizes import unlike_ordinary_outputs
from dp2ddp.codemod.facts.training_script import TrainingScript, is_before
from dp2ddp.codemod.facts.uses import Stopper

# By the beginning of a qualified name: what somebody who calls it wants, beside an ordinary training.
BEYOND_PLAIN = dict.fromkeys(("torch.cuda.amp.", "torch.amp.", "torch.autocast"), "mixed precision")
BEYOND_LEAN = {
    **dict.fromkeys(
        ("torch.compile", "torch.jit.", "torch.fx.", "torch.func."), "compiled or functional models"
    ),
    **dict.fromkeys(("threading.", "multiprocessing.", "torch.multiprocessing."), "threads or processes"),
    "concurrent.futures.": "threads or processes",
    "apex.": "mixed precision of a library",
    "torch.utils.checkpoint.": "activations computed again in backward",
    "torch.distributed.": "process groups of its own",
    "torch.cuda.Stream": "streams of its own",
    "signal.": "signal handlers",
}
METHODS_BEYOND_LEAN = {
    **dict.fromkeys(("half", "bfloat16"), "models in half precision"),
    **dict.fromkeys(
        ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"), "hooks"
    ),
    "share_memory_": "memory shared with other processes",
}
# What is asked of buffers: those of ranks > 0 are as old as the last forward (WholeBatchDDP).
BUFFERS = {
    "running_mean",
    "running_var",
    "num_batches_tracked",
    "buffers",
    "named_buffers",
    "reset_running_stats",
}
# Of `net.module`: what asks for no buffer that may be old, and runs no layer. What is saved is saved by rank 0.
OF_MODULE = {"state_dict", "load_state_dict", "parameters", "named_parameters", "train", "eval", "zero_grad"}
PARAMETERS = {"torch.nn.Parameter", "torch.nn.parameter.Parameter"}
# DataParallel looks into these, and torch's pytree does not look into classes that are derived from them.
CONTAINERS = {"builtins.dict", "builtins.list", "builtins.tuple", "collections.OrderedDict"}
LIBRARY_CONTAINERS = {"easydict.EasyDict", "addict.Dict", "munch.Munch", "box.Box"}


def beyond_lean(subject: TrainingScript) -> Iterator[Stopper]:
    """What the lean helpers (templates/lean.py) have no answer for."""
    for wrap in subject.wraps:
        if wrap.kind is not WrapKind.WRAP or not wrap.is_readable or wrap.module is None:
            yield Stopper("the wrap cannot be read", wrap.call.node)
        elif wrap.dim_value != 0:
            yield Stopper("batches lie along another dim than 0", wrap.call.node)
    for call in subject.calls:
        yield from _beyond(BEYOND_LEAN, call)
        if call.method in METHODS_BEYOND_LEAN:
            yield Stopper(METHODS_BEYOND_LEAN[call.method], call.node)
        yield from unlike_ordinary_outputs(call)
        if call.keyword("sparse") is not None:
            yield Stopper("gradients may be sparse", call.node)
        context = call.keyword("multiprocessing_context")
        if context is not None and literal(context.value) not in (None, "fork"):
            yield Stopper("workers import the script, and would join the ranks", call.node)
        if _is_container(subject, call):
            yield Stopper("a dictionary or list of a class of its own goes through the model", call.node)
    yield from _caught(subject)


def draws_beside_models(subject: TrainingScript) -> Iterator[Stopper]:
    """Where the script draws on a device what its models draw there, too: from the first device's stream, in turn."""
    if not subject.model_draws:
        return
    for stopper in (*_past_wrapper(subject), *_other_names(subject), *_copied(subject)):
        yield Stopper(
            f"{stopper.why}, and dropout draws there what it draws on the first device", stopper.node
        )
    for wrap in subject.wraps:
        if _is_of_part(subject.program, wrap):
            yield Stopper(
                "a part of a model is wrapped, and dropout may run in the rest of it", wrap.call.node
            )
    for call in models_beside(subject):
        yield Stopper("a model that is not wrapped may draw random numbers on a device", call.node)
    for call in subject.device_draws:
        if not subject.is_initial(call):
            yield Stopper("both the script and its model may draw random numbers on a device", call.node)


def beyond_plain(subject: TrainingScript) -> Iterator[Stopper]:
    """What the plain helpers (templates/plain.py) have no answer for, and the lean ones have."""
    if len(subject.wraps) > 1:
        yield Stopper("several models are wrapped", subject.wraps[1].call.node)
    for wrap in subject.wraps:
        if any(isinstance(parent, LOOPS) for parent in subject.program.scopes.ancestors(wrap.call.node)):
            yield Stopper("models are wrapped again and again", wrap.call.node)
    yield from draws_beside_models(subject)
    yield from _other_names(subject)
    yield from _past_wrapper(subject)
    for call in subject.calls:
        yield from _beyond(BEYOND_PLAIN, call)
        if call.method == "double":
            yield Stopper("models of another precision", call.node)
        if call.method == "requires_grad_" or call.keyword("requires_grad") is not None:
            yield Stopper("gradients are asked for beside the parameters'", call.node)
        if call.name in PARAMETERS and subject.program.scopes.owner_class(call.node) is None:
            yield Stopper("gradients are asked for beside the parameters'", call.node)
    yield from _copied(subject)
    yield from _fed_by_models(subject)
    yield from _run_copies(subject)
    yield from _frozen_whole(subject)
    for node in subject.attributes:
        if node.attr in BUFFERS:
            yield Stopper("buffers are looked at, which are rank 0's", node)
        sets = node.attr == "requires_grad" and isinstance(node.ctx, ast.Store)
        if sets and not is_before(subject.program, node, subject.wraps):
            yield Stopper("parameters are frozen or unfrozen behind the wrap", node)
    for call in subject.device_draws:
        if not subject.is_initial(call) and not subject.comes_before_wrap(call):
            yield Stopper("the script may draw random numbers on a device", call.node)


def _is_of_part(program: Script, wrap: Wrap) -> bool:
    """`model.features = DataParallel(model.features)`, or in the class of a model."""
    module = wrap.module
    owner = program.scopes.owner_class(wrap.call.node)
    is_own = (
        isinstance(module, ast.Attribute) and isinstance(module.value, ast.Name) and module.value.id == "self"
    )
    of_other = isinstance(module, ast.Attribute) and not is_own
    return of_other or owner is not None and is_model(program, owner)


def _beyond(table: Mapping[str, str], call: CallSite) -> Iterator[Stopper]:
    for start, what in table.items():
        if (call.name or "").startswith(start):
            yield Stopper(what, call.node)


def _past_wrapper(subject: TrainingScript) -> Iterator[Stopper]:
    """`net.module.encode(x)`: it runs whole on every rank."""
    parents = subject.program.scopes.parents
    for node in subject.attributes:
        parent = parents[node]
        if node.attr == "module" and not (isinstance(parent, ast.Attribute) and parent.attr in OF_MODULE):
            yield Stopper("the model is used past its wrapper", node)
    for call in subject.calls:
        if call.name == "builtins.getattr" and literal(call.argument(1)) == "module":
            yield Stopper("the model is used past its wrapper", call.node)


def _other_names(subject: TrainingScript) -> Iterator[Stopper]:
    for wrap in subject.wraps:
        if not _is_only_name(subject.program, wrap):
            yield Stopper("the model has another name beside the wrapped one", wrap.call.node)


def _is_only_name(program: Script, wrap: Wrap) -> bool:
    """`net = DataParallel(net)`, `net = DataParallel(Net().cuda())`: nothing else can run the module."""
    if not wrap.targets or wrap.module is None:
        return False
    if isinstance(wrap.module, ast.Call):
        names = (node for node in _receivers(wrap.module) if isinstance(node, ast.Name))
        return not any(_is_model(program, name, wrap) for name in names)
    variable = program.variable(wrap.module)
    if (
        not isinstance(wrap.module, (ast.Name, ast.Attribute))
        or program.text_of(wrap.module) not in wrap.names
    ):
        return False
    mentions = program.by_word.get(variable[1].rpartition(".")[2], ())
    return not any(
        _is_alias(program, mention) for mention in mentions if program.variable(mention) == variable
    )


def _receivers(call: ast.expr) -> Iterator[ast.expr]:
    """`net` of `net.to(device)`, and of `net.cuda().train()`."""
    inner: ast.expr = call
    while isinstance(inner, (ast.Call, ast.Attribute)):
        inner = inner.func if isinstance(inner, ast.Call) else inner.value
        yield inner


def _is_model(program: Script, name: ast.Name, wrap: Wrap) -> bool:
    """Whether a name holds a value that was made here (and no module or class), and stays beside the wrapped one."""
    return (
        program.scopes.name(name) is None
        and program.scopes.definition(name) is None
        and name.id not in wrap.names
    )


def _is_alias(program: Script, node: ast.expr) -> bool:
    parent = program.scopes.parents[node]
    return isinstance(parent, ast.Assign) and parent.value is node


def _is_state(node: ast.expr | None) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "state_dict"
    )


def _caught(subject: TrainingScript) -> Iterator[Stopper]:
    """Ranks that catch what others do not meet would wait for each other: out of memory, a file that is not there."""
    program, waits = subject.program, {*subject.training.forwards, *subject.training.backwards}
    for node in program.nodes(ast.Try, ast.With):
        assert isinstance(node, (ast.Try, ast.With))
        if not catches(program, node) or not subject.reach.holds(program, node):
            continue
        if isinstance(node, ast.Try) and all(_ends_all_ranks(program, handler) for handler in node.handlers):
            continue
        inner = [within for part in node.body for within in ast.walk(part)]
        calls = [call for call in inner if isinstance(call, ast.Call)]
        if any(call in waits or _is_own(program, call) for call in calls):
            yield Stopper("exceptions of a step are caught", node)
        elif any(_may_load(program, part) for part in inner) and not _awaits_end(program, node):
            yield Stopper("exceptions of loading are caught", node)


def _may_load(program: Script, node: ast.AST) -> bool:
    """Whether it may take a batch, which rank 0 alone loads."""
    if isinstance(node, ast.Call):
        return program.scopes.name(node.func) == "builtins.next"
    if not isinstance(node, (ast.For, ast.AsyncFor)):
        return False
    made = program.scopes.name(node.iter.func) if isinstance(node.iter, ast.Call) else ""
    return made not in ("builtins.range", "builtins.open", "os.listdir", "glob.glob")


def _awaits_end(program: Script, node: ast.Try | ast.With) -> bool:
    """`try: batch = next(batches)` with `except StopIteration`: the end comes to all ranks."""
    types = [handler.type for handler in node.handlers] if isinstance(node, ast.Try) else []
    return bool(types) and all(
        kind is not None and program.scopes.name(kind) == "builtins.StopIteration" for kind in types
    )


def _ends_all_ranks(program: Script, handler: ast.ExceptHandler) -> bool:
    """What all ranks meet (Ctrl-C), or what is raised again behind a word: no rank goes on without the others."""
    if handler.type is not None and program.scopes.name(handler.type) == "builtins.KeyboardInterrupt":
        return True
    last = handler.body[-1]
    calls = [call for part in handler.body for call in ast.walk(part) if isinstance(call, ast.Call)]
    return isinstance(last, ast.Raise) and all(_only_tells(program, call) for call in calls)


def _only_tells(program: Script, call: ast.Call) -> bool:
    """`print(error)`, `log.error(error)`, `pdb.post_mortem()`, `ValueError("...")`."""
    name = program.scopes.name(call.func) or ""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    errors = name.startswith("builtins.") and name.endswith(("Error", "Exception"))
    return (
        errors
        or name.startswith(("builtins.print", "traceback.", "logging.", "pdb.", "sys.exc_info"))
        or (not name and method in ("critical", "error", "exception", "format", "warning"))
    )


def _is_own(program: Script, call: ast.Call) -> bool:
    """Whether it may call a function, class or method of the project."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else None
    return method in program.methods_by_name or program.scopes.definition(call.func) is not None


def _is_container(subject: TrainingScript, call: CallSite) -> bool:
    """Whether a batch or an output may be of a class that torch's pytree takes for one value."""
    definition = subject.program.scopes.definition(call.node.func)
    own = isinstance(definition, ast.ClassDef) and any(
        subject.program.scopes.name(base) in CONTAINERS for base in definition.bases
    )
    if not own and call.name not in LIBRARY_CONTAINERS:
        return False
    around = subject.program.scopes.ancestors(call.node)
    return subject.places.of(call.node) is not ExecutionPlace.MAIN or any(
        parent in subject.training.forwards for parent in around
    )


def _fed_by_models(subject: TrainingScript) -> Iterator[Stopper]:
    """`net(stem(x))`: what enters the wrapped model wants gradients, too."""
    program, made = subject.program, subject.made
    for forward in subject.training.forwards:
        seen: set[Variable] = set()
        inputs: list[ast.AST] = [*forward.args, *forward.keywords]
        while inputs:
            for node in ast.walk(inputs.pop()):
                if isinstance(node, ast.Call) and _is_other_model(subject, node):
                    yield Stopper("what the wrapped model is given may want gradients", node)
                if isinstance(node, ast.Name) and program.variable(node) not in seen:
                    seen.add(program.variable(node))
                    inputs += made.get(program.variable(node), [])


def _copied(subject: TrainingScript) -> Iterator[Stopper]:
    for call in subject.calls:
        if call.name == "copy.deepcopy" and not _is_state(call.argument(0)):
            yield Stopper("a copy may be made of the model", call.node)


def _run_copies(subject: TrainingScript) -> Iterator[Stopper]:
    """`best_net.load_state_dict(net.state_dict())`, which is run: on ranks > 0 its buffers would be old."""
    run = {
        subject.program.variable(call.node.func)
        for call in subject.calls
        if _is_other_model(subject, call.node)
    }
    for call in subject.calls:
        func = call.node.func
        loaded = func.value if isinstance(func, ast.Attribute) and func.attr == "load_state_dict" else None
        if loaded is not None and subject.program.variable(loaded) in run:
            yield Stopper("a copy may be made of the model", call.node)


def _is_other_model(subject: TrainingScript, call: ast.Call) -> bool:
    """Whether a model that is not wrapped is called."""
    if not isinstance(call.func, (ast.Name, ast.Attribute)):
        return False
    variable = subject.program.variable(call.func)
    inner = (
        part
        for value in subject.made.get(variable, ())
        for part in _receivers(value)
        if isinstance(part, ast.Call)
    )
    return variable not in subject.training.names and any(
        _makes_model(subject.program, part) for part in inner
    )


def _makes_model(program: Script, call: ast.Call) -> bool:
    """`nn.Linear(3, 4)`, or of a class that has a forward; what a function returns is not known."""
    definition = program.scopes.definition(call.func)
    if definition is None:
        return (program.scopes.name(call.func) or "").startswith(("torch.nn.", "torchvision.models."))
    methods = definition.body if isinstance(definition, ast.ClassDef) else ()
    return any(isinstance(method, ast.FunctionDef) and method.name == "forward" for method in methods)


def _frozen_whole(subject: TrainingScript) -> Iterator[Stopper]:
    """`for p in net.parameters(): p.requires_grad = False`, and no new layer: DDP wants a parameter that is trained."""
    program, wrapped = (
        subject.program,
        {subject.program.text_of(wrap.module) for wrap in subject.wraps if wrap.module},
    )
    span = program.positions.span
    for loop in program.nodes(ast.For):
        assert isinstance(loop, ast.For)
        asks = loop.iter.func if isinstance(loop.iter, ast.Call) else None
        if not isinstance(asks, ast.Attribute) or asks.attr not in ("parameters", "named_parameters"):
            continue
        model = program.text_of(asks.value)
        freezes = any(
            isinstance(statement, ast.Assign)
            and isinstance(statement.targets[0], ast.Attribute)
            and statement.targets[0].attr == "requires_grad"
            for statement in loop.body
        )
        replaced = any(
            isinstance(node.ctx, ast.Store)
            and program.text_of(node.value) == model
            and span(node).start > span(loop).start
            for node in subject.attributes
        )
        if freezes and not replaced and (model in wrapped or isinstance(asks.value, ast.Name)):
            yield Stopper("the whole model may be frozen", loop)


def trains(program: Script) -> bool:
    """Whether anything makes gradients."""
    return "backward" in program.by_word or any(
        (call.name or "").startswith("torch.autograd.") for call in program.calls
    )
