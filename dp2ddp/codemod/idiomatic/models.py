"""The wraps of a program, and local looks at what becomes of the models."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from dp2ddp.codemod.idiomatic.looking import Made, inside, trains, words_in
from dp2ddp.codemod.knowledge.derived import DATA_PARALLEL
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.looks.uses import base_in_library
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import defaults, functions_of, last_name, places
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
        if self.whole is not self.call.node:
            return self.module.text(self.whole).removeprefix(self.module.text(self.call.node)).strip()
        word, function = last_name(self.model), self.module.function_around(self.call.node)
        within = set(ast.walk(self.call.node))
        moves = (each.node for each in self.module.calls if each.method in MOVES)
        above = (each for each in moves if each.lineno <= self.call.node.lineno)
        here = (each for each in above if self.module.function_around(each) is function)
        is_moved = any(each in within or word in words_in(self.module.statement(each)) for each in here)
        return "" if is_moved else ".cuda()"

    @property
    def has_no_parameters(self) -> bool:
        """Whether a loss is made here, by its names, or an object of a class that makes no layers."""
        if not isinstance(self.model, ast.Call):
            return False
        if any(LOSS.search(last_name(each)) for each in (self.target, self.model.func)):
            return True
        home, class_ = self.module.definition(self.model.func) or (self.module, None)
        if not isinstance(class_, ast.ClassDef) or len(class_.bases) != 1:
            return False
        made = [call.name or "" for call in inside(home, class_)]
        return not any(LAYER.match(name) or home.program.is_local(name) for name in made)

    @property
    def may_be_frozen(self) -> bool:
        """Whether its names say that there may be nothing to train: a teacher, a criterion."""
        return any(FROZEN.search(last_name(each)) for each in (self.target, self.model))

    @property
    def runs_often(self) -> bool:
        """Whether the model runs more than once in a function that trains: two forwards before a backward."""
        runs = Counter(
            (module, module.function_around(call.node), last_name(call.node.func))
            for module, call in self.module.program.calls
            if self.is_meant(module, call.node.func)
        )
        return any(
            count > 1 and trains(module, place or module.tree) for (module, place, _), count in runs.items()
        )

    @property
    def changes(self) -> Iterator[ast.stmt]:
        """What gives the model other parameters when it is wrapped: `net.module.fc = ...`."""
        text = f"{ast.unparse(self.target)}.module" if self.target else "no name"
        for each in self.module.all(ast.Assign):
            owner = each.targets[0]
            if isinstance(owner, ast.Attribute) and ast.unparse(owner.value).startswith(text):
                yield each


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


@lru_cache(maxsize=8)
def may_leave_out(program: Program) -> bool:
    """Whether a forward may leave parameters without gradients: it chooses what to run, or somebody freezes some."""
    modules = program.modules
    if any(name.startswith("torch.utils.checkpoint") for each in modules for name in each.mentions):
        return False  # it runs forwards again, which the search for what is unused does not expect
    flags = [node for each in modules for node in each.by_word.get("requires_grad", ())]
    freezes = any(isinstance(each.ctx, ast.Store) for each in flags)
    functions = [node for each in modules for node in each.all(ast.FunctionDef)]
    return (
        freezes
        or any("requires_grad_" in each.by_word for each in modules)
        or any(_chooses(each) for each in functions if each.name == "forward")
        or any(_makes_unused(program, each) for each in functions if each.name == "__init__")
    )


def _makes_unused(program: Program, init: ast.FunctionDef) -> bool:
    """Whether a constructor makes a layer that nothing reads: `self.head = nn.Linear(8, 4)`."""
    for node in ast.walk(init):
        match node:
            case ast.Assign(
                targets=[ast.Attribute(attr=name), *_], value=ast.Call(func=ast.Attribute(attr=kind))
            ) if kind[:1].isupper():
                uses = (each for module in program.modules for each in module.by_word.get(name, ()))
                if not any(isinstance(each.ctx, ast.Load) for each in uses):
                    return True
    return False


def _chooses(forward: ast.FunctionDef) -> bool:
    """Whether it reads an optional argument, or has a branch that runs layers or returns."""
    choices = (each for each in ast.walk(forward) if isinstance(each, (ast.If, ast.IfExp)))
    parts = [part for each in choices for part in ast.walk(each) if part not in set(ast.walk(each.test))]
    called = (ast.unparse(each.func) for each in parts if isinstance(each, ast.Call))
    runs = any(name.startswith("self.") or "." not in name for name in called)
    reads_optional = bool(defaults(forward).keys() & words_in(forward))
    return runs or reads_optional or any(isinstance(each, ast.Return) for each in parts)


@lru_cache(maxsize=8)
def trains_beside(program: Program) -> bool:
    """Whether something is trained whose gradients DDP does not average, or not all of them.

    Parts of DataParallel by hand, parameters of what is not wrapped or that come later, backward passes together.
    """
    if any(call.name in BY_HAND or call.method == "add_param_group" for _, call in program.calls):
        return True
    for wrap in wraps_of(program):
        # `model.features = DataParallel(model.features)`: the rest of the model is not wrapped
        is_a_part = isinstance(wrap.target, ast.Attribute) and last_name(wrap.target.value) != "self"
        if is_a_part or any(wrap.changes) or wrap.runs_often and _goes_back_twice(program):
            return True
    return not all(_holds_wrapped(*each) for each in _trained(program))


def _trained(program: Program) -> Iterator[tuple[Module, ast.expr]]:
    """Whose parameters optimizers take, also through a variable."""
    optimizers = (
        (home, call) for home, call in program.calls if (call.name or "").startswith("torch.optim.")
    )
    for module, call in optimizers:
        for home, origin in (
            each for given in call.node.args for each in program.flow.origins(module, given)
        ):
            for each in ast.walk(origin):
                if isinstance(each, ast.Attribute) and each.attr in ("parameters", "named_parameters"):
                    yield home, each.value


def _holds_wrapped(module: Module, owner: ast.expr) -> bool:
    """Whether parameters are those of a wrapped model, or of a part of one: `net.parameters()`, `net.module.head`."""
    parts = [each for each in ast.walk(owner) if isinstance(each, (ast.Name, ast.Attribute))]
    return any(
        wrap.is_meant(module, each) or last_name(each) == last_name(wrap.model)
        for wrap in wraps_of(module.program)
        if not (wrap.has_no_parameters or wrap.may_be_frozen)
        for each in parts
    )


def _goes_back_twice(program: Program) -> bool:
    """Whether two backward passes stand together: DDP averages what the first one brings."""
    passes: dict[object, list[int]] = {}
    for module, call in program.calls:
        if call.method == "backward":
            passes.setdefault((module, module.function_around(call.node)), []).append(call.node.lineno)
    return any(b - a < 4 for lines in passes.values() for a, b in pairwise(sorted(lines)))


def seeded(program: Program) -> set[str]:
    """The libraries that get a seed, whatever the options say."""
    kinds = (Does.SEED, Does.SEED_BY_SYSTEM)
    seeds = (each for each in program.calls if does(each[1].name) in kinds and not each[1].is_bare)
    sure = (call.name or "" for module, call in seeds if not module.enclosing(call.node, ast.If, ast.IfExp))
    return {name.partition(".")[0] for name in sure}


def unseeded(program: Program) -> list[str]:
    """The libraries from which the program draws, also by scikit-learn, and that it gives no seed."""
    names = (call.name or "" for _, call in program.calls)
    draws = (name for name in names if does(name) is Does.DRAW or name in SPLITS)
    return sorted({name.partition(".")[0].replace("sklearn", "numpy") for name in draws} - seeded(program))
