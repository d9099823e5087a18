"""Under which names the loaders of a script are known, and whether those names always mean loaders.

A loader is followed from where it is made through plain names, results of functions, dicts of loaders and parameters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from dp2ddp.codemod.facts.loaders import Loader
from dp2ddp.codemod.facts.script import Script


class NotFollowedError(Exception):
    """A name, or a use, that cannot be followed, and where."""

    def __init__(self, why: str, node: ast.AST) -> None:
        super().__init__(why)
        self.node = node


@dataclass
class LoaderNames:
    """What a loader is called: `loader`, `self.loader`; and dicts and lists of loaders, used by index."""

    plain: set[str] = field(default_factory=set)
    several: set[str] = field(default_factory=set)
    bindings: set[ast.AST] = field(default_factory=set)  # where they get their meaning
    handed_out: set[ast.AST] = field(default_factory=set)  # readings in results and in dicts


def find_loader_names(script: Script, loaders: tuple[Loader, ...]) -> LoaderNames:
    """All names; NotFollowedError for the first thing that cannot be followed."""
    if not loaders:
        raise NotFollowedError("no DataLoader is made in this file", script.tree)
    for loader in loaders:
        if loader.stopper:
            raise NotFollowedError(loader.stopper, loader.call.node)
    names = LoaderNames()
    for loader in loaders:
        _follow(script, loader.call.node, names)
    while _spread(script, names):
        pass
    _check_bindings(script, names)
    return names


def _spread(script: Script, names: LoaderNames) -> bool:
    """Follow the names themselves one step further: into parameters, results and dicts."""
    before = len(names.plain) + len(names.several) + len(names.bindings)
    names.plain |= {
        parameter for parameter, given in parameters_given(script) if script.told(given) in names.plain
    }
    for node in script.nodes(ast.Name, ast.Attribute):
        assert isinstance(node, (ast.Name, ast.Attribute))
        is_read = isinstance(node.ctx, ast.Load) and node not in names.handed_out
        if is_read and script.told(node) in names.plain and _is_handed_out(script, node):
            _follow(script, node, names)
    return len(names.plain) + len(names.several) + len(names.bindings) > before


def _is_handed_out(script: Script, node: ast.expr) -> bool:
    return isinstance(script.scopes.parents[node], (ast.Return, ast.Tuple, ast.Dict, ast.List))


def _follow(script: Script, node: ast.expr, names: LoaderNames) -> None:
    """From an expression that is a loader to the name that it gets."""
    parent = script.scopes.parents[node]
    if isinstance(node, (ast.Name, ast.Attribute)):
        names.handed_out.add(node)
    if isinstance(parent, ast.Assign) and parent.value is node:
        _bind(script, parent, names.plain, names)
    elif isinstance(parent, ast.Return):
        _follow_result(script, parent, None, names)
    elif isinstance(parent, ast.Tuple) and isinstance(script.scopes.parents[parent], ast.Return):
        _follow_result(script, script.scopes.parents[parent], parent.elts.index(node), names)
    elif isinstance(parent, (ast.Dict, ast.List, ast.DictComp, ast.ListComp)) and _is_value(parent, node):
        around = script.scopes.parents[parent]
        if not isinstance(around, ast.Assign):
            raise NotFollowedError("the loader is not given a name", node)
        _bind(script, around, names.several, names)
    else:
        raise NotFollowedError("the loader is not given a name", node)


def _is_value(parent: ast.AST, node: ast.expr) -> bool:
    if isinstance(parent, ast.Dict):
        return node in parent.values
    if isinstance(parent, ast.DictComp):
        return parent.value is node
    return isinstance(parent, ast.List) or isinstance(parent, ast.ListComp) and parent.elt is node


def _bind(script: Script, statement: ast.Assign, kind: set[str], names: LoaderNames) -> None:
    for target in statement.targets:
        if not isinstance(target, (ast.Name, ast.Attribute)):
            raise NotFollowedError("the loader is not given a name", statement)
        kind.add(script.told(target))
        names.bindings.add(target)


def _follow_result(script: Script, result: ast.AST, index: int | None, names: LoaderNames) -> None:
    """From the only `return` of a function of the script to what its calls are assigned to."""
    function = script.scopes.function(result)
    if not isinstance(function, ast.FunctionDef) or not _has_one_result(function):
        raise NotFollowedError("the loader comes out of a function in more than one way", result)
    calls = [call.node for call in script.calls if script.scopes.definition(call.node.func) is function]
    mentions = [
        node
        for node in script.nodes(ast.Name, ast.Attribute)
        if getattr(node, "id", getattr(node, "attr", "")) == function.name
    ]
    if len(mentions) != len(calls):
        raise NotFollowedError("the loader comes out of a function that is not only called", result)
    for call in calls:
        _bind_result(script, call, index, names)


def _has_one_result(function: ast.FunctionDef) -> bool:
    return sum(isinstance(one, (ast.Return, ast.Yield)) for one in ast.walk(function)) == 1


def _bind_result(script: Script, call: ast.Call, index: int | None, names: LoaderNames) -> None:
    around = script.scopes.parents[call]
    target = around.targets[0] if isinstance(around, ast.Assign) and len(around.targets) == 1 else None
    if index is not None:
        target = target.elts[index] if isinstance(target, ast.Tuple) and index < len(target.elts) else None
    if not isinstance(target, (ast.Name, ast.Attribute)):
        raise NotFollowedError("the loader is not given a name", call)
    names.plain.add(script.told(target))
    names.bindings.add(target)


def _check_bindings(script: Script, names: LoaderNames) -> None:
    """Whether these names mean loaders wherever they are bound, and nothing has their loaders under another name."""
    known = names.plain | names.several
    attributes = {one.rpartition(".")[2] for one in known if "." in one}
    for node in script.nodes(ast.Name, ast.Attribute):
        assert isinstance(node, (ast.Name, ast.Attribute))
        told = script.told(node)
        if told not in known:
            if isinstance(node, ast.Attribute) and node.attr in attributes:
                raise NotFollowedError(f"`{told}` may be a loader", node)
        elif not isinstance(node.ctx, ast.Load) and node not in names.bindings:
            raise NotFollowedError(f"`{told}` is not always a DataLoader", node)
    for parameter, given in parameters_given(script):
        if parameter in known and script.told(given) not in names.plain:
            raise NotFollowedError(f"`{parameter}` is not always a DataLoader", given)


def parameters_given(script: Script) -> Iterator[tuple[str, ast.expr]]:
    """What the script's own functions are given, by parameter."""
    for call in script.calls:
        function = script.scopes.definition(call.node.func)
        if isinstance(function, ast.FunctionDef):
            parameters = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
            pairs = [*zip(parameters, call.node.args), *((one.arg, one.value) for one in call.node.keywords)]  # noqa: B905
            yield from ((name, given) for name, given in pairs if name)
