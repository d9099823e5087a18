"""Where the loaders of a script go, from where they are made to where they are read: all of it, or an obstacle.

A loader is followed through names, attributes, results of functions, dicts and lists of loaders, and parameters, of
functions, classes and methods. Whatever else happens to it is an obstacle: a loop that is not seen would get a rank's
rows for a batch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from dp2ddp.codemod.facts.aliases import callee, handed_over
from dp2ddp.codemod.facts.loaders import Loader
from dp2ddp.codemod.facts.script import Script, Variable, literal

PROGRESS_BARS = ("tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm", "tqdm.std.tqdm")


class NotFollowedError(Exception):
    """A name, or a use, that cannot be followed, and where."""

    def __init__(self, why: str, node: ast.AST) -> None:
        super().__init__(why)
        self.node = node


@dataclass
class LoaderNames:
    """What loaders are called, and every place where one is read."""

    plain: set[Variable] = field(default_factory=set)
    several: set[Variable] = field(default_factory=set)  # dicts and lists of loaders
    bindings: set[ast.AST] = field(default_factory=set)  # where the names get their meaning
    seen: dict[ast.AST, bool] = field(
        default_factory=dict
    )  # every such expression; True: a dict or list of loaders
    uses: list[ast.expr] = field(default_factory=list)  # what is not only handed on

    def bind(self, script: Script, target: ast.expr, many: bool) -> None:
        (self.several if many else self.plain).add(script.variable(target))
        self.bindings.add(target)


def find_loader_names(script: Script, loaders: tuple[Loader, ...]) -> LoaderNames:
    """All names and uses; NotFollowedError for the first thing that cannot be followed."""
    if not loaders:
        raise NotFollowedError("no DataLoader is made in this file", script.tree)
    for loader in loaders:
        if loader.stopper:
            raise NotFollowedError(loader.stopper, loader.call.node)
    names = LoaderNames()
    for loader in loaders:
        _follow(script, loader.call.node, False, names)
    while _follow_names(script, names):
        pass
    _check_bindings(script, names)
    _check_callers(script, names)
    _check_lookups(script, names)
    return names


def _follow_names(script: Script, names: LoaderNames) -> bool:
    """Follow what is read under the names that are known so far; whether there was anything new."""
    before = len(names.seen)
    for node in script.nodes(ast.Name, ast.Attribute):
        assert isinstance(node, (ast.Name, ast.Attribute))
        if isinstance(node.ctx, ast.Load) and node not in names.seen:
            variable = script.variable(node)
            if variable in names.plain or variable in names.several:
                _follow(script, node, variable in names.several, names)
    return len(names.seen) > before


def _follow(script: Script, node: ast.expr, many: bool, names: LoaderNames) -> None:
    """From an expression that is a loader (`many`: a dict or list of them) to the name that it gets, or its use."""
    if node in names.seen:
        return
    names.seen[node] = many
    parent = script.scopes.parents[node]
    match parent:
        case ast.Assign(value=value, targets=targets) if value is node:
            for target in targets:
                _bind(script, target, many, names)
        case ast.AnnAssign(value=value, target=target) if value is node:
            _bind(script, target, many, names)
        case ast.Call(args=[first, *_]) if first is node and not many and _is_bar(script, parent):
            _follow(script, parent, False, names)
        case ast.Return():
            _follow_result(script, parent, None, many, names)
        case ast.Tuple():
            _follow_part(script, parent, node, many, names)
        case ast.Dict() | ast.List() | ast.DictComp() | ast.ListComp() if (
            _is_value(parent, node) and not many
        ):
            _follow(script, parent, True, names)
        case ast.keyword() if not many and _is_dict(script, script.scopes.parents[parent]):
            _follow(script, script.scopes.parents[parent], True, names)  # type: ignore[arg-type]  # a call
        case ast.Subscript(value=value, ctx=ast.Load()) if value is node and many:
            _follow(script, parent, False, names)
        case ast.Call() | ast.keyword() if found := _parameter(script, parent, node):
            (names.several if many else names.plain).add(found)
        case _ if many:
            _check_question(script, parent, node)
        case _:
            names.uses.append(node)


def _is_dict(script: Script, node: ast.AST) -> bool:
    """`dict(train=a, val=b)`."""
    return isinstance(node, ast.Call) and script.scopes.name(node.func) == "builtins.dict" and not node.args


def _is_bar(script: Script, call: ast.Call) -> bool:
    return script.scopes.name(call.func) in PROGRESS_BARS


def _is_value(parent: ast.AST, node: ast.expr) -> bool:
    if isinstance(parent, ast.Dict):
        return node in parent.values
    if isinstance(parent, ast.DictComp):
        return parent.value is node
    return isinstance(parent, ast.List) or isinstance(parent, ast.ListComp) and parent.elt is node


def _parameter(script: Script, parent: ast.AST, given: ast.expr) -> Variable | None:
    """The parameter of a function of the script that is given the loader by this call."""
    call = script.scopes.parents[parent] if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call):
        return None
    return next((parameter for parameter, one in handed_over(script, call) if one is given), None)


def _bind(script: Script, target: ast.expr, many: bool, names: LoaderNames) -> None:
    """`loader = ...`, `self.loader = ...`, `loaders["train"] = ...`."""
    if isinstance(target, ast.Subscript) and not many and isinstance(target.value, (ast.Name, ast.Attribute)):
        names.several.add(script.variable(target.value))
        names.seen[target.value] = True
    elif isinstance(target, ast.Attribute) or isinstance(target, ast.Name) and not _in_class(script, target):
        names.bind(script, target, many)
    else:
        raise NotFollowedError("the loader is not given a name", target)


def _in_class(script: Script, name: ast.Name) -> bool:
    """An attribute of a class, which is read as `self.loader` and by other ways."""
    return isinstance(script.scopes.scope_of[name].node, ast.ClassDef)


def _follow_part(script: Script, pair: ast.Tuple, node: ast.expr, many: bool, names: LoaderNames) -> None:
    """`return train, test`, `self.a, self.b = a, b`."""
    place, around = pair.elts.index(node), script.scopes.parents[pair]
    if isinstance(around, ast.Return):
        _follow_result(script, around, place, many, names)
        return
    targets = around.targets if isinstance(around, ast.Assign) else []
    if not targets:
        raise NotFollowedError("the loader is not given a name", node)
    for target in targets:
        if not isinstance(target, ast.Tuple) or len(target.elts) != len(pair.elts):
            raise NotFollowedError("the loader is not given a name", node)
        _bind(script, target.elts[place], many, names)


def _follow_result(
    script: Script, result: ast.AST, index: int | None, many: bool, names: LoaderNames
) -> None:
    """From the only `return` of a function of the script to what becomes of its calls."""
    function = script.scopes.function(result)
    if not isinstance(function, ast.FunctionDef) or not _has_one_result(function):
        raise NotFollowedError("the loader comes out of a function in more than one way", result)
    if any(script.told(one) not in ("staticmethod", "classmethod") for one in function.decorator_list):
        raise NotFollowedError("the loader comes out of a function that is decorated", result)
    calls = [call.node for call in script.calls if callee(script, call.node) is function]
    if {call.func for call in calls} != set(_mentions(script, function)):
        raise NotFollowedError("the loader comes out of a function that is not only called", result)
    for call in calls:
        if index is None:
            _follow(script, call, many, names)
        else:
            _bind_part(script, call, index, many, names)


def _bind_part(script: Script, call: ast.Call, index: int, many: bool, names: LoaderNames) -> None:
    around = script.scopes.parents[call]
    target = around.targets[0] if isinstance(around, ast.Assign) and len(around.targets) == 1 else None
    if not isinstance(target, ast.Tuple) or index >= len(target.elts):
        raise NotFollowedError("the loader is not given a name", call)
    _bind(script, target.elts[index], many, names)


def _mentions(script: Script, function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Where a function is named: a method, by whatever has an attribute of that name."""
    is_method = isinstance(script.scopes.parents[function], ast.ClassDef)
    for node in script.nodes(ast.Name, ast.Attribute):
        if is_method:
            if isinstance(node, ast.Attribute) and node.attr == function.name:
                yield node
        elif script.scopes.definition(node) is function:
            yield node


def _has_one_result(function: ast.FunctionDef) -> bool:
    return sum(isinstance(one, (ast.Return, ast.Yield)) for one in ast.walk(function)) == 1


def _check_question(script: Script, parent: ast.AST, node: ast.expr) -> None:
    """`len(loaders)`, `"val" in loaders`: all else takes the loaders out unseen."""
    asked = isinstance(parent, ast.Call) and script.scopes.name(parent.func) == "builtins.len"
    if not asked and not isinstance(parent, ast.Compare):
        raise NotFollowedError(f"`{script.told(node)}` is used as a whole", node)


def _check_bindings(script: Script, names: LoaderNames) -> None:
    """Whether these names mean loaders wherever they are bound."""
    for node in script.nodes(ast.Name, ast.Attribute):
        assert isinstance(node, (ast.Name, ast.Attribute))
        if isinstance(node.ctx, ast.Load) or node in names.bindings:
            continue
        variable = script.variable(node)
        if variable in names.plain or variable in names.several and not _is_made_empty(script, node):
            raise NotFollowedError(f"`{script.told(node)}` is not always a DataLoader", node)
    for call in script.calls:
        for parameter, given in handed_over(script, call.node):
            many = parameter in names.several
            if (many or parameter in names.plain) and not _is_loader(names, given, many):
                raise NotFollowedError(f"`{parameter[1]}` is not always a DataLoader", given)
    for whole in names.seen:
        values = whole.values if isinstance(whole, ast.Dict) else getattr(whole, "elts", ())
        if isinstance(whole, ast.Call) and _is_dict(script, whole):
            values = [one.value for one in whole.keywords]
        if not all(_is_loader(names, one, False) for one in values):
            raise NotFollowedError("something else stands beside a loader in a dict or list", whole)


def _check_callers(script: Script, names: LoaderNames) -> None:
    """A function that is given a loader is given nothing else: not by default, and by no call that is not seen."""
    known = names.plain | names.several
    functions = {one: name for one, name in known if isinstance(one, ast.FunctionDef) and _takes(one, name)}
    for function, name in functions.items():
        defaults = [*function.args.defaults, *function.args.kw_defaults]
        if not all(one is None or isinstance(one, ast.Constant) for one in defaults):
            raise NotFollowedError(f"`{name}` is not always a DataLoader", function)
        for mention in _mentions(script, function):
            call = script.scopes.parents[mention]
            if not isinstance(call, ast.Call) or call.func is not mention or _is_unseen(script, call):
                raise NotFollowedError(f"`{script.told(mention)}` may be given something else", mention)


def _takes(function: ast.FunctionDef, name: str) -> bool:
    return any(one.arg == name for one in (*function.args.args, *function.args.kwonlyargs))


def _is_unseen(script: Script, call: ast.Call) -> bool:
    """A call of nobody knows which method; `model.train()` and `model.train(False)` hand no batches over."""
    given = [*call.args, *(one.value for one in call.keywords)]
    return callee(script, call) is None and not all(isinstance(one, ast.Constant) for one in given)


def _is_loader(names: LoaderNames, node: ast.expr, many: bool) -> bool:
    """Whether an expression is known to be one (`many`: a dict or list of them), or None."""
    return names.seen.get(node) is many or isinstance(node, ast.Constant) and node.value is None


def _check_lookups(script: Script, names: LoaderNames) -> None:
    """`getattr(self, split + "_loader")`, `vars(self)`, `globals()`: a loader may be read without its name."""
    attributes = {name[1:] for _, name in names.plain | names.several if name.startswith(".")}
    for call in script.calls:
        given = call.argument(0)
        if call.name == "builtins.getattr" and given is not None:
            told = literal(call.argument(1))
            if told in attributes or told is None and attributes and script.scopes.name(given) is None:
                raise NotFollowedError(f"`{script.told(call.node)}` may be a loader", call.node)
        elif (
            call.name == "builtins.vars"
            and attributes
            and (given is None or script.scopes.name(given) is None)
        ):
            raise NotFollowedError("loaders may be read through vars()", call.node)
        elif call.name in ("builtins.globals", "builtins.locals"):
            raise NotFollowedError(f"loaders may be read through {script.told(call.node)}", call.node)
    for node in script.nodes(ast.Attribute):
        assert isinstance(node, ast.Attribute)
        if node.attr == "__dict__" and attributes and script.scopes.name(node.value) is None:
            raise NotFollowedError(f"loaders may be read through {script.told(node)}", node)


def _is_made_empty(script: Script, node: ast.expr) -> bool:
    """`loaders = {}`, which is filled later."""
    around = script.scopes.parents[node]
    value = around.value if isinstance(around, ast.Assign) and node in around.targets else None
    if isinstance(value, ast.Call):
        name = script.scopes.name(value.func)
        return name in ("builtins.dict", "collections.OrderedDict") and not (value.args or value.keywords)
    return isinstance(value, (ast.Dict, ast.List)) and not ast.literal_eval(value)
