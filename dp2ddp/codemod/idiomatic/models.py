"""The wraps of a program, and local looks at what becomes of the models."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

from dp2ddp.codemod.idiomatic.looking import calls_in, inside, is_called, names_given, trains, words_in
from dp2ddp.codemod.knowledge.derived import DATA_PARALLEL
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import defaults, last_name
from dp2ddp.codemod.model.program import Program

PARTS = {"scatter", "gather", "replicate", "parallel_apply", "forward"}
# The parts of DataParallel as functions, and where each takes devices: a list of them; `gather` one.
BY_HAND = {
    "torch.nn.parallel.data_parallel": (2, "device_ids"),
    "torch.nn.parallel.replicate": (1, "devices"),
    "torch.nn.parallel.scatter": (1, "target_gpus"),
    "torch.nn.parallel.scatter_kwargs": (2, "target_gpus"),
    "torch.nn.parallel.parallel_apply": (3, "devices"),
    "torch.nn.parallel.gather": (1, "target_device"),
}
SPLITS = ("torch.utils.data.random_split", "sklearn.model_selection.train_test_split")
MODELS = ("module", "model", "net")
MOVES = ("cuda", "to")
LOSS = re.compile(r"^(?!.*(model|net)).*(loss|crit)", re.IGNORECASE)
LAYER = re.compile(r"torch\.nn\.(?!functional)")
FROZEN = re.compile(r"loss|crit|teacher|percep|vgg|target|_t$|frozen|lpips", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class ModelWrap:
    """A call of DataParallel, or of a class that derives from it."""

    module: Module
    call: Call
    overrides: frozenset[str] = frozenset()  # the parts that its class has in a way of its own
    position: int = 0  # of the model among the arguments

    @property
    def model(self) -> ast.expr | None:
        return self.call.argument(self.position, "module")

    @cached_property
    def names(self) -> set[str]:
        """What the program calls it."""
        return names_given(self.module, self.call.node)

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
    def is_a_part(self) -> bool:
        """`model.features = DataParallel(model.features)`: the rest of the model is not wrapped."""
        return isinstance(self.target, ast.Attribute) and last_name(self.target.value) != "self"

    @property
    def move(self) -> str:
        """What moves the model to its device at the wrap or behind it; empty where it is there before."""
        if self.whole is not self.call.node:
            return self.module.text(self.whole).removeprefix(self.module.text(self.call.node)).strip()
        word, function = last_name(self.model), self.module.function_around(self.call.node)
        for each in self.module.calls:
            if each.method in MOVES and each.node.lineno <= self.call.node.lineno:
                statement = self.module.statement(each.node)
                is_of_it = word in words_in(statement) or each.node in set(ast.walk(self.call.node))
                if is_of_it and self.module.function_around(each.node) is function:
                    return ""
        return ".cuda()"

    @property
    def has_no_parameters(self) -> bool:
        """Whether a loss is made here, by its names, or an object of a class that makes no layers."""
        if not isinstance(self.model, ast.Call):
            return False
        home, class_ = self.module.definition(self.model.func) or (self.module, None)
        is_loss = any(LOSS.search(last_name(each)) for each in (self.target, self.model.func))
        return (
            is_loss
            or isinstance(class_, ast.ClassDef)
            and len(class_.bases) == 1
            and not _has_layers(home, class_)
        )

    @property
    def may_be_frozen(self) -> bool:
        """Whether its names say that there may be nothing to train: a teacher, a criterion."""
        return any(FROZEN.search(last_name(each)) for each in (self.target, self.model))


def _has_layers(module: Module, class_: ast.ClassDef) -> bool:
    made = [call.name or "" for call in inside(module, class_)]
    return any(LAYER.match(name) or module.program.is_local(name) for name in made)


@lru_cache(maxsize=8)
def wraps_of(program: Program) -> tuple[ModelWrap, ...]:
    """Every wrap, file by file."""
    classes: dict[str, tuple[frozenset[str], int]] = {DATA_PARALLEL: (frozenset(), 0)}
    for module in program.modules:
        for each in module.all(ast.ClassDef):
            if any(module.name(base) == DATA_PARALLEL for base in each.bases):
                classes[f"{module.dotted}.{each.name}"] = _own_ways(each)
    return tuple(
        ModelWrap(module, call, *classes[call.name])
        for module, call in calls_in(program)
        if call.name in classes
    )


def _own_ways(class_: ast.ClassDef) -> tuple[frozenset[str], int]:
    """What a class that derives from DataParallel overrides, and where its `__init__` takes the model."""
    methods = {each.name: each for each in class_.body if isinstance(each, ast.FunctionDef)}
    init = methods.get("__init__")
    places = [each.arg for each in init.args.args[1:]] if init else []
    position = next((place for place, name in enumerate(places) if name in MODELS), len(places))
    return frozenset(methods.keys() & PARTS), position


@lru_cache(maxsize=8)
def wrapped_names(program: Program) -> set[str]:
    """What the program calls its wrapped models: the last words of variables, functions that return one."""
    return {name for wrap in wraps_of(program) for name in wrap.names}


def runs_often(wrap: ModelWrap) -> bool:
    """Whether the model runs more than once in a function that trains: two forwards before a backward."""
    count: Counter[object] = Counter()
    for module, call in calls_in(wrap.module.program):
        function = module.function_around(call.node)
        if is_called(module, call.node.func, (), wrap.names) and trains(module, function or module.tree):
            count[module, function, last_name(call.node.func)] += 1
    return any(each > 1 for each in count.values())


@lru_cache(maxsize=8)
def may_leave_out(program: Program) -> bool:
    """Whether a forward may leave parameters without gradients: it chooses what to run, or somebody freezes some."""
    if any(name.startswith("torch.utils.checkpoint") for each in program.modules for name in each.mentions):
        return False  # it runs forwards again, which the search for what is unused does not expect
    for module in program.modules:
        sets = (isinstance(each.ctx, ast.Store) for each in module.by_word.get("requires_grad", ()))
        if "requires_grad_" in module.by_word or any(sets):
            return True
    functions = [each for module in program.modules for each in module.all(ast.FunctionDef)]
    return any(
        _chooses(each) if each.name == "forward" else each.name == "__init__" and _makes_unused(program, each)
        for each in functions
    )


def _makes_unused(program: Program, init: ast.FunctionDef) -> bool:
    """Whether a constructor makes a layer that nothing reads: `self.head = nn.Linear(8, 4)`."""
    made = [
        each.targets[0] for each in ast.walk(init) if isinstance(each, ast.Assign) and _is_layer(each.value)
    ]
    names = {each.attr for each in made if isinstance(each, ast.Attribute)}
    read = (each for module in program.modules for name in names for each in module.by_word.get(name, ()))
    return bool(
        names - {last_name(each) for each in read if isinstance(getattr(each, "ctx", None), ast.Load)}
    )


def _is_layer(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr[:1].isupper()
    )


def _chooses(forward: ast.FunctionDef) -> bool:
    """Whether it reads an optional argument, or has a branch that runs layers or returns."""
    choices = (each for each in ast.walk(forward) if isinstance(each, (ast.If, ast.IfExp)))
    parts = [part for each in choices for part in ast.walk(each) if part not in set(ast.walk(each.test))]
    called = (ast.unparse(each.func) for each in parts if isinstance(each, ast.Call))
    runs = any(name.startswith("self.") or "." not in name for name in called)
    reads_optional = bool(defaults(forward).keys() & words_in(forward))
    return runs or reads_optional or any(isinstance(each, ast.Return) for each in parts)


def changed_behind(wrap: ModelWrap) -> Iterator[ast.stmt]:
    """What gives the model other parameters when it is wrapped: `net.module.fc = ...`."""
    module, text = wrap.module, f"{ast.unparse(wrap.target)}.module" if wrap.target else "no name"
    for each in module.all(ast.Assign):
        owner = each.targets[0]
        if isinstance(owner, ast.Attribute) and ast.unparse(owner.value).startswith(text):
            yield each


@lru_cache(maxsize=8)
def trains_beside(program: Program) -> bool:
    """Whether something is trained whose gradients DDP does not average, or not all of them.

    Parts of DataParallel by hand, parameters of what is not wrapped or that come later, backward passes together.
    """
    calls = list(calls_in(program))
    if any(call.name in BY_HAND or call.method == "add_param_group" for _, call in calls):
        return True
    for wrap in wraps_of(program):
        if wrap.is_a_part or any(changed_behind(wrap)) or runs_often(wrap) and _goes_back_twice(program):
            return True
    optimizers = [each for each in calls if (each[1].name or "").startswith("torch.optim.")]
    return not all(
        _holds_wrapped(module, each) for module, call in optimizers for each in _owners(module, call)
    )


def _holds_wrapped(module: Module, owner: ast.expr) -> bool:
    """Whether parameters are those of a wrapped model, or of a part of one: `net.parameters()`, `net.module.head`."""
    wraps = [wrap for wrap in wraps_of(module.program) if not (wrap.has_no_parameters or wrap.may_be_frozen)]
    names = {name for wrap in wraps for name in (last_name(wrap.model), *wrap.names)} - {""}
    parts = [each for each in ast.walk(owner) if isinstance(each, (ast.Name, ast.Attribute))]
    return any(is_called(module, each, [wrap.call.node for wrap in wraps], names) for each in parts)


def _owners(module: Module, call: Call) -> Iterator[ast.expr]:
    """Whose parameters an optimizer takes, also through a variable."""
    for given in call.node.args:
        for _, origin in module.program.flow.origins(module, given):
            for each in ast.walk(origin):
                if isinstance(each, ast.Attribute) and each.attr in ("parameters", "named_parameters"):
                    yield each.value


def _goes_back_twice(program: Program) -> bool:
    """Whether two backward passes stand together: DDP averages what the first one brings."""
    passes: dict[object, list[int]] = {}
    for module, call in calls_in(program):
        if call.method == "backward":
            passes.setdefault((module, module.function_around(call.node)), []).append(call.node.lineno)
    return any(b - a < 4 for lines in passes.values() for a, b in pairwise(sorted(lines)))


CHOICES = {ast.If, ast.IfExp}
SEEDS = {
    "torch": ("torch.manual_seed", "torch.cuda.manual_seed_all"),
    "numpy": ("numpy.random.seed",),
    "random": ("random.seed",),
}


def is_seeded(program: Program, library: str) -> bool:
    """Whether the program sets a library's seed, whatever its options say."""
    seeds = ((module, call.node) for module, call in calls_in(program) if call.name in SEEDS[library])
    return any(not CHOICES & set(map(type, module.around(node))) for module, node in seeds)


def unseeded(program: Program) -> list[str]:
    """The libraries from which the program draws, also by scikit-learn, and that it gives no seed."""
    names = (call.name or "" for _, call in calls_in(program))
    draws = (name for name in names if does(name) is Does.DRAW or name in SPLITS)
    drawn = {name.partition(".")[0].replace("sklearn", "numpy") for name in draws}
    return [library for library in SEEDS if library in drawn and not is_seeded(program, library)]
