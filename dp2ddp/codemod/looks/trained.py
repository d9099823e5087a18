"""What models are called that are wrapped, and what a program trains beside them, or copies whole."""

import ast
from collections.abc import Iterator, Set
from functools import lru_cache

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.reading_methods import words
from dp2ddp.codemod.looks.ours import of_the_user
from dp2ddp.codemod.looks.uses import loads
from dp2ddp.codemod.looks.wraps import Wrap, wraps_in
from dp2ddp.codemod.model.flow import Source
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import BUILDING, handed, inside, last_name
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.scopes import Binds
from dp2ddp.source.parsing import nodes_in

COPIES = words(
    "copy.copy copy.deepcopy torch.optim.swa_utils.AveragedModel ema_pytorch.EMA",
    "timm.utils.ModelEma timm.utils.ModelEmaV2 timm.utils.ModelEmaV3",
)
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
    names: set[str] = set()
    for wrap in class_wraps(program):
        if name := name_of_wrapped(wrap):
            names |= _names_of(program, name) | {last_name(wrap.argument(0, "module"))}
    requested = (
        (module, call.node)
        for module, call in program.calls
        if call.method in ("parameters", "named_parameters") and not _is_only_looked_at(module, call.node)
    )
    owners = ((module, node.func.value) for module, node in requested)  # type: ignore[attr-defined]  # of methods
    made = (call for _, call in program.calls if (call.name or "").startswith("torch.optim."))
    return any(_may_be_other(*each, names - {""}) for each in owners) or any(map(_takes_tensors, made))


def _may_be_other(module: Module, model: ast.AST, names: Set[str], seen: Set[ast.AST] = frozenset()) -> bool:
    """Whether it may be another model than the wrapped one, by its name; a parameter is what calls give it."""
    chain = {*map(last_name, nodes_in(model))} - {""}
    if chain <= {"self"}:
        return False
    if any(_makes(module, each) for each in inside(model, ast.Call)):
        return True
    given = {last_name(each): _given(module, each) for each in inside(model, ast.Name, ast.Attribute)}
    sources = [each for many in given.values() for each in many if each[1] not in seen]
    if chain & names - {name for name, many in given.items() if many} or not sources:
        return not chain & names
    seen = seen | {source for _, source in sources}
    return any(_may_be_other(*each, names, seen) for each in sources)


def _makes(module: Module, call: ast.Call) -> bool:
    """`deepcopy(net.module)`, `Head(net.width)`: not `net.cuda()`, nor `getattr(net, "module")`."""
    name = module.name(call.func) or ""
    return bool(name or isinstance(call.func, ast.Name)) and not name.startswith("builtins.")


def _given(module: Module, node: ast.expr) -> list[Source]:
    """What calls give a parameter, or one that an attribute keeps."""
    given = [*module.program.flow.given(module, node)]
    if isinstance(node, ast.Name):
        return given if [each.how for each in module.bindings(node)] == [Binds.PARAMETER] else []
    return given if all(isinstance(each, ast.Name) for _, each in given) else []


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
