"""What happens to a sample on its way into a batch: proven to be the same on any rank, alone, and without a trace.

A data set qualifies if looking a sample up neither draws random numbers nor changes anything; a collate function, if
every row of the batch comes from its own sample. What cannot be read counts as unproven.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.purity import (
    OPERATIONS,
    is_plain_transform,
    is_pure,
    methods_of,
    only_computes,
)
from dp2ddp.codemod.facts.script import Script, literal
from dp2ddp.codemod.facts.tables import of

PLAIN_DATA_SETS = ("torch.utils.data.TensorDataset",)
AROUND_DATA_SETS = (
    "torch.utils.data.Subset",
    "torch.utils.data.ConcatDataset",
    "torch.utils.data.random_split",
)
WITH_TRANSFORMS = of(
    "torchvision.datasets", "MNIST FashionMNIST KMNIST EMNIST CIFAR10 CIFAR100 SVHN STL10 ImageFolder"
)


def is_plain_data_set(script: Script, node: ast.AST | None) -> bool:
    """Whether every sample can be loaded alone, on any rank, with the same result."""
    makers = list(_makers(script, node))
    return bool(makers) and all(_is_plain_maker(script, made) for made in makers)


def _makers(
    script: Script, node: ast.AST | None, seen: frozenset[ast.AST] = frozenset()
) -> Iterator[ast.Call | None]:
    """The calls that make a data set, behind splits, subsets and functions; None for what cannot be followed."""
    made = script.scopes.value(node) if node is not None else None
    if isinstance(made, ast.Subscript) and made not in seen:
        for value in _values(script, made) or (None,):
            yield from _makers(script, value, seen | {made})
        return
    if isinstance(made, ast.Name):
        part = _from_tuple(script, made)
        made = script.scopes.value(part) if part is not None else None
    if not isinstance(made, ast.Call) or made in seen:
        yield None
        return
    definition = script.scopes.definition(made.func)
    if script.scopes.name(made.func) in AROUND_DATA_SETS and made.args:
        first = made.args[0]
        for part in first.elts if isinstance(first, (ast.List, ast.Tuple)) else [first]:
            yield from _makers(script, part, seen | {made})
    elif isinstance(definition, ast.FunctionDef):
        yield from _makers(script, _only_result(definition), seen | {made})
    else:
        yield made


def _values(script: Script, item: ast.Subscript) -> list[ast.expr]:
    """Everything in the dict or list of `sets["train"]`, where it is made at once and only such items are read."""
    if not isinstance(item.value, ast.Name):
        return []
    whole = script.scopes.value(item.value)
    variable = script.variable(item.value)
    for node in script.nodes(ast.Name):
        if isinstance(getattr(node, "ctx", None), ast.Load) and script.variable(node) == variable:
            around = script.scopes.parents[node]
            if not isinstance(around, ast.Subscript) or not isinstance(around.ctx, ast.Load):
                return []
    match whole:
        case ast.Dict(values=values) | ast.List(elts=values):
            return values
        case ast.DictComp(value=value) | ast.ListComp(elt=value):
            return [value]
    return []


def _is_plain_maker(script: Script, made: ast.Call | None) -> bool:
    if made is None:
        return False
    name = script.scopes.name(made.func)
    if name in PLAIN_DATA_SETS:
        return True
    if name in WITH_TRANSFORMS:
        return _transforms_plainly(script, made)
    definition = script.scopes.definition(made.func)
    return isinstance(definition, ast.ClassDef) and loads_plainly(script, definition, made)


def _from_tuple(script: Script, name: ast.Name) -> ast.AST | None:
    """What stands behind one of the names of `train, test = ...`, which has no other meaning in its scope."""
    scope = script.scopes.lookup(name.id, script.scopes.scope_of[name])
    if scope is None or len(scope.values.get(name.id, [])) != 1:
        return None
    for node in script.nodes(ast.Assign):
        assert isinstance(node, ast.Assign)
        target = node.targets[0]
        if not isinstance(target, ast.Tuple) or script.scopes.scope_of[node] is not scope:
            continue
        names = [script.text_of(element) for element in target.elts]
        if name.id in names:
            return _part(script, node.value, names.index(name.id))
    return None


def _part(script: Script, value: ast.expr, index: int) -> ast.AST | None:
    """One of several things: of a split all alike, of a tuple, of a function's only result."""
    if isinstance(value, ast.Call):
        if script.scopes.name(value.func) == "torch.utils.data.random_split":
            return value
        definition = script.scopes.definition(value.func)
        result = _only_result(definition) if isinstance(definition, ast.FunctionDef) else None
        return _part(script, result, index) if isinstance(result, ast.Tuple) else None
    return value.elts[index] if isinstance(value, ast.Tuple) and index < len(value.elts) else None


def _only_result(function: ast.FunctionDef) -> ast.expr | None:
    results = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    return results[0] if len(results) == 1 else None


def _transforms_plainly(script: Script, call: ast.Call) -> bool:
    """A data set of torchvision: what it is given behind the folder is a constant, or a transform that is plain."""
    which = ("root", "train", "split", "download")
    given = [*call.args[1:], *(keyword.value for keyword in call.keywords if keyword.arg not in which)]
    return all(literal(argument) is not None or is_plain_transform(script, argument) for argument in given)


def loads_plainly(script: Script, definition: ast.ClassDef, made: ast.Call) -> bool:
    """A map-style data set of the script whose __getitem__ does nothing but look up and compute."""
    bases = [script.scopes.name(base) for base in definition.bases]
    if bases not in (["torch.utils.data.Dataset"], [], ["builtins.object"]):
        return False
    methods = methods_of(definition)
    if "__getitem__" not in methods or {"__iter__", "__getitems__", "__getattr__"} & methods.keys():
        return False
    return (
        is_pure(script, methods["__getitem__"], (definition, made))
        and _has_pure_properties(script, definition, made)
        and _has_pure_operations(script, definition)
    )


def _has_pure_properties(script: Script, definition: ast.ClassDef, made: ast.Call) -> bool:
    """`self.scale` may be a function, too."""
    decorated = (decorator for decorator in methods_of(definition).values() if decorator.decorator_list)
    return all(
        only_computes(script, node, (definition, made))
        for node in decorated
        if any(script.text_of(decorator).endswith("property") for decorator in node.decorator_list)
    )


def _has_pure_operations(script: Script, but: ast.ClassDef) -> bool:
    """Whether `self.base[i]` and `self.jitter * x` are plain, whatever stands there: no class whose objects are made
    here draws or leaves a trace in such a method."""
    for call in script.calls:
        if (call.name or "").startswith("torchvision.datasets.") and not _is_plain_maker(script, call.node):
            return False
        definition = script.scopes.definition(call.node.func)
        if not isinstance(definition, ast.ClassDef) or definition is but:
            continue
        parents = [script.scopes.definition(base) for base in definition.bases]
        if any(
            isinstance(parent, ast.ClassDef) and OPERATIONS & methods_of(parent).keys() for parent in parents
        ):
            return False
        methods = methods_of(definition)
        if not all(
            is_pure(script, methods[name], (definition, call.node)) for name in OPERATIONS & methods.keys()
        ):
            return False
    return True
