"""Random numbers: who draws them where, and whether somebody sets a seed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from dp2ddp.codemod.idiomatic.deciding_figures import loops_of
from dp2ddp.codemod.idiomatic.looking import calls_in, last_word, methods_of
from dp2ddp.codemod.idiomatic.training import leading_to
from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.methods import MethodDoes, method
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.program import Program

SEEDS = {
    "torch": ("torch.manual_seed", "torch.cuda.manual_seed_all"),
    "numpy": ("numpy.random.seed",),
    "random": ("random.seed",),
}
ORDERS = {  # what all ranks must draw alike: parts and orders of data, by the position of a generator
    "torch.utils.data.random_split": 2,
    "torch.randperm": None,
    "random.shuffle": 1,
    "random.sample": None,
    "numpy.random.shuffle": None,
    "numpy.random.permutation": None,
    "numpy.random.choice": None,
    "sklearn.model_selection.train_test_split": None,
}
GIVEN = ("generator", "random_state")


def is_seeded(program: Program, library: str = "") -> bool:
    """Whether the program sets a seed, whatever its options say: of one library, or of any."""
    names = SEEDS.get(library) or tuple(name for each in SEEDS.values() for name in each)
    return any(
        call.name in names
        and not any(isinstance(each, (ast.If, ast.IfExp)) for each in module.around(call.node))
        for module, call in calls_in(program)
    )


def unseeded_orders(module: Module) -> Iterator[Call]:
    """Parts and orders of data that each rank draws otherwise."""
    inside = {node for loop in loops_of(module) for node in ast.walk(loop)}
    called = {last_word(each.func) for home in module.program.modules for each in _calls_in_loops(home)}
    for call in module.calls:
        name = call.name or ""
        function = getattr(module.function_around(call.node), "name", None)
        if (
            name not in ORDERS
            or call.node in inside
            or function in called
            or _is_in_dataset(module, call.node)
        ):
            continue
        library = name.partition(".")[0].replace("sklearn", "numpy")
        is_given = any(call.argument(ORDERS[name], word) is not None for word in GIVEN)
        if not is_given and not is_seeded(module.program, library):
            yield call


def _calls_in_loops(module: Module) -> Iterator[ast.Call]:
    return (node for loop in loops_of(module) for node in ast.walk(loop) if isinstance(node, ast.Call))


def _is_in_dataset(module: Module, node: ast.AST) -> bool:
    classes = (each for each in module.around(node) if isinstance(each, ast.ClassDef))
    return any(methods_of(each) & {"__getitem__", "__iter__", "__call__"} for each in classes)


def drawn_in_loops(program: Program) -> Call | None:
    """A call that draws for a batch where it is trained on: mixing, noise, scaling."""
    functions = _drawing_functions(program)
    for module in program.modules:
        inside = {node for loop in loops_of(module) for node in ast.walk(loop)}
        for call in module.calls:
            if call.node in inside and _is_draw(call, functions):
                return call
    return None


@lru_cache(maxsize=8)
def _drawing_functions(program: Program) -> frozenset[str]:
    names = leading_to(program, lambda module, call, functions: _is_draw(call, functions))
    return names - {"forward", "__init__", "__getitem__", "__iter__", "__call__", "__next__"}


def _is_draw(call: Call, functions: frozenset[str]) -> bool:
    called = call.node.func
    own = called.id if isinstance(called, ast.Name) else call.method
    is_torch = (call.name or "").startswith(("torch.nn.", "builtins."))
    return draws(call) or own in functions and not is_torch


def draws(call: Call) -> bool:
    """Whether a call draws random numbers."""
    return does(call.name) is Does.DRAW or method(call.method) is MethodDoes.DRAW


def augments(program: Program) -> bool:
    """Whether a sample may be another each time: transforms that draw, or data sets."""
    return any(
        (call.name or "").startswith("torchvision.transforms.")
        and "Random" in (call.name or "")
        or (call.name or "").endswith(("ColorJitter", "AutoAugment", "RandAugment"))
        or draws(call)
        and _is_in_dataset(module, call.node)
        and _is_drawn_again(module, call)
        for module, call in calls_in(program)
    )


def _is_drawn_again(module: Module, call: Call) -> bool:
    return getattr(module.function_around(call.node), "name", "") not in ("__init__", "")


def draws_unseeded(program: Program) -> bool:
    """Whether the script itself (no layer, no data set) draws, and nobody sets a seed."""
    return not is_seeded(program) and any(
        draws(call) and not any(isinstance(each, ast.ClassDef) for each in module.around(call.node))
        for module, call in calls_in(program)
    )
