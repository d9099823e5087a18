"""What forwards and hooks write to.

DataParallel's replicas are threads of one process: what a forward writes to `self` is lost with its replica, what it
writes to anything else is there for the next replica, and afterwards. Whatever cannot be told counts as the latter.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property, lru_cache

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.reading_methods import (
    CHANGING,
    CHANGING_HOMES,
    COMPUTING_HOMES,
    FILLING,
    LOOKING,
    MODULE_HOMES,
    READING,
)
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import FUNCTIONS, Function
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.sharing import Sharing
from dp2ddp.source.parsing import nodes_in

MODULE = "torch.nn.Module"
WRAP = "torch.nn.DataParallel"  # whose own methods run once, not for each replica
OF_FUNCTION = ("torch.autograd.Function", "torch.autograd.function.Function")
NO_MODULES = (
    "builtins.",
    "torchvision.transforms",
    "torchvision.datasets",
    "torch.utils.",
    "torch.optim.",
    "abc.",
    "enum.",
    "typing.",
    "collections.",
    "argparse.",
    "threading.",
)
HARMLESS = (None, Does.WRAP, Does.DRAW, Does.COUNT_DEVICES, Does.MAKE_DEVICE, Does.SET_DEVICE, Does.CLOCK)
HOLDING = ("torch.nn.Sequential", "torch.nn.Module", "torch.nn.DataParallel")  # layers that are not seen here
BUILDING = ("__init__", "__new__", "__post_init__", "__init_subclass__", "__setstate__")
FILLED_LATER = ("builtins.list", "builtins.dict", "builtins.set", "collections.", "types.SimpleNamespace")
BACKWARD = ("backward", "vjp")
SAVED = "torch.autograd.graph.saved_tensors_hooks"
SHOWING = ("__repr__", "__str__", "__del__", "__getstate__", "__reduce__")
CONSUMED = (
    "iter",
    "zip",
    "map",
    "filter",
    "enumerate",
    "reversed",
    "defaultdict",
    "ChainMap",
    "cycle",
    "count",
    "chain",
)


@lru_cache(maxsize=1)  # each mention of DataParallel asks
def fills_something(program: Program) -> bool:
    """Whether a forward or a hook writes to anything but locals and plain attributes of self."""
    return next(fillings(program), None) is not None


def fillings(program: Program) -> Iterator[tuple[Module, ast.AST]]:
    """Where forwards and hooks write to what outlives them."""
    return forwards_of(program).fillings()


@lru_cache(maxsize=1)
def forwards_of(program: Program) -> Forwards:
    """Found out once a program."""
    return Forwards(program)


class Forwards:
    """The functions of a program that run in forwards and in hooks, and what they write to."""

    def __init__(self, program: Program) -> None:
        self.program, self.sharing = program, Sharing(program)
        self.methods: dict[str, list[tuple[Module, Function]]] = {}
        for module in program.modules:
            for method in module.all(ast.FunctionDef):
                if isinstance(module.parents[method], ast.ClassDef):
                    self.methods.setdefault(method.name, []).append((module, method))
        self.running: dict[ast.AST, Module] = {}  # functions and lambdas of forwards and hooks
        self.building: dict[ast.AST, Module] = {}  # what runs before: what it hands on runs later
        self.bound: set[ast.AST] = (
            set()
        )  # methods of the module itself: `layer.register_forward_hook(self.keep)`
        self._nodes: dict[ast.AST, list[ast.AST]] = {}
        self._seen: set[ast.AST] = set()  # values and classes that were looked through
        self._left: dict[tuple[ast.AST, bool], tuple[list[ast.Call], list[ast.AST]]] = {}  # to be followed
        self._begin()
        before = -1
        while before != (before := len(self.running) + len(self.building) + len(self.sharing.parameters)):
            for function, module in [*self.building.items()]:
                self._follow(module, function, runs=False)
            for function, module in [*self.running.items()]:
                self._follow(module, function, runs=True)

    def fillings(self) -> Iterator[tuple[Module, ast.AST]]:
        for function, module in self.running.items():
            yield from self.fillings_of(module, function)

    def fillings_of(self, module: Module, function: ast.AST) -> Iterator[tuple[Module, ast.AST]]:
        writing = Writing(self, module, function)
        yield from ((module, node) for node in self.nodes_of(function) if writing.fills(node))

    @cached_property
    def fillings_in_backward(self) -> tuple[tuple[Module, ast.AST], ...]:
        """Where backwards and hooks on gradients write to what outlives them."""
        return tuple(self._fillings_in_backward())

    def _fillings_in_backward(self) -> Iterator[tuple[Module, ast.AST]]:
        for root_home, root in self.roots_of_backward():
            for home, function in self._reached_from(root_home, root):
                for module, node in self.fillings_of(home, function):
                    name = module.name(node.func) or "" if isinstance(node, ast.Call) else "builtins."
                    if name.startswith(("builtins.", "logging.")):  # others are kernels, which only compute
                        yield module, node

    @cached_property
    def surely_running(self) -> tuple[tuple[Module, ast.AST], ...]:
        """Forwards of layers, and what they call for sure: by its name, or as a method of their own class."""
        return tuple(self._surely_running())

    def _surely_running(self) -> Iterator[tuple[Module, ast.AST]]:
        seen = {each for each in self.running if getattr(each, "name", "") == "forward"}
        pending = [(self.running[each], each) for each in seen]
        while pending:
            module, function = pending.pop()
            yield module, function
            owner = module.parents[function]
            own = functions_of(owner) if isinstance(owner, ast.ClassDef) else []
            called = {each.attr for each in self.nodes_of(function) if isinstance(each, ast.Attribute)}
            named = [(module, each) for each in own if each.name in called]
            reached = [
                each for each in (*named, *self.program.closure(module, function)) if each[1] not in seen
            ]
            pending += reached
            seen |= {each for _, each in reached}

    def roots_of_backward(self) -> Iterator[tuple[Module, ast.AST]]:
        for module in self.program.modules:
            for node in module.all(ast.ClassDef):
                if any(module.name(base) in OF_FUNCTION for base in node.bases):
                    yield from ((module, each) for each in functions_of(node) if each.name in BACKWARD)
            for call in module.calls:
                around = module.function_around(call.node)
                is_of_rows = (
                    call.method == "register_hook" and around in self.running
                )  # of parameters: of the sum
                is_of_layers = call.method.startswith("register_") and "backward" in call.method
                if is_of_rows or is_of_layers or call.name == SAVED:
                    yield from ((module, each) for each in call.node.args)

    def _reached_from(self, module: Module, root: ast.AST) -> Iterator[tuple[Module, ast.AST]]:
        """A function or an expression, and what it names, and so on."""
        seen, pending = {root}, [(module, root)]
        while pending:
            home, function = pending.pop()
            yield home, function
            for node in self.nodes_of(function):
                if isinstance(node, (ast.Name, ast.Attribute)):
                    named = [each for each in self._functions(home, node) if each[1] not in seen]
                    pending += named
                    seen |= {each for _, each in named}

    def nodes_of(self, function: ast.AST) -> list[ast.AST]:
        if function not in self._nodes:
            self._nodes[function] = nodes_in(function)
        return self._nodes[function]

    # --- which functions run

    def _begin(self) -> None:
        for module in self.program.modules:
            for node in module.all(ast.ClassDef):
                if self.program.reach.runs(module, node) and self.is_part(module, node):
                    self._add_part(module, node)
            for call in module.calls:
                is_hook = (
                    call.method.startswith("register_")
                    and "hook" in call.method
                    and "step" not in call.method
                )
                if is_hook and call.method not in self.methods or call.name == SAVED:
                    for given in call.node.args:
                        self._hand_on(module, given)
                        self._taint(module, given, 0)
                if call.name and self._class(call.name) and self.is_part(*self._class(call.name)):  # type: ignore[misc]
                    for given in (*call.node.args, *(each.value for each in call.node.keywords)):
                        self._hand_on(module, given)
                match call.node.args if call.name == "builtins.setattr" else []:
                    case [_, ast.Constant(value="forward"), given]:
                        self._hand_on(module, given)
                for place, given in _given(call.node) if self._may_be_model(call) else ():
                    if any(self._is_filled_later(module, each) for each in module.values(given)):
                        self._taint(module, call.node.func, place)
            for assigned in module.all(ast.Assign):
                if any(
                    isinstance(each, ast.Attribute) and each.attr == "forward" for each in assigned.targets
                ):
                    self._hand_on(module, assigned.value)

    def _may_be_model(self, call: Call) -> bool:
        """`net(x)`, `self.net(x)`: of a variable, or of an attribute that the program sets."""
        is_set = call.method in self.sharing.attributes.values and call.method not in self.methods
        return call.name is None and (isinstance(call.node.func, ast.Name) or is_set)

    def _is_filled_later(self, module: Module, value: ast.AST, *, deep: bool = True) -> bool:
        """What a model is given that all replicas have, as they have no copy of it: an empty list, an object."""
        match value:
            case ast.List(elts=[]) | ast.Dict(keys=[]):
                return True
            case ast.Call(func=ast.Attribute(attr="parse_args")):
                return True
            case ast.Call(func=func):
                name = module.name(func) or ""
                factories = self._functions(module, func) if isinstance(func, ast.Name) and deep else []
                return (
                    name.startswith(FILLED_LATER)
                    or self._class(name) is not None
                    or any(
                        self._is_filled_later(home, each, deep=False)
                        for home, factory in factories
                        for value in self.sharing.returned_by(factory)
                        for each in home.values(value)
                    )
                )
        return False

    def _add_part(self, module: Module, node: ast.ClassDef) -> None:
        for each in node.body:  # `size = Descriptor()`
            if isinstance(each, ast.Assign):
                self._hand_on(module, each.value)
        bases = {module.name(base) for base in node.bases}
        is_whole = all(
            base == MODULE or self._class(base) for base in bases
        )  # else its forward may be a library's
        for function in functions_of(node):
            if function.name in BUILDING:
                self._build(module, function)
            elif function.name not in SHOWING and (
                not is_whole or function.name == "forward" or function.name.startswith("__")
            ):
                self._run(module, function)

    def _class(self, dotted: str | None) -> tuple[Module, ast.ClassDef] | None:
        home, _, name = (dotted or "").rpartition(".")
        module = self.program.by_name.get(home)
        if module is None:
            return None
        nodes = (each.node for each in module.top.bindings.get(name, ()))
        return next(((module, each) for each in nodes if isinstance(each, ast.ClassDef)), None)

    def _functions(self, module: Module, node: ast.expr) -> list[tuple[Module, Function]]:
        """The functions of the program that an expression names; methods by their names alone."""
        home, _, name = (self.sharing.name(module, node) or "").rpartition(".")
        there = self.program.by_name.get(home)
        nodes = [each.node for each in there.top.bindings.get(name, ())] if there else []
        functions = [(there, each) for each in nodes if isinstance(each, FUNCTIONS)]
        if (
            functions
            or not isinstance(node, ast.Attribute)
            or name
            and not self.program.is_local(self.sharing.name(module, node))
        ):
            return functions  # type: ignore[return-value]
        return self.methods.get(node.attr, [])

    def is_part(self, module: Module, node: ast.ClassDef, seen: tuple[ast.AST, ...] = ()) -> bool:
        """Whether a class derives from Module; one with a forward may, if a base of it is not known."""
        has_forward = any(each.name == "forward" for each in functions_of(node))
        for base in node.bases:
            name = module.name(base)
            local = self._class(name)
            if local and local[1] not in seen:
                if self.is_part(*local, (*seen, node)):
                    return True
            elif local or name in (*OF_FUNCTION, WRAP) or (name or "").startswith(NO_MODULES):
                continue
            elif has_forward or (name or "").startswith(MODULE_HOMES):
                return True
        return False

    def _build(self, module: Module, function: Function) -> None:
        if function not in self.building:
            self.building[function] = module
            self.sharing.outer.add(function)
            self._share_first(module, function)

    def _share_first(self, module: Module, function: Function) -> None:
        """`self` holds what is shared."""
        if isinstance(module.parents[function], ast.ClassDef) and not _is_static(function, "staticmethod"):
            self.sharing.parameters |= {(function, each.arg) for each in function.args.args[:1]}

    def _run(self, module: Module, function: Function) -> None:
        if function in self.running:
            return
        self.running[function] = module
        name = getattr(function, "name", "")
        self.sharing.returns.setdefault(name, []).append((module, function))
        self.sharing.parameters |= {(function, name) for name in _with_own_defaults(function)}
        self._share_first(module, function)

    def _hand_on(self, module: Module, node: ast.expr) -> None:
        """What is handed on may be called in a forward; what is called here has run by then."""
        called = {each.func for each in nodes_in(node) if isinstance(each, ast.Call)}
        owners = {
            each.value
            for each in nodes_in(node)
            if isinstance(each, ast.Attribute) and self.sharing.attributes.is_constant(each.attr)
        }  # of `data.classes`, a number, nobody gets the data
        for each in nodes_in(node):
            if isinstance(each, ast.Lambda):
                self._run(module, each)
            elif isinstance(each, (ast.Name, ast.Attribute)) and each not in owners:
                if each not in called:
                    self.bound |= {function for _, function in self._functions(module, each)}
                self._mention(module, each, runs=each not in called)

    def _mention(self, module: Module, node: ast.Name | ast.Attribute, *, runs: bool) -> None:
        """What a function names, it may call."""
        for home, function in self._functions(module, node):
            if runs:
                self._run(home, function)
            else:
                self._build(home, function)
        name = self.sharing.name(module, node)
        owner = self._class(name) or self._class((name or "").rpartition(".")[0])
        if owner and owner[1] not in self._seen:
            self._seen.add(owner[1])
            self._use_class(*owner)
        if isinstance(node, ast.Name):
            self._use_variable(module, node)

    def _use_class(self, module: Module, node: ast.ClassDef) -> None:
        """What Python itself calls of an object of a class; the forward and backward of a Function."""
        is_function = any(module.name(base) in OF_FUNCTION for base in node.bases)
        for function in functions_of(node):
            is_called = function.name.startswith("__") and function.name not in SHOWING
            if (
                is_called
                and function.name not in BUILDING
                or is_function
                and function.name in ("forward", "backward")
            ):
                self._run(module, function)

    def _use_variable(self, module: Module, node: ast.Name) -> None:
        """A table of functions; a function of a function around."""
        scope = module.scope_of[node].lookup(node.id)
        if scope is None or scope.node in self.running:
            return
        for binding in scope.bindings[node.id]:
            if isinstance(binding.node, FUNCTIONS):
                self._run(module, binding.node)
            elif isinstance(binding.node, ast.expr) and binding.node not in self._seen:
                self._seen.add(binding.node)
                self._hand_on(module, binding.node)

    def _follow(self, module: Module, function: ast.AST, *, runs: bool) -> None:
        """What a function calls and names; of one that builds a model, what it hands on."""
        if (function, runs) not in self._left:
            self._left[function, runs] = self._calls_and_names(function, runs)
        calls, names = self._left[function, runs]
        self._left[function, runs] = (
            [each for each in calls if not self._hand_in(module, each, runs=runs)],
            [each for each in names if not self._follow_name(module, each, runs=runs)],
        )

    def _calls_and_names(self, function: ast.AST, runs: bool) -> tuple[list[ast.Call], list[ast.AST]]:
        """What there is to follow in a function."""
        calls = [each for each in self.nodes_of(function) if isinstance(each, ast.Call)]
        names: list[ast.AST] = [
            each
            for each in self.nodes_of(function)
            if isinstance(each, ast.Name)
            and isinstance(each.ctx, ast.Load)
            or isinstance(each, ast.Attribute)
            and (isinstance(each.ctx, ast.Load) or each.attr in self.methods)
            or not runs
            and isinstance(each, FUNCTIONS)
            and each is not function
        ]  # an attribute that is set may be a property
        return calls, names

    def _follow_name(self, module: Module, node: ast.AST, *, runs: bool) -> bool:
        """Whether all is said of a name, an attribute or a function inside; or else more may be known later."""
        call = module.parents[node]
        is_called = isinstance(call, ast.Call) and call.func is node
        is_applied = _is_applied(module, node)
        if isinstance(node, FUNCTIONS):
            if not is_applied:
                self._run(module, node)
            return True
        assert isinstance(node, (ast.Name, ast.Attribute))
        if self._is_of_library(module, node):
            return False
        is_handed_on = not runs and not is_called and not is_applied
        if is_handed_on:
            self.bound |= {each for _, each in self._functions(module, node)}
        self._mention(module, node, runs=runs or is_handed_on)
        made = self._class(self.sharing.name(module, node)) if runs and is_called else None
        if made and not self.is_part(*made):  # `Item(x)`: what it keeps on itself is its own
            self.running.update((each, made[0]) for each in functions_of(made[1]) if each.name in BUILDING)
        return True

    def _is_of_library(self, module: Module, node: ast.AST) -> bool:
        """`parts.append`, of a list that is made here; `x.view`; `super().__init__`, which is looked at by itself."""
        if not isinstance(node, ast.Attribute):
            return False
        if self._class(self.sharing.name(module, node.value)):  # `Registry.get(name)`
            return False
        is_known = node.attr in READING | FILLING
        return node.attr in BUILDING or is_known and not self.sharing.level(module, node.value)

    # --- what is handed in

    def _hand_in(self, module: Module, node: ast.Call, *, runs: bool) -> bool:
        """What a call gives that is shared; whether that is all that it gives."""
        given = [(place, value) for place, value in _given(node) if not isinstance(value, ast.Constant)]
        shared = [(place, value) for place, value in given if self.sharing.level(module, value)]
        for place, _ in shared if runs else ():
            self._taint(module, node.func, place)
        for _, value in (
            given if shared else ()
        ):  # `map(f, items)`, `checkpoint(self.block, x)`: to any parameter
            is_method = isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name)
            if is_method or isinstance(value, (ast.Name, ast.Lambda)):
                self._taint(module, value, None)
        return len(shared) == len(given)

    def _taint(self, module: Module, node: ast.expr, place: int | str | None) -> None:
        """Something shared is given to a function, at a place or by a keyword; or it may be anywhere."""
        if isinstance(node, ast.Lambda):
            functions: list[tuple[Module, Function]] = [(module, node)]
        else:
            functions = self._functions(module, node)
        is_method = isinstance(node, ast.Attribute) and node.attr in READING | FILLING
        if (
            not functions and place is not None and self.sharing.name(module, node) is None and not is_method
        ):  # of layers
            functions = self._forwards_of(node)
        for home, function in functions:
            names = _parameters(function, is_method=isinstance(home.parents[function], ast.ClassDef))
            if isinstance(place, int):
                names = names[place : place + 1] or names[-1:]
            elif isinstance(place, str):
                names = [place] if place in names else names[-1:]
            self.sharing.parameters |= {(function, name) for name in names}

    def _forwards_of(self, node: ast.expr) -> list[tuple[Module, Function]]:
        """The forwards that `self.layer(...)` may call: those of the classes that it is set to, or all."""
        name = node.attr if isinstance(node, ast.Attribute) else ""
        values = self.sharing.attributes.values.get(name, [])
        kinds = [
            self.sharing.name(module, value.func) if isinstance(value, ast.Call) else None
            for module, value in values
        ]
        layers = [
            kind for kind in kinds if kind and kind.startswith("torch.nn.") and not kind.startswith(HOLDING)
        ]
        own = [each for each in map(self._class, kinds) if each]
        forwards = [*self.methods.get("forward", ()), *self.methods.get("__call__", ())]
        if not kinds or len(layers) + len(own) < len(kinds):
            return forwards
        return [(home, each) for home, each in forwards if home.parents[each] in {kind for _, kind in own}]

    # --- objects of libraries

    @cached_property
    def consumed(self) -> set[str]:
        """Attributes and variables that change when they are looked at: iterators, dicts with defaults."""
        values = self.sharing.attributes.values
        consumed = {name for name, each in values.items() if any(_is_consumed(*value) for value in each)}
        for module in self.program.modules:
            for name, bindings in module.top.bindings.items():
                consumed |= {
                    name
                    for each in bindings
                    if isinstance(each.node, ast.expr) and _is_consumed(module, each.node)
                }
        return consumed

    def is_layer(self, node: ast.expr) -> bool:
        """`self.resnet`, whose methods are a library's forwards: whatever it is set to is a module."""
        while isinstance(node, (ast.Subscript, ast.Attribute, ast.Call)) and not (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        ):
            node = node.func if isinstance(node, ast.Call) else node.value
        if not isinstance(node, ast.Attribute):
            return False
        values = self.sharing.attributes.values.get(node.attr)
        return bool(values) and all(self._is_module(module, value) for module, value in values or ())

    def _is_module(self, module: Module, value: ast.expr | None) -> bool:
        for _ in range(4):
            if isinstance(value, ast.Name) and (scope := module.scope_of[value].lookup(value.id)):
                value = next(
                    (each.node for each in scope.bindings[value.id] if isinstance(each.node, ast.expr)), None
                )
        if isinstance(value, ast.Constant):
            return value.value is None
        while (
            isinstance(value, (ast.Call, ast.Attribute, ast.Subscript))
            and self.sharing.name(module, value) is None
        ):
            if (
                isinstance(value, ast.Call)
                and self.sharing.name(module, value.func) == "builtins.getattr"
                and value.args
            ):
                value = value.args[0]
            else:
                value = value.func if isinstance(value, ast.Call) else value.value
        name = module.name(value) or ""
        local = self._class(name)
        return self.is_part(*local) if local else f"{name}.".startswith(MODULE_HOMES)


class Writing:
    """Whether a node of a function that runs in a forward writes to what outlives it."""

    def __init__(self, forwards: Forwards, module: Module, function: ast.AST) -> None:
        self.forwards, self.module, self.function = forwards, module, function
        self.sharing = forwards.sharing

    def fills(self, node: ast.AST) -> bool:
        match node:
            case ast.Global() | ast.Nonlocal():
                return True
            case ast.Attribute(value=owner, ctx=ast.Store() | ast.Del()):
                if self.is_own_self(owner):
                    return isinstance(self.module.parents[node], ast.AugAssign) and self._may_be_container(
                        node
                    )
                return self.is_shared(owner) or self._is_named(owner)
            case ast.Subscript(value=owner, ctx=ast.Store() | ast.Del()):
                return self.is_shared(owner) or self._is_named(owner)
            case ast.AugAssign(target=ast.Name() as target):
                return self.is_shared(target) if self._is_local(target) else True
            case ast.Attribute(value=owner, attr=attr) if attr in FILLING and self.is_shared(owner):
                if attr in READING and not self._is_statement(node):  # `x.add(y)`, of tensors
                    return False
                return attr not in self.forwards.methods or not self._is_object(owner)
            case ast.Attribute(attr=attr) if attr in self.forwards.consumed:
                return self.is_shared(node)
            case ast.Name(id=name) if name in self.forwards.consumed:
                return self.module.scope_of[node].lookup(name) is self.module.top
            case ast.Call():
                return self._call_fills(Call(node, self.sharing.name(self.module, node.func)))
        return False

    def is_shared(self, node: ast.expr) -> bool:
        return self.sharing.is_shared(self.module, node)

    def _is_named(self, owner: ast.expr) -> bool:
        """A class, a function, a file: `Net.count = 1`."""
        return self.module.name(owner, follow=False) is not None

    def _is_statement(self, node: ast.expr) -> bool:
        """Whether a method is called for what it does, or handed on."""
        call = self.module.parents[node]
        is_called = isinstance(call, ast.Call) and call.func is node
        return not is_called or isinstance(self.module.parents[call], ast.Expr)

    def _is_local(self, target: ast.Name) -> bool:
        scope = self.module.scope_of[target].lookup(target.id)
        return scope is not None and scope is not self.module.top

    def _may_be_container(self, node: ast.Attribute) -> bool:
        """`self.seen += [x]` extends the list that all replicas have; `self.count += 1` is lost with the replica."""
        attributes = self.sharing.attributes
        return not attributes.is_copied(node.attr) and not attributes.is_constant(node.attr)

    def _is_object(self, owner: ast.expr) -> bool:
        """Not of the containers that the program itself sets the attribute to."""
        name = owner.attr if isinstance(owner, ast.Attribute) else ""
        values = self.sharing.attributes.values.get(name, [])
        return bool(values) and not any(
            isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.Constant))
            or value is None
            for _, value in values
        )

    def is_own_self(self, owner: ast.expr) -> bool:
        """`self`, where that is a replica, and not the module itself."""
        if not self.is_self(owner) or isinstance(owner, ast.Call):
            return self.is_self(owner)
        scope = self.module.scope_of[owner].lookup(owner.id)  # type: ignore[attr-defined]
        is_closure = scope is not None and self.sharing.is_closure(self.module, owner, scope)
        return not is_closure and (scope is None or scope.node not in self.forwards.bound)

    def is_self(self, owner: ast.expr) -> bool:
        """`self` of a module, the context of a Function, or an object being made."""
        if isinstance(owner, ast.Call):
            return self.sharing.name(self.module, owner.func) == "builtins.super"
        if not isinstance(owner, ast.Name):
            return False
        scope = self.module.scope_of[owner].lookup(owner.id)
        function = scope.node if scope else None
        kind = self.module.parents.get(function) if function else None
        if not isinstance(kind, ast.ClassDef) or not isinstance(function, ast.FunctionDef):
            return False
        is_function = any(self.module.name(base) in OF_FUNCTION for base in kind.bases)
        is_kept = self.forwards.is_part(self.module, kind) or is_function or function.name in BUILDING
        arguments = function.args.args
        is_first = bool(arguments) and arguments[0].arg == owner.id
        return is_kept and is_first and (is_function or not _is_static(function))

    def _call_fills(self, call: Call) -> bool:
        given = [*call.node.args, *(each.value for each in call.node.keywords)]
        shared = [each for each in given if self.is_shared(each)]
        name, function = call.name, call.node.func
        kind = (
            function.value if isinstance(function, ast.Attribute) and function.attr == "apply" else function
        )
        if self.forwards._functions(self.module, function) or self.forwards._class(self.module.name(kind)):
            return False  # looked at, too
        if name is None:
            return self._is_unknown(function) or self._method_fills(call, function)
        if name in ("builtins.setattr", "builtins.delattr"):
            return not self.is_own_self(given[0]) if given else False
        if name.startswith("builtins."):
            last = name.partition(".")[2]
            if last == "next":  # `next(self.parameters())` begins anew
                return not isinstance(given[0], ast.Call)
            return last not in (*LOOKING, "object.__setattr__")
        if does(name) not in HARMLESS:
            return True
        if not name.startswith(COMPUTING_HOMES):  # what it gives is used, or it is called for what it does
            return bool(shared) or isinstance(self.module.parents[call.node], ast.Expr)
        return bool(shared) and self._library_fills(call, name)

    def _library_fills(self, call: Call, name: str) -> bool:
        """A function that computes, given what is shared."""
        named = [each for key in ("out", "generator") if (each := call.keyword(key))]
        inplace = call.keyword("inplace")
        is_inplace = name.endswith("_") or inplace is not None and not _is_false(inplace.value)
        if any(self.is_shared(each.value) for each in named):
            return True
        if is_inplace:
            return bool(call.node.args) and self.is_shared(call.node.args[0])
        return name.startswith(CHANGING_HOMES) or name.rpartition(".")[2] in CHANGING

    def _is_unknown(self, function: ast.expr) -> bool:
        """Whether nobody can tell what is called: `TABLE[name](x)`, `getattr(TOOLS, name)(x)`; not of self's layers."""
        match function:
            case ast.Name():
                scope = self.module.scope_of[function].lookup(function.id)
                return scope is self.module.top and not self._is_looked_at(function)
            case ast.Subscript(value=ast.Name() as table):
                return self.is_shared(table) and not self._is_looked_at(table)
            case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name() as owner, *_]):
                return self.is_shared(owner) and not self.is_self(owner)
            case ast.Call():
                given = getattr(self.module.parents[function], "args", [])
                return any(self.is_shared(each) for each in given)  # `methodcaller("append", 1)(self.seen)`
        return False

    def _is_looked_at(self, name: ast.Name) -> bool:
        """Whether the text says what a variable of a file is set to: a table of functions, a model."""
        scope = self.module.scope_of[name].lookup(name.id)
        nodes = [each.node for each in scope.bindings[name.id]] if scope else []
        tables = (ast.Dict, ast.List, ast.Tuple, ast.Call, ast.Lambda)
        return bool(nodes) and all(
            isinstance(node, tables) and any(ast.iter_child_nodes(node)) for node in nodes
        )

    def _method_fills(self, call: Call, function: ast.expr) -> bool:
        if not isinstance(function, ast.Attribute) or self.is_self(function.value):
            return False
        if call.method in FILLING or not self.is_shared(function.value):
            return False  # the former is asked where it is mentioned
        if call.method.endswith("_") and not call.method.endswith("__") and call.method != "requires_grad_":
            return True
        generator = call.keyword("generator")
        if generator is not None and self.is_shared(generator.value):
            return True
        return call.method not in READING and not self.forwards.is_layer(function.value)


def _given(call: ast.Call) -> list[tuple[int | str | None, ast.expr]]:
    """What a call gives, with places and keywords."""
    return [*enumerate(call.args), *((each.arg, each.value) for each in call.keywords)]


def _is_applied(module: Module, node: ast.AST) -> bool:
    """Whether it is given to `net.apply`, which calls it at once."""
    match module.parents[node]:
        case ast.Call(func=ast.Attribute(attr="apply"), args=given):
            return node in given
    return False


def functions_of(node: ast.ClassDef) -> list[ast.FunctionDef]:
    """Methods of a class, also those under `if`."""
    inner = [
        each
        for statement in node.body
        if isinstance(statement, (ast.If, ast.Try))
        for each in nodes_in(statement)
    ]
    return [each for each in (*node.body, *inner) if isinstance(each, ast.FunctionDef)]


@lru_cache(maxsize=4096)
def _parameters(function: Function, *, is_method: bool) -> list[str]:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args)]
    names = names[1:] if is_method and not _is_static(function, "staticmethod") else names
    rest = [each.arg for each in (given.vararg, *given.kwonlyargs, given.kwarg) if each]
    return [*names, *rest]


def _is_static(function: Function, *kinds: str) -> bool:
    decorators = getattr(function, "decorator_list", [])
    return any(
        isinstance(each, ast.Name) and each.id in (kinds or ("staticmethod", "classmethod"))
        for each in decorators
    )


def _with_own_defaults(function: Function) -> list[str]:
    """Parameters with a default that all calls share: `def forward(self, x, seen=[])`."""
    given = function.args
    pairs = [
        *zip(reversed([*given.posonlyargs, *given.args]), reversed(given.defaults), strict=False),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    return [
        each.arg
        for each, default in pairs
        if not isinstance(default, (ast.Constant, ast.UnaryOp, type(None)))
    ]


def _is_consumed(module: Module, value: ast.expr | None) -> bool:
    if isinstance(value, ast.GeneratorExp):
        return True
    if not isinstance(value, ast.Call):
        return False
    _, definition = module.definition(value.func) or (module, None)
    is_generator = isinstance(definition, FUNCTIONS) and any(
        isinstance(each, (ast.Yield, ast.YieldFrom)) for each in nodes_in(definition)
    )
    return is_generator or (module.name(value.func) or "").rpartition(".")[2] in CONSUMED


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False
