"""Random numbers: generators without a seed, seeds from outside, draws inside a model's forward."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.draws import (
    GENERATORS,
    IN_PLACE_DRAWS,
    NO_DRAWS,
    OUTSIDE_DRAWS,
    SAMPLING_METHODS,
    TORCH_MAKES,
    draws,
    host_stream,
)
from dp2ddp.codemod.facts.places import ExecutionPlace, Places
from dp2ddp.codemod.facts.script import CallSite, Script, literal
from dp2ddp.codemod.facts.tables import of

SEEDS = ("random.seed", "numpy.random.seed")
RESEEDS = ("torch.seed", "torch.random.seed", "torch.cuda.seed", "torch.cuda.seed_all", "random.SystemRandom")
AUTOGRAD_FUNCTIONS = of("torch.autograd", "Function function.Function function.InplaceFunction")
TORCH_MAKERS = of(
    "torch", "zeros ones empty full tensor Tensor FloatTensor DoubleTensor HalfTensor LongTensor"
)


def unseeded_generators(script: Script) -> Iterator[CallSite]:
    for call in script.calls:
        bare = not call.node.args and not call.node.keywords
        empty = (
            len(call.node.args) == 1
            and not call.node.keywords
            and literal(call.node.args[0]) is None
            and _is_none(call)
        )
        if call.name in GENERATORS and (bare or empty) or call.name in OUTSIDE_DRAWS:
            yield call


def _is_none(call: CallSite) -> bool:
    return getattr(call.node.args[0], "value", "") is None


def reseeds_from_outside(script: Script) -> Iterator[CallSite]:
    """A seed without a number, or torch's own "seed from the operating system"."""
    for call in script.calls:
        bare = not call.node.args and not call.node.keywords
        if (
            call.name in RESEEDS
            or call.name in SEEDS
            and (bare or _is_none(call))
            or _is_generator_seed(script, call)
        ):
            yield call


def _is_generator_seed(script: Script, call: CallSite) -> bool:
    """`torch.Generator().seed()`, directly or by a name."""
    if call.method != "seed" or call.node.args:
        return False
    owner = script.scopes.value(getattr(call.node.func, "value", None))
    return script.scopes.name(getattr(owner, "func", None)) == "torch.Generator"


def host_draws_in_forward(script: Script, places: Places) -> Iterator[CallSite]:
    """Draws inside a model's forward from streams that all replicas share: random, numpy, and torch's on the CPU."""
    for call in script.calls:
        drawn = (
            host_stream(call.name or "")
            or _is_torch_draw(script, call)
            or _is_own_draw(script, call)
            or _is_sample(script, call)
        )
        if drawn and places.of(call.node) is ExecutionPlace.FORWARD:
            yield call


def draws_in_backward(script: Script) -> Iterator[CallSite]:
    """Draws inside the backward of a torch.autograd.Function, from whichever stream."""
    for call in script.calls:
        method, owner = script.scopes.function(call.node), script.scopes.owner_class(call.node)
        if owner is None or getattr(method, "name", "") not in ("backward", "vjp"):
            continue
        bases = {script.scopes.name(base) or "" for base in owner.bases}
        if bases & AUTOGRAD_FUNCTIONS and draws(call.name or "", call.method or ""):
            yield call


def is_remembered(script: Script, node: ast.AST) -> bool:
    """Whether a node stands in a function under `functools.lru_cache` or `functools.cache`."""
    functions = (
        ancestor for ancestor in script.scopes.ancestors(node) if isinstance(ancestor, ast.FunctionDef)
    )
    decorators = (decorator for function in functions for decorator in function.decorator_list)
    names = (
        script.scopes.name(decorator.func if isinstance(decorator, ast.Call) else decorator)
        for decorator in decorators
    )
    return any(suffix in ("functools.lru_cache", "functools.cache") for suffix in names)


def _is_own_draw(script: Script, call: CallSite) -> bool:
    """`self.rng.rand()`, `torch.randn(3, generator=self.generator)`: a generator that the replicas share."""
    given = call.keyword("generator")
    if given is not None:
        return literal(given.value) is not None or not isinstance(given.value, ast.Constant)
    owner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    if call.method in NO_DRAWS or not isinstance(owner, (ast.Name, ast.Attribute)):
        return False
    values = _values(script, owner)
    return any(
        isinstance(value, ast.Call) and script.scopes.name(value.func) in GENERATORS for value in values
    )


def _values(script: Script, owner: ast.expr) -> list[ast.AST | None]:
    """What a name, or an attribute of any object, is set to."""
    if isinstance(owner, ast.Attribute):
        nodes = (node for node in script.nodes(ast.Assign) if _sets(node, owner.attr))
        return [node.value for node in nodes if isinstance(node, ast.Assign)]
    return [script.scopes.value(owner)]


def _sets(node: ast.AST, attribute: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Attribute) and target.attr == attribute for target in targets)


def _is_torch_draw(script: Script, call: CallSite) -> bool:
    """`torch.randn(3)`, `torch.zeros(3).normal_()`; not `torch.randn(3, device=x.device)`."""
    if call.name in TORCH_MAKES:
        return _is_on_cpu(call)
    if call.method not in IN_PLACE_DRAWS or not isinstance(call.node.func, ast.Attribute):
        return False
    drawn = script.scopes.value(call.node.func.value)
    if not isinstance(drawn, ast.Call):
        return False
    maker = CallSite(drawn, script.scopes.name(drawn.func), None)
    return maker.name in TORCH_MAKERS and _is_on_cpu(maker)


def _is_sample(script: Script, call: CallSite) -> bool:
    """`Normal(0.0, 1.0).sample()`, of numbers: a distribution of tensors draws on their device."""
    if call.method not in SAMPLING_METHODS or not isinstance(call.node.func, ast.Attribute):
        return False
    made = [value for value in _values(script, call.node.func.value) if isinstance(value, ast.Call)]
    return any(
        (script.scopes.name(node.func) or "").startswith("torch.distributions.")
        and not any(map(_may_be_elsewhere, (*node.args, *(keyword.value for keyword in node.keywords))))
        for node in made
    )


def _may_be_elsewhere(node: ast.expr) -> bool:
    """Whether a parameter of a distribution may be a tensor of another device than the CPU."""
    return not all(
        isinstance(inner, (ast.Constant, ast.UnaryOp, ast.unaryop, ast.operator, ast.BinOp))
        for inner in ast.walk(node)
    )


def _is_on_cpu(call: CallSite) -> bool:
    """Whether a new tensor is on the CPU, as far as its own arguments tell."""
    device = call.keyword("device")
    return device is None or str(literal(device.value)).startswith("cpu")
