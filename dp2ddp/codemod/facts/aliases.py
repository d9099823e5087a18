"""Under which names a wrapped model is known: the wrap's own, parameters, attributes, aliases and results."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence, Set

from dp2ddp.codemod.facts.methods import method_called, method_of
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.script import Script, Variable

COMPILE = "torch.compile"


def wrapped_names(script: Script, wraps: Sequence[Wrap]) -> frozenset[Variable]:
    """Variables of the wrap, and every parameter, attribute, alias and result that it is handed to."""
    names = {script.variable(target) for wrap in wraps for target in wrap.targets}
    return followed_names(script, {wrap.call.node for wrap in wraps}, names)


def followed_names(script: Script, made: Set[ast.AST], names: Set[Variable]) -> frozenset[Variable]:
    """Variables, and every parameter, attribute, alias and result that what is `made`, or has such a name, is given."""
    names = set(names)
    while more := {name for name in _handed_on(script, made, names) if name not in names}:
        names |= more
    return frozenset(names)


def _handed_on(script: Script, made: Set[ast.AST], names: Set[Variable]) -> Iterator[Variable]:
    around = {*made, *(parent for node in made for parent in script.scopes.ancestors(node))}
    for call in script.calls:
        for parameter, given in handed_over(script, call.node):
            if script.variable(given) in names:
                yield parameter
    for node in script.nodes(ast.Assign):
        assert isinstance(node, ast.Assign)
        for target, value in assignments(script, node):
            if value in around or script.variable(before_compiling(script, value)) in names:
                yield script.variable(target)


def before_compiling(script: Script, value: ast.expr) -> ast.expr:
    """`net` of `torch.compile(net, mode="max-autotune")`, which is the same model; anything else as it is."""
    match value:
        case ast.Call(func=func, args=[model, *_]) if script.scopes.name(func) == COMPILE:
            return before_compiling(script, model)
    return value


def assignments(script: Script, statement: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each thing that a statement gives a value to, and the value."""
    for target in statement.targets:
        yield from assigned(script, target, statement.value)


def assigned(script: Script, target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What each name is given: of `a, b = x, y` both, of `a = make()` and `a, b = make()` what it returns."""
    if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
        if len(target.elts) == len(value.elts):
            for element, given in zip(target.elts, value.elts, strict=True):
                yield from assigned(script, element, given)
    elif isinstance(value, ast.Call) and (function := callee(script, value)) and function.name != "__init__":
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value and not isinstance(node.value, ast.Call):
                yield from assigned(script, target, node.value)
            elif isinstance(node, ast.Return) and node.value:
                yield target, node.value
    yield target, value


def handed_over(script: Script, call: ast.Call) -> Iterator[tuple[Variable, ast.expr]]:
    """The parameters of the script's own functions, with what a call gives them."""
    function = callee(script, call)
    if function is None:
        return
    parameters = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
    if parameters[:1] in (["self"], ["cls"]):
        parameters = parameters[1:]
    plain = next(
        (place for place, argument in enumerate(call.args) if isinstance(argument, ast.Starred)), None
    )
    for parameter, given in zip(parameters, call.args[:plain]):  # noqa: B905 (more arguments than parameters: *args)
        yield (function, parameter), given
    named = {*parameters, *(parameter.arg for parameter in function.args.kwonlyargs)}
    for keyword in call.keywords:
        if keyword.arg in named:
            yield (function, keyword.arg), keyword.value


def callee(script: Script, call: ast.Call) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function of the script that a call runs: by name, a class's __init__, or a method that is known."""
    definition = script.scopes.definition(call.func)
    if isinstance(definition, ast.ClassDef):
        return method_of(script, definition, "__init__")
    if isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return definition
    return method_called(script, call)


def is_returned(script: Script, wrap: Wrap) -> bool:
    """`return DataParallel(net)`: the name is given where the function is called."""
    return isinstance(script.scopes.statement(wrap.call.node), ast.Return)


def find_forwards(script: Script, names: Set[Variable]) -> Iterator[ast.Call]:
    for call in script.calls:
        function = call.node.func
        owner = (
            function.value if isinstance(function, ast.Attribute) and call.method == "forward" else function
        )
        if script.variable(function) in names or script.variable(owner) in names:
            yield call.node
