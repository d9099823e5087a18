"""Whether the forward of a model leaves traces: then each rank has to run a replica of it, as DataParallel does.

A forward without traces only computes. It sets no attribute, changes nothing that is there before and after it, prints
and writes nothing, draws on no stream of the host, and asks for nothing that a replica answers otherwise (a replica has
no parameters()). Proven from the text of the project: what is called there is in one of the tables below, or a function
of the project, which is looked at too. What layers of libraries do is asked when the script runs (is_known_layer in
templates/replicas.py).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence

from dp2ddp.codemod.facts.aliases import assigned
from dp2ddp.codemod.facts.call_graph import Part
from dp2ddp.codemod.facts.computing import COMPUTING, DECORATORS, LAYERS, METHODS, computes
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.mutating import mutates
from dp2ddp.codemod.facts.mutations import How, mutations_at
from dp2ddp.codemod.facts.places import ExecutionPlace, Places
from dp2ddp.codemod.facts.roots import Roots, is_own
from dp2ddp.codemod.facts.scopes import SCRIPT, Function
from dp2ddp.codemod.facts.script import CallSite, Script, literal
from dp2ddp.codemod.facts.tables import of
from dp2ddp.codemod.facts.uses import Stopper, shorten
from dp2ddp.codemod.knowledge.libraries import may_be_local
from dp2ddp.source.projects import leading_texts

# What a replica answers otherwise than the module, or what shows that parameters are other objects.
OF_REPLICAS = {
    *of("", "parameters named_parameters buffers named_buffers state_dict _parameters _buffers"),
    *of("", "_modules __dict__ is_leaf data_ptr register_buffer register_parameter add_module"),
    *of("", "register_hook register_forward_hook register_forward_pre_hook _is_replica is_replica"),
}
PARAMETERS = {"torch.nn.Parameter", "torch.nn.parameter.Parameter"}
# Methods of modules and tensors that change more than what they give; these change a module, but give another tensor.
MODULE_METHODS = {
    *of(
        "",
        "train eval zero_grad load_state_dict share_memory apply backward retain_grad bfloat16 apply_ map_",
    ),
}
CONVERSIONS = of("", "to cuda cpu float double half type")
MAGIC = {
    "__getattr__",
    "__getattribute__",
    "__setattr__",
    "__delattr__",
    "__call__",
    "_replicate_for_data_parallel",
}
# By these come classes that are in no file that was read.
UNREAD = {
    *of("builtins", "exec __import__ compile"),
    *of("importlib", "import_module"),
    *of("torch.hub", "load"),
    *of("torch.jit", "load script trace"),
    "torch.nn.modules.module.register_module_forward_hook",
    "torch.nn.modules.module.register_module_forward_pre_hook",
}
# Their hooks set `weight` in each forward: that of a replica, so the module's own stays what it was.
PRUNING = "torch.nn.utils.prune."  # which reads it in the next round
NORMS = {
    f"torch.nn.utils.{module}{name}"
    for name in ("spectral_norm", "weight_norm")
    for module in ("", f"{name}.")
}


def trace_of_forward(modules: Modules, places: Places, wraps: Sequence[Wrap]) -> str | None:
    """The first thing by which a forward may leave a trace, and where; None: there is none."""
    missing = next(_not_read(modules, wraps), None)
    if missing:
        return f"`{missing}` was not read, and may have layers"
    for script in modules.scripts:
        for stopper in _traces(script, modules, places):
            where = script.where(stopper.node)
            where = where if script is modules.entry else f"{script.shown}, {where}"
            return f"{stopper.why} ({where})"
    return None


def _not_read(modules: Modules, wraps: Sequence[Wrap]) -> Iterator[str]:
    """Files and names that layers may come from, and that nobody has read."""
    yield from filter(may_be_local, modules.missing)
    yield from modules.unread
    if modules.entry.source.path is None:  # from stdin: nothing was looked for
        yield from _imported(modules)
    for wrap in wraps:
        script = modules.home[wrap.call.node]
        for node in ast.walk(wrap.module or ast.Pass()):
            if isinstance(node, ast.Name) and not _is_made(script, node, wrap):
                yield node.id
            yield from _loaded(script, node)


def _loaded(script: Script, node: ast.AST) -> Iterator[str]:
    """What comes out of a file, with classes from anywhere: a call, or all that a name is set to."""
    home = script.scopes.lookup(node.id, script.scopes.scope_of[node]) if isinstance(node, ast.Name) else None
    for value in home.values.get(node.id, []) if home and isinstance(node, ast.Name) else [node]:
        if isinstance(value, ast.Call) and script.scopes.name(value.func) in ("torch.load", "pickle.load"):
            yield _short(script, value)


def _imported(modules: Modules) -> Iterator[str]:
    """What the script imports that is no known library."""
    for node in modules.entry.nodes(ast.Import, ast.ImportFrom):
        names = (
            [name.name for name in node.names]
            if isinstance(node, ast.Import)
            else [getattr(node, "module", "")]
        )
        tops = {(name or ".").partition(".")[0] for name in names}
        known = {name for name in tops if not may_be_local(name)}
        yield from sorted(tops - known - sys.stdlib_module_names - modules.by_name.keys())


def _is_made(script: Script, name: ast.Name, wrap: Wrap) -> bool:
    """Whether something but the wrap itself gives a name its meaning."""
    home = script.scopes.lookup(name.id, script.scopes.scope_of[name])
    if home is None or name.id not in home.values:
        return script.scopes.name(name) is not None
    here = script.scopes.statement(wrap.call.node)
    return any(value is None or script.scopes.statement(value) is not here for value in home.values[name.id])


def _traces(script: Script, modules: Modules, places: Places) -> Iterator[Stopper]:
    for call in script.calls:
        if call.name in UNREAD and not _is_read(modules, call):
            yield Stopper(f"`{_short(script, call.node.func)}` brings code that is not read", call.node)
        if (call.name or "").startswith(PRUNING):
            yield Stopper("pruning sets weights anew in each forward", call.node)
        if call.name in NORMS and (read := next(_weights_read(modules, places), None)):
            yield Stopper(
                f"{_name_of(call)} sets weights anew in each forward, and `{read}` is read beside it",
                call.node,
            )
    for node in script.nodes(ast.ClassDef):
        assert isinstance(node, ast.ClassDef)
        if places.kind(node) == "module":
            yield from _traces_of_class(script, node)
        elif any(_name(statement) == "forward" for statement in node.body) and _may_be_module(
            modules, places, (script, node)
        ):
            yield Stopper(f"{node.name} has a forward, and may be part of a model", node)
    for inner in modules.graph.stores.get("forward", ()) if script is modules.entry else ():
        yield Stopper("a forward is replaced", inner[1])
    for function, place in places.functions.items():
        if place is ExecutionPlace.FORWARD and modules.home.get(function) is script:
            yield from _unknown_decorators(script, getattr(function, "decorator_list", []))
    roots = Roots(script, places)
    for node in script.scopes.nodes:
        if places.of(node) is ExecutionPlace.FORWARD:
            yield from _traces_of(script, modules, roots, node)


def _name_of(call: CallSite) -> str:
    return (call.name or "").rpartition(".")[2]


def _weights_read(modules: Modules, places: Places) -> Iterator[str]:
    """`layer.weight` outside of a forward, but for what initialises it."""
    for script in modules.scripts:
        for node in script.by_word.get("weight", ()):
            is_field = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
            if (
                is_field
                and places.of(node) is not ExecutionPlace.FORWARD
                and not _is_initialised(script, node)
            ):
                yield _short(script, node)


def _is_initialised(script: Script, weight: ast.expr) -> bool:
    """`nn.init.normal_(layer.weight)`, `layer.weight.data[:4].normal_()`."""
    node: ast.AST = weight
    while isinstance(parent := script.scopes.parents[node], (ast.Attribute, ast.Subscript)):
        if isinstance(parent, ast.Attribute) and mutates(parent.attr):
            return True
        node = parent
    name = script.scopes.name(parent.func) if isinstance(parent, ast.Call) else None
    return (name or "").startswith("torch.nn.init.")


def _is_read(modules: Modules, call: CallSite) -> bool:
    """`import_module("models." + name)`, of a package of the project: all its modules are read (source/projects.py)."""
    given = call.argument(0)
    return given is not None and _leading_text(given).rpartition(".")[0] in modules.by_name


def _traces_of_class(script: Script, node: ast.ClassDef) -> Iterator[Stopper]:
    """How attributes of a module are found, or calls of it, may be its own."""
    if node.keywords:
        yield Stopper("its class has another metaclass", node)
    yield from _unknown_decorators(script, node.decorator_list)
    for statement in node.body:
        if _name(statement) in MAGIC:
            yield Stopper(f"its class has a {_name(statement)} of its own", statement)


def _may_be_module(modules: Modules, places: Places, owner: Part) -> bool:
    """Whether a class that is no module by its known bases has others, or an heir that is one."""
    return any(
        places.kind(relative) is not None
        or not all(_is_plain_base(home, modules, base) for base in relative.bases)
        for home, relative in modules.graph.related(owner)
        if isinstance(relative, ast.ClassDef)
    )


def _is_plain_base(script: Script, modules: Modules, base: ast.expr) -> bool:
    """A class of the project, which is among the related ones, or one that makes no module."""
    return bool(modules.definitions(script, base)) or script.scopes.name(base) in (
        "builtins.object",
        "abc.ABC",
    )


def _unknown_decorators(script: Script, decorators: list[ast.expr]) -> Iterator[Stopper]:
    for decorator in decorators:
        if (
            script.scopes.name(decorator.func if isinstance(decorator, ast.Call) else decorator)
            not in DECORATORS
        ):
            yield Stopper(f"the decorator `{_short(script, decorator)}` is not known", decorator)


def _traces_of(script: Script, modules: Modules, roots: Roots, node: ast.AST) -> Iterator[Stopper]:
    """What one node of a forward does beside computing."""
    if isinstance(node, (ast.Await, ast.Yield, ast.YieldFrom, ast.Delete)):
        yield Stopper("it stops on its way, or deletes something", node)
    if isinstance(node, ast.Attribute) and f".{node.attr}" in OF_REPLICAS:
        yield Stopper(f"`.{node.attr}` is another thing in a replica", node)
    if isinstance(node, (ast.Attribute, ast.Name)) and script.scopes.name(node) in PARAMETERS:
        yield Stopper("a replica's parameters are no nn.Parameter", node)
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and not _is_context(script, node):
        yield Stopper(f"forward sets `{_short(script, node)}`", node)
    for change in mutations_at(script, node):
        is_new = roots.is_new_container(change.thing)
        is_shared = _may_change(change.how, change.method) and not is_new and roots.of(change.thing)
        is_of_library = (
            change.how in (How.PART, How.OPERATOR) and script.scopes.name(change.thing) is not None
        )
        if change.how is How.REBOUND or is_shared or is_of_library:
            yield Stopper(f"forward changes `{_short(script, change.thing)}`", change.act)
    if isinstance(node, ast.Call):
        yield from _traces_of_call(script, modules, roots, node)


def _may_change(how: How, method: str) -> bool:
    return how is not How.METHOD or mutates(method)


def _is_context(script: Script, node: ast.Attribute) -> bool:
    """`ctx.scale = scale`, in a torch.autograd.Function."""
    function = script.scopes.function(node)
    first = function.args.args[0].arg if isinstance(function, Function) and function.args.args else None
    owner = script.scopes.owner_class(node)
    bases = {script.scopes.name(base) for base in owner.bases} if owner else set()
    is_function = bool(bases & {"torch.autograd.Function", "torch.autograd.function.Function"})
    return is_function and isinstance(node.value, ast.Name) and node.value.id == first


def _traces_of_call(script: Script, modules: Modules, roots: Roots, node: ast.Call) -> Iterator[Stopper]:
    name = script.scopes.name(node.func)
    call = CallSite(node, name, node.func.attr if isinstance(node.func, ast.Attribute) else None)
    inplace = call.keyword("inplace")
    if inplace is not None and literal(inplace.value) is not False and node.args and roots.of(node.args[0]):
        yield Stopper(f"forward changes `{_short(script, node.args[0])}`", node)
    if not (
        _is_own(script, modules, node)
        or (_is_known_method(script, modules, call) if name is None else computes(name))
    ):
        yield Stopper(f"`{_short(script, node.func)}` may do more than compute", node)


def _is_own(script: Script, modules: Modules, node: ast.Call) -> bool:
    """A function of the project, which is looked at, too; or a class that only names its parts."""
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr == "apply":  # of a torch.autograd.Function
        return bool(modules.definitions(script, function.value))
    definitions = modules.definitions(script, function)
    if not definitions:
        return False
    return all(
        isinstance(item, Function)
        or isinstance(item, ast.ClassDef)
        and not any(isinstance(each, Function) for each in item.body)
        and not item.keywords
        for _, item in definitions
    )


def _is_known_method(script: Script, modules: Modules, call: CallSite) -> bool:
    """`x.view(...)`, `self.layer(x)`, `layer(x)`: of a tensor, or a part of the model, which is looked at, too."""
    function = call.node.func
    if isinstance(function, ast.Attribute) and f".{function.attr}" in MODULE_METHODS:
        return False
    if is_own(function) and function.attr == "__getattr__":  # which finds parts and parameters alone
        return True
    if is_own(function):
        is_named = _names_part(modules, function.attr) or f".{function.attr}" in LAYERS
        return is_named and _is_layer(modules, function.attr)
    if isinstance(function, ast.Attribute):
        if f".{function.attr}" in CONVERSIONS and _is_module(modules, function.value):
            return False
        is_known = f".{function.attr}" in METHODS | LAYERS or _names_part(modules, function.attr)
        return is_known or mutates(function.attr)  # what it changes is asked elsewhere
    return _gives_layer(script, modules, function)


def _is_module(modules: Modules, node: ast.expr) -> bool:
    """Whether it is `self`, or an attribute of it that a layer is given to."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if not is_own(node):
        return isinstance(node, ast.Name) and node.id == "self"
    values = (
        (script, getattr(script.scopes.statement(target), "value", None))
        for script, target in modules.graph.stores.get(node.attr, ())
    )
    return any(
        isinstance(value, ast.Call)
        and (
            (script.scopes.name(value.func) or "").startswith(("torch.nn.", "torchvision."))
            or any(
                isinstance(definition, ast.ClassDef)
                for _, definition in modules.definitions(script, value.func)
            )
        )
        and script.scopes.name(value.func) not in PARAMETERS
        for script, value in values
    )


def _gives_layer(script: Script, modules: Modules, node: ast.AST | None) -> bool:
    """Whether what is called is a part of the module: `layer`, `self.layers[0]`, `nn.ReLU()`, `getattr(self, "fc")`."""
    match node:
        case ast.Name():
            made = script.scopes.value(node)
            is_looked_up = isinstance(made, ast.Call) and script.scopes.name(made.func) == "builtins.getattr"
            return not is_looked_up or _gives_layer(script, modules, made)
        case ast.Subscript(value=value):
            while isinstance(value, ast.Subscript):
                value = value.value
            home = (
                script.scopes.lookup(value.id, script.scopes.scope_of[value])
                if isinstance(value, ast.Name)
                else None
            )
            return is_own(value) or home is not None and home is not script.scopes.top
        case ast.IfExp(body=inner, orelse=other):
            return _gives_layer(script, modules, inner) and _gives_layer(script, modules, other)
        case ast.Attribute():
            return is_own(node) and _is_layer(modules, node.attr)
        case ast.Call() if script.scopes.name(node.func) == "builtins.getattr":
            text = _leading_text(node.args[1]) if len(node.args) > 1 else ""
            return bool(text) and not any(
                name.startswith(text) for inner in modules.scripts for name in inner.own_methods
            )
        case ast.Call(func=ast.Attribute(attr="__getattr__") as getter) if is_own(getter):
            return True
        case ast.Call():
            return script.scopes.name(node.func) in COMPUTING
    return False


def _leading_text(node: ast.expr) -> str:
    """The constant text that an expression begins with, up to what is filled in."""
    text = next(leading_texts(node), "")
    return text.partition("{")[0].partition("%")[0]


def _is_layer(modules: Modules, name: str) -> bool:
    """Whether what `self.NAME` is set to is no function that may do more than compute: `self.log = print` is one."""
    return all(
        called is None or computes(called) or called.startswith(SCRIPT)
        for script, target in modules.graph.stores.get(name, ())
        for called in _functions_given_to(script, target)
    )


def _functions_given_to(script: Script, target: ast.Attribute) -> Iterator[str | None]:
    """The qualified names of what an assignment gives to an attribute, where they are names and no calls."""
    statement = script.scopes.statement(target)
    if not isinstance(statement, ast.Assign):
        return
    for whole in statement.targets:
        for to, value in assigned(script, whole, statement.value):
            if to is target and isinstance(value, (ast.Name, ast.Attribute)):
                yield script.scopes.name(value)


def _names_part(modules: Modules, name: str) -> bool:
    """Whether the project has a method of this name, or an attribute."""
    return name in modules.graph.stores or any(name in script.own_methods for script in modules.scripts)


def _name(node: ast.stmt) -> str:
    return node.name if isinstance(node, Function) else ""


def _short(script: Script, node: ast.AST) -> str:
    return shorten(script.text_of(node))
