"""Wrap the model in DistributedDataParallel, on the rank's own GPU.

`nn.DataParallel(net)` becomes `DDP(net, device_ids=[local_rank])`; a model that is moved behind the wrap is moved
before it. Where a model runs twice before one backward pass, `broadcast_buffers=False` keeps its buffers as the
first run left them. A loss and a teacher, by their names, are wrapped only if they have anything to train.
Where an optimizer has parameters of what is not wrapped, two backward passes follow one forward, or the script does
DataParallel's work by hand, gradients are averaged over the ranks before each step. `data_parallel`, `replicate`,
`scatter`, `parallel_apply` and `gather` get the rank's own GPU for their devices. `"cuda:0"` becomes `"cuda"`, and
`.cuda(gpu)` becomes `.cuda()`; `torch.load(path)` gets a `map_location`, from rank 0's GPU to the rank's own.

DDP takes parameters as they are when it is made: on the device, with `requires_grad` as it is to be. It averages
the gradients of what it wraps, once a forward: ranks would drift apart in the rest. By its number, every rank would
take the first GPU.

Comments say where the wrap hangs on an option, what a class derived from DataParallel did by itself, and where another
GPU than the model's is named: it may be model parallelism.
`find_unused_parameters=True` stands where a forward may leave layers out, as far as the text tells; without it, DDP
raises where one does.

torch/nn/parallel/distributed.py; docs/idiomatic.md.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from dp2ddp.codemod.edits import Edit, Finding, Hazard, InsertBefore, Replace, SetArgument
from dp2ddp.codemod.idiomatic.looking import Made, trains, words_in
from dp2ddp.codemod.idiomatic.new_names import remark, words_of
from dp2ddp.codemod.knowledge.derived import DATA_PARALLEL, WRAPPERS
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.looks.devices import BECAUSE as OWN_DEVICE
from dp2ddp.codemod.looks.mentions import is_type_test, mentions
from dp2ddp.codemod.looks.uses import base_in_library
from dp2ddp.codemod.looks.wrapper import sets_part_of_wrapped
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import defaults, functions_of, inside, last_name, places
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.reasons import Reason
from dp2ddp.codemod.rule import Rule, Untouched, diff
from dp2ddp.codemod.rules.ddp102_device_index import by_number

# The parts of DataParallel as functions, and where each takes devices: a list of them; `gather` one.
BY_HAND = {
    "torch.nn.parallel.data_parallel": (2, "device_ids"),
    "torch.nn.parallel.replicate": (1, "devices"),
    "torch.nn.parallel.scatter": (1, "target_gpus"),
    "torch.nn.parallel.scatter_kwargs": (2, "target_gpus"),
    "torch.nn.parallel.parallel_apply": (3, "devices"),
    "torch.nn.parallel.gather": (1, "target_device"),
}
PARTS = {"scatter", "gather", "replicate", "parallel_apply", "forward"}
MODELS = ("module", "model", "net")
MOVES = ("cuda", "to")
SPLITS = ("torch.utils.data.random_split", "sklearn.model_selection.train_test_split")
OF_DEVICES = re.compile(r"device|cuda|n_?gpu|__name__", re.IGNORECASE)
MAY_BE_FROZEN = re.compile(r"loss|crit|teacher|percep|vgg|target|_t$|frozen|lpips", re.IGNORECASE)
APART = "ranks that do not wrap it would train apart: wrap it always"
COPIES = "copies between GPUs: a rank has one; nn.SyncBatchNorm?"
OVERRIDES = "{} of its own no longer run: a rank has the samples of one GPU"
MEAN = "the mean of all ranks' gradients"
MAPPED = "what lay on rank 0's GPU comes to the rank's own"
OTHER_GPU = "another GPU than the model's: a rank has one"
OWN_GPU = "parts of DataParallel run on the rank's own GPU"
BECAUSE = "each rank trains on its own GPU; gradients are averaged over the ranks"
OWN_SHARES = Reason("own-shares", "{name} shares batches out in its own way", "convert it in the exact style")


class Wrapped(Rule):
    examples = (
        diff("""
              import torch
              import torch.distributed as dist
              from torch import nn
              from torch.nn.parallel import DistributedDataParallel as DDP
            - weights = torch.load("net.pt", map_location="cuda:0")
            - net = nn.DataParallel(net, device_ids=[0, 1]).cuda()
            - if isinstance(net, nn.DataParallel):
            + weights = torch.load("net.pt", map_location="cuda")
            + net = DDP(net.cuda(), device_ids=[local_rank])
            + if isinstance(net, DDP):
                  print(net.module)
            - out = torch.nn.parallel.data_parallel(net, x, gpus)
            + out = torch.nn.parallel.data_parallel(net, x, [local_rank])
              out.mean().backward()
            + average_gradients(optimizer)
              optimizer.step()
        """),
        Untouched("import torch\nnet = torch.nn.Linear(2, 2)"),
    )

    def look(self, module: Module) -> Iterator[Finding]:
        wraps = {wrap.call.node.func: wrap for wrap in wraps_of(module.program) if wrap.module is module}
        for wrap in wraps.values():
            if wrap.model is not None:
                yield from _wrapped(wrap, wrap.model)
            if wrap.overrides:
                yield remark(module, wrap.call.node, OVERRIDES.format(", ".join(wrap.overrides)))
            if _hangs_on_options(wrap):
                yield remark(module, wrap.call.node, APART)
        for node, _ in mentions(module, [DATA_PARALLEL]):
            if node not in wraps or wraps[node].model is None:
                because = "the type of a wrapped model" if is_type_test(module, node) else BECAUSE
                yield Replace(node, words_of(module)["DDP"], because)
        for node, name in mentions(module, WRAPPERS):
            if not is_type_test(module, node):
                yield Hazard(node, OWN_SHARES.of(name=name))
        for call in module.calls:
            yield from _by_hand(module, call)
        yield from _devices(module)


class ModelWrap(Made):
    """A call of DataParallel, or of a class that derives from it."""

    @property
    def _methods(self) -> dict[str, ast.FunctionDef]:
        """What its class defines, if that is the program's own."""
        _, class_ = self.module.program.definition(self.call.name) or (None, None)
        return {each.name: each for each in functions_of(class_)} if isinstance(class_, ast.ClassDef) else {}

    @property
    def overrides(self) -> list[str]:
        """The parts that its class has in a way of its own."""
        return sorted(self._methods.keys() & PARTS)

    @property
    def model(self) -> ast.expr | None:
        init = self._methods.get("__init__")
        names = [each.arg for each in places(init)[1:]] if init else ["module"]
        place = next((place for place, name in enumerate(names) if name in MODELS), len(names))
        return self.call.argument(place, "module")

    @property
    def whole(self) -> ast.expr:
        """With `.cuda()` or `.to(device)` behind it: `DataParallel(net).cuda()`."""
        method = self.module.parents[self.call.node]
        call = self.module.parents[method]
        moves = isinstance(method, ast.Attribute) and method.attr in MOVES and isinstance(call, ast.Call)
        return call if moves else self.call.node  # type: ignore[return-value]

    @property
    def target(self) -> ast.expr | None:
        """The variable that holds the wrapped model."""
        parent = self.module.parents[self.whole]
        return parent.targets[0] if isinstance(parent, ast.Assign) else None

    @property
    def move(self) -> str:
        """What moves the model to its device at the wrap or behind it; empty where it is there before."""
        module, wrap = self.module, self.call.node
        if self.whole is not wrap:
            return module.text(self.whole).removeprefix(module.text(wrap)).strip()
        word, function = last_name(self.model), module.function_around(wrap)
        above = (
            each.node for each in module.calls if each.method in MOVES and each.node.lineno <= wrap.lineno
        )
        here = (each for each in above if module.function_around(each) is function)
        within = {*inside(wrap, ast.Call)}
        is_moved = any(each in within or word in words_in(module.statement(each)) for each in here)
        return "" if is_moved else ".cuda()"

    @property
    def runs_often(self) -> bool:
        """Whether the model runs more than once in a function that trains: two forwards before a backward."""
        calls = ((module, call.node) for module, call in self.module.program.calls)
        runs = Counter(
            (module, module.function_around(node), last_name(node.func))
            for module, node in calls
            if self.is_meant(module, node.func)
        )
        repeated = ((module, place or module.tree) for (module, place, _), count in runs.items() if count > 1)
        return any(trains(*each) for each in repeated)

    @property
    def may_be_frozen(self) -> bool:
        """Whether there may be nothing to train: by its names, or as its class makes nothing."""
        made = self.model.func if isinstance(self.model, ast.Call) else self.call.node
        home, class_ = self.module.definition(made) or (self.module, None)
        is_plain = isinstance(class_, ast.ClassDef) and not any(
            home.program.methods_of(home, class_, "__init__")
        )
        names = (last_name(each) for each in (self.target, self.model, made))
        return is_plain or any(map(MAY_BE_FROZEN.search, names))


@lru_cache(maxsize=8)
def wraps_of(program: Program) -> tuple[ModelWrap, ...]:
    """Every wrap, file by file."""
    return tuple(
        ModelWrap(module, call)
        for module, call in program.calls
        if DATA_PARALLEL in (call.name, base_in_library(module, call.name))
    )


@lru_cache(maxsize=8)
def wrapped_names(program: Program) -> set[str]:
    """What the program calls its wrapped models: the last words of variables, functions that return one."""
    return {name for wrap in wraps_of(program) for name in wrap.names}


def _wrapped(wrap: ModelWrap, model: ast.expr) -> Iterator[Finding]:
    module, words = wrap.module, words_of(wrap.module)
    is_own_class = wrap.call.name != DATA_PARALLEL and not wrap.overrides
    kind = module.text(wrap.call.node.func) if is_own_class else words["DDP"]
    options = f", device_ids=[{words['local_rank']}]"
    options += ", broadcast_buffers=False" if wrap.runs_often else ""
    options += ", find_unused_parameters=True" if _may_leave_out(module.program) else ""
    if wrap.target is None or not wrap.may_be_frozen:
        yield Replace(wrap.whole, f"{kind}({{model}}{wrap.move}{options})", BECAUSE, {"model": model})
        return
    made, moved = module.text(wrap.target), module.text(model) + wrap.move
    if moved != made:
        yield InsertBefore(module.statement(wrap.whole), f"{made} = {moved}", BECAUSE, apart=False)
    trained = f"any(each.requires_grad for each in {made}.parameters())"
    yield Replace(wrap.whole, f"{kind}({made}{options}) if {trained} else {made}", BECAUSE)


def _hangs_on_options(wrap: ModelWrap) -> bool:
    """Whether it stands under a condition that is not about devices, and that has no other branch with a wrap."""
    module, wraps = wrap.module, {each.call.node for each in wraps_of(wrap.module.program)}
    conditions = (each for each in module.around(wrap.call.node) if isinstance(each, (ast.If, ast.IfExp)))
    return any(
        not OF_DEVICES.search(ast.unparse(each.test)) and len(wraps & set(ast.walk(each))) == 1
        for each in conditions
    )


@lru_cache(maxsize=8)
def _may_leave_out(program: Program) -> bool:
    """Whether a forward may leave parameters without gradients: it chooses what to run, or somebody freezes some."""
    modules = program.modules
    if any(name.startswith("torch.utils.checkpoint") for each in modules for name in each.mentions):
        return False  # it runs forwards again, which the search for what is unused does not expect
    flags = [node for each in modules for node in each.by_word.get("requires_grad", ())]
    functions = [node for each in modules for node in each.all(ast.FunctionDef)]
    return (
        any(isinstance(each.ctx, ast.Store) for each in flags)
        or any("requires_grad_" in each.by_word for each in modules)
        or any(_chooses(each) for each in functions if each.name == "forward")
    )


def _chooses(forward: ast.FunctionDef) -> bool:
    """Whether it reads an optional argument, or has a branch that runs layers or returns."""
    branches: list[ast.AST] = [
        part for each in inside(forward, ast.If) for part in (*each.body, *each.orelse)
    ]
    branches += [part for each in inside(forward, ast.IfExp) for part in (each.body, each.orelse)]
    called = [ast.unparse(call.func) for each in branches for call in inside(each, ast.Call)]
    runs = any(name.startswith("self.") or "." not in name for name in called)
    returns = any(isinstance(each, ast.Return) for each in branches)
    return runs or returns or not defaults(forward).keys().isdisjoint(words_in(forward))


def _devices(module: Module) -> Iterator[Finding]:
    for finding in by_number(module):
        if isinstance(finding, Hazard):
            yield remark(module, finding.node, OTHER_GPU)
        elif isinstance(finding, Edit) and finding.helpers:
            yield _own(module, finding.node)
        else:
            yield finding
    for call in module.calls:
        is_mapped = call.may_have_more or call.argument(1, "map_location") is not None
        if call.name == "torch.load" and not is_mapped:
            code = words_of(module).code('{{"cuda:0": f"cuda:{{{local_rank}}}"}}')
            yield SetArgument(call.node, "map_location", code, MAPPED)


def _own(module: Module, node: ast.AST) -> Finding:
    """`torch.device(gpu)` and `.to(gpu)`: what may be an index is the rank's device."""
    if call := module.call_of(node):
        return Replace(call.node, words_of(module).code('{torch}.device("cuda")'), OWN_DEVICE)
    return Replace(node, '"cuda"', OWN_DEVICE)


# --- what DDP does not average, or send


def _by_hand(module: Module, call: Call) -> Iterator[Finding]:
    name, index = call.name or "", words_of(module)["local_rank"]
    if name.startswith(("torch.nn.parallel._functions.", "torch.cuda.comm.")):
        yield remark(module, call.node, COPIES)
    elif name in BY_HAND:
        devices, is_whole = call.argument(*BY_HAND[name]), name.endswith(".data_parallel")
        code = index if name.endswith(".gather") else f"[{index}]"
        output = call.argument(3, "output_device") if is_whole else None
        if devices is not None:
            yield Replace(devices, code, OWN_GPU)
        elif is_whole:
            yield SetArgument(call.node, "device_ids", code, OWN_GPU)
        if output is not None:
            yield Replace(output, index, OWN_GPU)
    elif (optimizer := _stepped(call)) is not None and trains_beside(module.program):
        code = f"average_gradients({module.text(optimizer)})"
        yield InsertBefore(module.statement(call.node), code, MEAN, apart=False)


def _stepped(call: Call) -> ast.expr | None:
    """The optimizer of `optimizer.step()` and of `scaler.step(optimizer)`."""
    owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    given = (owner, *call.node.args[:1]) if call.method == "step" else ()
    words = ((each, last_name(each.value if isinstance(each, ast.Subscript) else each)) for each in given)
    return next((each for each, word in words if "opt" in word.lower()), None)


@lru_cache(maxsize=8)
def trains_beside(program: Program) -> bool:
    """Whether something is trained whose gradients DDP does not average, or not all of them.

    Parts of DataParallel by hand, parameters of what is not wrapped or that come later, backward passes together.
    """
    if any(call.name in BY_HAND or call.method == "add_param_group" for _, call in program.calls):
        return True
    attributes = (each for module in program.modules for each in module.all(ast.Attribute))
    return (
        any(map(sets_part_of_wrapped, attributes))
        or any(
            _is_a_part(wrap) or wrap.runs_often and _goes_back_twice(program) for wrap in wraps_of(program)
        )
        or not all(_holds_wrapped(*each) for each in _trained(program))
    )


def _is_a_part(wrap: ModelWrap) -> bool:
    """`model.features = DataParallel(model.features)`: the rest of the model is not wrapped."""
    return isinstance(wrap.target, ast.Attribute) and last_name(wrap.target.value) != "self"


def _trained(program: Program) -> Iterator[tuple[Module, ast.expr]]:
    """Whose parameters optimizers take, also through a variable."""
    calls = (each for each in program.calls if (each[1].name or "").startswith("torch.optim."))
    given = ((home, each) for home, call in calls for each in call.node.args)
    for home, origin in (source for each in given for source in program.flow.origins(*each)):
        for attribute in inside(origin, ast.Attribute):
            if attribute.attr in ("parameters", "named_parameters"):
                yield home, attribute.value


def _holds_wrapped(module: Module, owner: ast.expr) -> bool:
    """Whether parameters are those of a wrapped model, or of a part of one: `net.parameters()`, `net.module.head`."""
    return any(
        wrap.is_meant(module, each) or last_name(each) == last_name(wrap.model)
        for wrap in wraps_of(module.program)
        for each in inside(owner, ast.Name, ast.Attribute)
    )


def _goes_back_twice(program: Program) -> bool:
    """Whether two backward passes stand together: DDP averages what the first one brings."""
    passes: dict[object, list[int]] = {}
    for module, call in program.calls:
        if call.method == "backward":
            passes.setdefault((module, module.function_around(call.node)), []).append(call.node.lineno)
    return any(b - a < 4 for lines in passes.values() for a, b in pairwise(sorted(lines)))


@lru_cache(maxsize=8)
def unseeded(program: Program) -> list[str]:
    """The libraries from which ranks draw alike only by a seed, and that get none, or only by an option."""
    names = [call.name or "" for _, call in program.calls]
    drawing = [name for name in names if does(name) is Does.DRAW or name in SPLITS]
    drawn = {name.partition(".")[0].replace("sklearn", "numpy") for name in drawing}
    weights = {"torch"} if trains_beside(program) else set()  # which DDP does not send to all ranks
    seeds = (each for each in program.calls if does(each[1].name) in (Does.SEED, Does.SEED_BY_SYSTEM))
    sure = (
        call for home, call in seeds if not call.is_bare and not home.enclosing(call.node, ast.If, ast.IfExp)
    )
    return sorted((drawn | weights) - {(call.name or "").partition(".")[0] for call in sure})
