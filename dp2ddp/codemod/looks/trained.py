"""What models are called that are wrapped, and what a program trains beside them, or copies whole."""

import ast
from collections.abc import Iterable, Iterator, Set
from functools import lru_cache

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.looks.ours import of_the_user
from dp2ddp.codemod.looks.uses import loads
from dp2ddp.codemod.looks.wraps import Wrap, wraps_in
from dp2ddp.codemod.model.flow import Source
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import BUILDING, all_from, handed, inside, last_name
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.scopes import Binds
from dp2ddp.source.parsing import nodes_in

COPIES = words(
    "copy.copy copy.deepcopy torch.optim.swa_utils.AveragedModel ema_pytorch.EMA",
    "timm.utils.ModelEma timm.utils.ModelEmaV2 timm.utils.ModelEmaV3",
)
FUNCTIONS = ("torch.nn.parallel.data_parallel", "torch.nn.parallel.replicate")
OF_SEVERAL = (Binds.ITEM, Binds.PART)
LOOKED_AT = words("numel nelement size shape dim ndim device dtype is_cuda requires_grad")  # of parameters


def class_wraps(program: Program) -> list[Wrap]:
    """Where DataParallel is called, derived from or handed on."""
    return [each for module in of_the_user(program) for each in wraps_in(module) if each.is_class]


def name_of_wrapped(wrap: Wrap) -> str | None:
    """`net` of `net = DataParallel(net)`: None if it is not wrapped so, along dim 0."""
    if wrap.call is None or wrap.call.may_have_more or wrap.argument(3, "dim") is not None:
        return None
    match wrap.module.statement(wrap.call.node):
        case ast.Assign(targets=[target]):
            return last_name(target) or None
    return None


def _names_of(program: Program, name: str) -> set[str]:
    """What a model is called: its name, and parameters of functions that are called with it."""
    names = {name}
    for module, call in program.calls:
        given = [each for each, value in handed(call.node) if last_name(value) == name]
        called = program.called(module, call.node.func) if given else None
        named = program.methods_named.get(call.method, ()) if call.method not in BUILDING else ()
        for home, function in [called] if called else named:
            taken = (home.parameter(function, call.node, each) for each in given)  # type: ignore[arg-type]
            names |= {each.arg for each in taken if each}
    return names


def copies_whole(program: Program, name: str) -> bool:
    """Whether `deepcopy(model)` or `torch.save(model, path)` may be met: a file with it has a DataParallel."""
    names = _names_of(program, name)
    return any(_copies(module, names) for module in program.modules)


def _copies(module: Module, names: Set[str]) -> bool:
    things = (call.argument(0, "obj") for call in module.calls if does(call.name) is Does.SAVE)
    copied = (call.node.args[0] for call in module.calls if call.name in COPIES and call.node.args)
    nodes = (node for thing in (*things, *copied) if thing is not None for node in nodes_in(thing))
    return any(
        last_name(node) in names and not isinstance(module.parents[node], ast.Attribute)
        for node in (*nodes, *_put_into_dictionaries(module))
    )


def _put_into_dictionaries(module: Module) -> Iterator[ast.expr]:
    """`net` of `state = {"net": net}` and of `state["net"] = net`: what is saved by that name, anywhere, has it."""
    for node in module.all(ast.Dict):
        yield from node.values
    for call in module.calls:
        if call.name == "builtins.dict":
            yield from (each.value for each in call.node.keywords)
    for statement in module.all(ast.Assign):
        if any(isinstance(target, ast.Subscript) for target in statement.targets):
            yield statement.value


@lru_cache(maxsize=1)
def trains_outside(program: Program) -> bool:
    """Whether optimizers may have what no wrapped model holds: parameters of others, tensors by themselves.

    Outputs of such a model may be the inputs of the wrapped one, and want gradients.
    """
    calls = [(module, call) for module, call in program.calls if program.reach.runs(module, call.node)]
    owners = (
        (module, call.node.func.value)  # type: ignore[attr-defined]  # of a method
        for module, call in calls
        if call.method in ("parameters", "named_parameters") and not _is_only_looked_at(module, call.node)
    )
    names = _names_of_wrapped(program)
    made = (call for _, call in calls if (call.name or "").startswith("torch.optim."))
    return not all(_is_held(*each, names) for each in owners) or any(map(_takes_tensors, made))


def _names_of_wrapped(program: Program) -> set[str]:
    """What wrapped models are called: where they are wrapped, and wherever a function is given one."""
    wraps = class_wraps(program)
    given = [(wrap.module, wrap.argument(0, "module")) for wrap in wraps]
    given += [(module, call.argument(0)) for module, call in program.calls if call.name in FUNCTIONS]
    handed_in = all_from(((module, node) for module, node in given if node), lambda each: _handed_in(*each))
    names = {name_of_wrapped(wrap) or "" for wrap in wraps} | {last_name(node) for _, node in handed_in}
    return set[str]().union(*(_names_of(program, name) for name in names - {""}))


def _handed_in(module: Module, node: ast.expr) -> Iterable[Source]:
    """What calls give a parameter; `net` of `net.cuda()`."""
    match node:
        case ast.Name() if Binds.PARAMETER in (each.how for each in module.bindings(node)):
            return module.program.flow.given(module, node)
        case ast.Call(func=ast.Attribute(value=owner)) if module.name(node.func) is None:
            return [(module, owner)]
    return ()


def _is_held(module: Module, model: ast.expr, names: Set[str], seen: Set[ast.AST] = frozenset()) -> bool:
    """Whether a wrapped model holds another, by their names; of what is given by calls, or keeps that, all that is."""
    if ast.unparse(model) == "self" and not seen:
        return True  # of a class of models
    seen = seen | {model}
    given = [each for each in _given(module, model) if each[1] not in seen]  # not what leads back to itself
    match model:
        case ast.Name():
            is_given = {each.how for each in module.bindings(model)} == {Binds.PARAMETER}
            is_by_name = model.id in names
        case ast.Attribute(value=owner, attr=name):
            is_given = all(isinstance(each, ast.Name) for _, each in given)
            is_by_name = name in names or _is_held(module, owner, names, seen)
        case _:
            is_given, is_by_name = True, False
    if is_by_name and not (given and is_given):
        return True
    return bool(given) and all(_is_held(*each, names, seen) for each in given)


def _given(module: Module, node: ast.expr) -> Iterable[Source]:
    """What an expression may be, or is made of: `layers` of `for layer in layers`; nothing of what is made."""
    match node:
        case ast.Name():
            several = [each.whole or each.node for each in module.bindings(node) if each.how in OF_SEVERAL]
            values = [(module, each) for each in several if isinstance(each, ast.expr)]
            return [*module.program.flow.given(module, node), *values]
        case ast.Subscript(value=value) | ast.Starred(value=value):
            return [(module, value)]
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return [(module, each) for each in parts]
        case ast.Call(func=ast.Name(id="getattr"), args=[owner, *_]):
            return [(module, owner)]
        case ast.Call(func=func, args=args) if (module.name(func) or "").startswith("builtins."):
            return [(module, each) for each in args]
        case ast.Call():
            return _handed_in(module, node)
    return module.program.flow.given(module, node)


def _is_only_looked_at(module: Module, requested: ast.Call) -> bool:
    """`sum(p.numel() for p in net.parameters())`, `next(net.parameters()).device`, `p.requires_grad = False`."""
    match module.parents[requested]:
        case ast.Call(func=ast.Name(id="next")) as first:
            return getattr(module.parents[first], "attr", "") in LOOKED_AT
        case ast.For(target=target) | ast.comprehension(target=target):
            each = target.elts[-1] if isinstance(target, ast.Tuple) else target
            uses = [use for _, use in loads(module, each)]
            return all(getattr(module.parents[use], "attr", "") in LOOKED_AT for use in uses)
    return False


def _takes_tensors(call: Call) -> bool:
    """`SGD([weight], lr=0.1)`, also in a group's "params"."""
    taken = (each for many in inside(call.argument(0, "params"), ast.List) for each in many.elts)
    return any(isinstance(each, (ast.Name, ast.Attribute, ast.Subscript)) for each in taken)
