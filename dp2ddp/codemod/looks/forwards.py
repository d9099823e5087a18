"""Which functions of a program run in forwards and in hooks, and what they are handed that outlives a forward.

DataParallel's replicas are threads of one process: what a forward writes to `self` is lost with its replica, what it
writes to anything else is there for the next replica, and afterwards. Whatever cannot be told counts as the latter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property, lru_cache

from dp2ddp.codemod.knowledge.derived import CLASSES, DATA_PARALLEL
from dp2ddp.codemod.knowledge.functions import TRACKING, Does, does
from dp2ddp.codemod.knowledge.reading_methods import (
    CHANGING,
    CHANGING_HOMES,
    COMPUTING_HOMES,
    CONSUMED,
    FILLING,
    LOOKING,
    MODULE_HOMES,
    READING,
)
from dp2ddp.codemod.looks.sharing import Sharing, is_constant
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import (
    BUILDING,
    FUNCTIONS,
    Function,
    all_from,
    defaults,
    functions_of,
    inside,
    is_static,
    places,
    values_of,
)
from dp2ddp.codemod.model.program import Program

MODULE = "torch.nn.Module"
OF_FUNCTION = ("torch.autograd.Function", "torch.autograd.function.Function")
NO_MODULES = (
    *("builtins.", "torchvision.transforms", "torchvision.datasets", "torch.utils.", "torch.optim."),
    *("abc.", "enum.", "typing.", "collections.", "argparse.", "threading."),
)
COPYING = ("__getstate__", "__reduce__")  # by nobody in a forward
FILLED_LATER = ("builtins.list", "builtins.dict", "builtins.set", "collections.", "types.SimpleNamespace")
HOLDING = ("torch.nn.Sequential", "torch.nn.Module", DATA_PARALLEL)  # layers that are not seen here
BACKWARD = ("backward", "vjp")
HOOKS = re.compile(r"register_(?!.*step).*hook.*")
FORWARD_HOOKS = re.compile(r"register_(module_)?forward_(pre_)?hook")
BACKWARD_HOOKS = re.compile(r"register_\w*backward\w*")
SAVED = "torch.autograd.graph.saved_tensors_hooks"
HARMLESS = (None, Does.WRAP, Does.DRAW, Does.COUNT_DEVICES, Does.MAKE_DEVICE, Does.SET_DEVICE, Does.CLOCK)
TABLES = (ast.Dict, ast.List, ast.Tuple, ast.Call, ast.Lambda)

Part = tuple[Module, ast.AST]


@lru_cache(maxsize=1)
def forwards_of(program: Program) -> Forwards:
    """Found out once a program."""
    return Forwards(program)


class Forwards:
    """The functions of a program that run in forwards and in hooks, and what they write to."""

    def __init__(self, program: Program) -> None:
        self.program, self.sharing = program, Sharing(program)
        self.methods = program.methods_named
        self.running: dict[ast.AST, Module] = {}  # functions and lambdas of forwards and hooks
        self.building: dict[ast.AST, Module] = {}  # what runs before, and values that models get: for later
        # methods of a module itself: `layer.register_forward_hook(self.keep)`
        self.bound: set[ast.AST] = set()
        self._nodes: dict[ast.AST, list[ast.AST]] = {}
        self._used: set[ast.AST] = set()  # classes and variables that were looked through
        self._followed: set[tuple[ast.AST, bool, bool]] = set()  # names, of which nothing new can be said
        self._tainted: set[tuple[ast.AST, int | str | None]] = set()
        self._begin()
        before = -1
        while before != (before := len(self.running) + len(self.building) + len(self.sharing.parameters)):
            self.sharing.look_again()
            for function, module in [*self.building.items()]:
                self._follow(module, function, runs=False)
            for function, module in [*self.running.items()]:
                self._follow(module, function, runs=True)

    @cached_property  # each mention of DataParallel asks
    def fillings(self) -> list[Part]:
        """Where forwards and hooks write to what outlives them: to anything but locals and plain attributes of self."""
        return [
            part for function, module in self.running.items() for part in self._fillings_of(module, function)
        ]

    def _fillings_of(self, module: Module, function: ast.AST) -> Iterator[Part]:
        filling = Filling(self, module)
        yield from ((module, node) for node in self.nodes_of(function) if filling.fills(node))

    @cached_property
    def in_backward(self) -> dict[Part, None]:
        """Functions that may run on each rank in backward: all that those name which do."""
        return dict.fromkeys(all_from(self._roots_of_backward(), self._named_in))

    @cached_property
    def fillings_in_backward(self) -> dict[Part, None]:
        """Where backwards and hooks on gradients write to what outlives them."""
        filled = (part for each in self.in_backward for part in self._fillings_of(*each))
        return dict.fromkeys(part for part in filled if not _is_kernel(*part))

    @cached_property
    def surely_running(self) -> dict[Part, None]:
        """Forwards of layers, hooks on them, and what these call; of objects that are not known, methods of that name.

        Not what is only handed on (tables of functions that build models): nearly all of a program is.
        """
        forwards = [
            (home, each) for each, home in self.running.items() if getattr(each, "name", "") == "forward"
        ]
        hooks = [part for module in self.program.modules for part in _hooked(module, FORWARD_HOOKS)]
        return dict.fromkeys(all_from((*forwards, *hooks), _called_in))

    def _roots_of_backward(self) -> Iterator[Part]:
        """Backwards of Functions, hooks on gradients of rows and of layers: what runs on each rank in backward."""
        for module in self.program.modules:
            for node in module.all(ast.ClassDef):
                if self.is_function(module, node):
                    yield from ((module, each) for each in functions_of(node) if each.name in BACKWARD)
            for call in module.calls:
                around = module.function_around(call.node)
                # of parameters: of the sum
                is_of_rows = call.method == "register_hook" and around in self.running
                if is_of_rows or call.name == SAVED:
                    yield from (module.definition(each) or (module, each) for each in call.node.args)
            yield from _hooked(module, BACKWARD_HOOKS)

    def _named_in(self, part: Part) -> Iterator[Part]:
        """The functions that a function or an expression names, and those of a function around that it calls."""
        yield from self.program.closure(*part)
        for node in self.nodes_of(part[1]):
            yield from self.functions(part[0], node)

    def nodes_of(self, function: ast.AST) -> list[ast.AST]:
        if function not in self._nodes:
            self._nodes[function] = [*ast.walk(function)]
        return self._nodes[function]

    # --- what is named

    def class_named(self, dotted: str | None) -> tuple[Module, ast.ClassDef] | None:
        module, node = self.program.definition(dotted) or (None, None)
        return (module, node) if module and isinstance(node, ast.ClassDef) else None

    def functions(self, module: Module, node: ast.AST) -> list[tuple[Module, Function]]:
        """The functions of the program that a name or attribute means; methods by their names alone."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return []
        dotted = module.name(node) or ""
        home, _, name = dotted.rpartition(".")
        there = self.program.by_name.get(home)
        nodes = [each.node for each in there.top.bindings.get(name, ())] if there else []
        functions = [(there, each) for each in nodes if isinstance(each, FUNCTIONS)]
        is_of_library = bool(dotted) and not self.program.is_local(dotted)
        if functions or is_of_library or isinstance(node, ast.Name):
            return functions  # type: ignore[return-value]  # `there` is a file
        return [*self.methods.get(node.attr, [])]

    def is_part(self, module: Module, node: ast.ClassDef) -> bool:
        """Whether a class derives from Module; one with a forward may, if a base of it is not known.

        No subclass of DataParallel does: its own methods run once, not for each replica.
        """
        names = {home.name(base) or "" for home, base in self.program.bases(module, node)}
        classes = (kind for _, kind in self.program.lineage(module, node))
        has_forward = any(each.name == "forward" for kind in classes for each in functions_of(kind))
        others = (name for name in names - {*OF_FUNCTION, *CLASSES} if not self.class_named(name))
        unknown = (name for name in others if not name.startswith(NO_MODULES))
        return any(has_forward or name.startswith(MODULE_HOMES) for name in unknown)

    def is_function(self, module: Module, node: ast.ClassDef) -> bool:
        """Whether a class is a torch.autograd.Function."""
        return any(module.name(base) in OF_FUNCTION for base in node.bases)

    # --- which functions run

    def _begin(self) -> None:
        for module in self.program.modules:
            for node in module.all(ast.ClassDef):
                if self.program.reach.runs(module, node) and self.is_part(module, node):
                    self._add_part(module, node)
            for call in module.calls:
                is_hook = HOOKS.fullmatch(call.method) and call.method not in self.methods
                if is_hook or call.name == SAVED:
                    for given in call.node.args:
                        self._build(module, given)
                        self._taint(module, given, 0)
                made = self.class_named(call.name)
                if made and self.is_part(*made):
                    for _, given in _given(call.node):
                        self._build(module, given)
                match call.node.args if call.name == "builtins.setattr" else []:
                    case [_, ast.Constant(value="forward"), given]:
                        self._build(module, given)
                for place, given in _given(call.node) if self._may_be_model(call) else ():
                    if any(self._is_filled_later(module, each) for each in module.values(given)):
                        self._taint(module, call.node.func, place)
        for module, binding in self.program.attributes.get("forward", ()):
            if isinstance(binding.node, ast.expr):
                self._build(module, binding.node)

    def _add_part(self, module: Module, node: ast.ClassDef) -> None:
        for each in node.body:  # `size = Descriptor()`
            if isinstance(each, ast.Assign):
                self._build(module, each.value)
        bases = {module.name(base) for base in node.bases}
        # else a library has its forward
        is_whole = all(base == MODULE or self.class_named(base) for base in bases)
        for function in functions_of(node):
            is_called = not is_whole or function.name == "forward" or function.name.startswith("__")
            if function.name in BUILDING:
                self._build(module, function)
            elif is_called and function.name not in COPYING:
                self._run(module, function)

    def _may_be_model(self, call: Call) -> bool:
        """`net(x)`, `self.net(x)`: of a variable, or of an attribute that the program sets."""
        is_set = call.method in self.program.attributes and call.method not in self.methods
        return call.name is None and (isinstance(call.node.func, ast.Name) or is_set)

    def _is_filled_later(self, module: Module, value: ast.AST, *, deep: bool = True) -> bool:
        """What a model is given that all replicas have, as they have no copy of it: an empty list, an object."""
        match value:
            case ast.List(elts=[]) | ast.Dict(keys=[]) | ast.Call(func=ast.Attribute(attr="parse_args")):
                return True
            case ast.Call(func=func):
                name = module.name(func) or ""
                if name.startswith(FILLED_LATER) or self.class_named(name):
                    return True
                factories = self.functions(module, func) if isinstance(func, ast.Name) and deep else []
                return any(
                    self._is_filled_later(home, each, deep=False)
                    for home, factory in factories
                    for returned in self.sharing.returned_by(factory)
                    for each in home.values(returned)
                )
        return False

    def _build(self, module: Module, code: ast.AST) -> None:
        """Code that runs before the forwards: what it hands on may be called in one."""
        if code not in self.building:
            self.building[code] = module
            around = module.function_around(code) if isinstance(code, ast.expr) else None
            # `net.fc.register_forward_hook(hook)` in `main`, whose list the hook fills
            self.sharing.outer |= {code} if around is None or around in self.running else {code, around}
            self._share_self(module, code)

    def _run(self, module: Module, function: Function) -> None:
        if function not in self.running:
            self.running[function] = module
            self.sharing.returns.setdefault(getattr(function, "name", ""), []).append((module, function))
            shared = (
                name
                for name, value in defaults(function).items()
                if not isinstance(value, (ast.Constant, ast.UnaryOp))
            )
            # `def forward(self, x, seen=[])`
            self.sharing.parameters |= {(function, name) for name in shared}
            self._share_self(module, function)

    def _share_self(self, module: Module, function: ast.AST) -> None:
        """`self` holds what is shared."""
        if isinstance(module.parents[function], ast.ClassDef) and not is_static(function, "staticmethod"):
            self.sharing.parameters |= {(function, each.arg) for each in places(function)[:1]}

    def _follow(self, module: Module, code: ast.AST, *, runs: bool) -> None:
        """What a piece of code calls and names; of one that builds a model, what it hands on."""
        nodes = self.nodes_of(code)
        calls = [each for each in nodes if isinstance(each, ast.Call)]
        called: set[ast.AST] = {each.func for each in calls}
        if not runs:  # `net.apply(init)` calls at once
            called |= {
                given for each in calls if getattr(each.func, "attr", "") == "apply" for given in each.args
            }
        for call in calls:
            self._hand_in(module, call, runs=runs)
        for node in nodes:
            later = not runs and node not in called
            if later and isinstance(node, FUNCTIONS) and (node is not code or isinstance(node, ast.Lambda)):
                self._run(module, node)
            elif later and self._is_of_constant(module, node):
                continue
            elif (
                isinstance(node, (ast.Name, ast.Attribute))
                and (node, runs, later) not in self._followed
                and not self._says_nothing(module, node)
            ):
                self._followed.add((node, runs, later))
                if later:
                    self.bound |= {function for _, function in self.functions(module, node)}
                self._mention(module, node, runs=runs or later)
                made = self.class_named(module.name(node)) if runs and node in called else None
                if made and not self.is_part(*made):  # `Item(x)`: what it keeps on itself is its own
                    makers = (each for each in functions_of(made[1]) if each.name in BUILDING)
                    self.running.update((each, made[0]) for each in makers)

    def _is_of_constant(self, module: Module, node: ast.AST) -> bool:
        """`data` in `data.set.classes`, `data.num_classes()` or `len(data)`, a number: nobody gets the data."""
        match module.parents.get(node):
            case ast.Attribute(attr=attr) as around:
                return self.sharing.is_constant(attr) or self._is_of_constant(module, around)
            case ast.Call(func=ast.Attribute() as function) if function is node:
                return self.sharing.gives_constant(function.attr)
            case ast.Call() as call:
                return is_constant(module, call)
        return False

    def _says_nothing(self, module: Module, node: ast.Name | ast.Attribute) -> bool:
        """`parts.append`, of a list that is made here; `x.view`; `super().__init__`, which is looked at by itself."""
        # `self.calls = 1`, a property
        is_setter = isinstance(node, ast.Attribute) and node.attr in self.methods
        if not isinstance(node.ctx, ast.Load) and not is_setter:
            return True
        # `Registry.get(name)`
        if not isinstance(node, ast.Attribute) or self.class_named(module.name(node.value)):
            return False
        is_known = node.attr in READING | FILLING
        return node.attr in BUILDING or is_known and not self.sharing.level(module, node.value)

    def _mention(self, module: Module, node: ast.Name | ast.Attribute, *, runs: bool) -> None:
        """What code names, it may call."""
        for home, function in self.functions(module, node):
            if runs:
                self._run(home, function)
            else:
                self._build(home, function)
        name = module.name(node) or ""
        owner = self.class_named(name) or self.class_named(name.rpartition(".")[0])
        if owner and owner[1] not in self._used:
            self._used.add(owner[1])
            self._use_class(*owner)
        if isinstance(node, ast.Name):
            self._use_variable(module, node, runs=runs)

    def _use_class(self, module: Module, node: ast.ClassDef) -> None:
        """What Python itself calls of an object of a class; the forward and backward of a Function."""
        for each in functions_of(node):
            is_called = each.name.startswith("__") and each.name not in (*BUILDING, *COPYING)
            if is_called or self.is_function(module, node) and each.name in ("forward", "backward"):
                self._run(module, each)

    def _use_variable(self, module: Module, node: ast.Name, *, runs: bool) -> None:
        """A table of functions; a function of a function around."""
        scope = module.scope(node)
        if scope is None or scope.node in self.running:
            return
        for binding in scope.bindings[node.id]:
            if isinstance(binding.node, FUNCTIONS):
                (self._run if runs else self._build)(module, binding.node)
            elif isinstance(binding.node, ast.expr):
                self._build(module, binding.node)

    # --- what is handed in

    def _hand_in(self, module: Module, node: ast.Call, *, runs: bool) -> None:
        given = _given(node)
        shared = [place for place, value in given if self.sharing.level(module, value)]
        for place in shared if runs else ():
            self._taint(module, node.func, place)
        # `map(f, items)`, `checkpoint(self.block, x)`: to any parameter
        for _, value in given if shared else ():
            is_method = isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name)
            if is_method or isinstance(value, (ast.Name, ast.Lambda)):
                self._taint(module, value, None)

    def _taint(self, module: Module, node: ast.expr, place: int | str | None) -> None:
        """Something shared is given to a function, at a place or by a keyword; or it may be anywhere."""
        if (node, place) in self._tainted:
            return
        self._tainted.add((node, place))
        functions = [(module, node)] if isinstance(node, ast.Lambda) else self.functions(module, node)
        is_method = isinstance(node, ast.Attribute) and node.attr in READING | FILLING
        if not functions and place is not None and module.name(node) is None and not is_method:
            functions = self._forwards_of(node)
        for home, function in functions:
            rest = (function.args.vararg, *function.args.kwonlyargs, function.args.kwarg)
            names = [each.arg for each in (*home.taken(function), *rest) if each]
            if isinstance(place, int):
                names = names[place : place + 1] or names[-1:]
            elif isinstance(place, str):
                names = [place] if place in names else names[-1:]
            self.sharing.parameters |= {(function, name) for name in names}

    def _forwards_of(self, node: ast.expr) -> list[tuple[Module, Function]]:
        """The forwards that `self.layer(...)` may call: those of the classes that it is set to, or all."""
        forwards = [*self.methods.get("forward", ()), *self.methods.get("__call__", ())]
        values = self.program.attributes.get(getattr(node, "attr", ""), [])
        own: set[ast.AST] = set()
        for module, binding in values:
            kind = module.name(binding.node.func) or "" if isinstance(binding.node, ast.Call) else ""
            made = self.class_named(kind)
            if made is None and (not kind.startswith("torch.nn.") or kind.startswith(HOLDING)):
                return forwards
            own |= {made[1]} if made else set()
        return [(home, each) for home, each in forwards if not values or home.parents[each] in own]


def _hooked(module: Module, registers: re.Pattern[str]) -> Iterator[Part]:
    """Hooks on layers; also those on the wrapper, which run once."""
    for call in module.calls if registers.search(module.source.text) else ():
        if registers.fullmatch(call.method):
            yield from (module.definition(each) or (module, each) for each in call.node.args)


def _called_in(part: Part) -> Iterator[Part]:
    home, function = part
    for node in inside(function, ast.Call, ast.Attribute):
        called = node.func if isinstance(node, ast.Call) else node
        if definition := home.definition(called):
            yield definition
        elif isinstance(node, ast.Call) and isinstance(called, ast.Attribute):
            is_common = called.attr in READING | FILLING or called.attr.startswith("__")
            yield from home.program.methods_named.get(called.attr, ()) if not is_common else ()
        elif isinstance(node, ast.Call):
            origins = home.program.flow.origins(home, called)
            yield from (made for other, each in origins if (made := other.definition(each)))


def _is_kernel(module: Module, node: ast.AST) -> bool:
    """A function of a library that is called in a backward: it computes."""
    name = module.name(node.func) if isinstance(node, ast.Call) else "builtins."
    return (
        not (name or "").startswith(("builtins.", "logging."))
        and (name or "").partition(".")[0] not in TRACKING
    )


def _given(call: ast.Call) -> list[tuple[int | str | None, ast.expr]]:
    """What a call gives, with places and keywords."""
    return [*enumerate(call.args), *((each.arg, each.value) for each in call.keywords)]


class Filling:
    """Whether a node of a function that runs in a forward writes to what outlives it. Whatever cannot be told does."""

    def __init__(self, forwards: Forwards, module: Module) -> None:
        self.forwards, self.module, self.sharing = forwards, module, forwards.sharing

    def fills(self, node: ast.AST) -> bool:
        match node:
            case ast.Global() | ast.Nonlocal():
                return True
            case ast.Attribute(value=owner, ctx=ast.Store() | ast.Del()) if self._is_replica(owner):
                return isinstance(self.module.parents[node], ast.AugAssign) and self._may_be_container(
                    node.attr
                )
            # a class, a function, a file, too: `Net.count = 1`
            case (
                ast.Attribute(value=owner, ctx=ast.Store() | ast.Del())
                | ast.Subscript(value=owner, ctx=ast.Store() | ast.Del())
            ):
                return self.is_shared(owner) or self.module.name(owner, follow=False) is not None
            case ast.AugAssign(target=ast.Name() as target):
                return self.module.scope(target) is self.module.top or self.is_shared(target)
            case ast.Attribute(value=owner, attr=attr) if attr in FILLING and self.is_shared(owner):
                return True
            case ast.Attribute(attr=attr) if attr in consumed(self.module.program):
                return self.is_shared(node)
            case ast.Name(id=name) if name in consumed(self.module.program):
                return self.module.scope(node) is self.module.top
            case ast.Call():
                return self._call_fills(self.module.call(node))
        return False

    def is_shared(self, node: ast.expr) -> bool:
        return self.sharing.is_shared(self.module, node)

    # --- objects

    def _may_be_container(self, attr: str) -> bool:
        """`self.seen += [x]` extends the list that all replicas have; `self.count += 1` is lost with the replica."""
        return not self.sharing.is_copied(attr) and not self.sharing.is_constant(attr)

    def _is_replica(self, owner: ast.expr) -> bool:
        """`self`, where that is a replica: not in a hook, nor in a function of `__init__`, which have the module."""
        if isinstance(owner, ast.Call):
            return self.module.name(owner.func) == "builtins.super"
        if not isinstance(owner, ast.Name) or not self._is_self(owner):
            return False
        scope = self.module.scope(owner)
        is_closure = scope is not None and self.sharing.is_closure(self.module, owner, scope)
        return not is_closure and (scope is None or scope.node not in self.forwards.bound)

    def _is_self(self, owner: ast.expr) -> bool:
        """`self` of a module, the context of a Function, or an object being made."""
        scope = self.module.scope(owner) if isinstance(owner, ast.Name) else None
        kind = self.module.parents.get(scope.node) if scope else None
        if not isinstance(kind, ast.ClassDef) or not isinstance(scope.node, ast.FunctionDef):  # type: ignore[union-attr]
            return False
        function = scope.node  # type: ignore[union-attr]
        is_function = self.forwards.is_function(self.module, kind)
        is_kept = is_function or function.name in BUILDING or self.forwards.is_part(self.module, kind)
        is_first = [each.arg for each in places(function)][:1] == [owner.id]  # type: ignore[attr-defined]
        return is_kept and is_first and (is_function or not is_static(function))

    def _is_looked_at(self, name: ast.Name) -> bool:
        """Whether the text says what a variable of a file is set to: a table of functions, a model."""
        nodes = [each.node for each in self.module.bindings(name)]
        return bool(nodes) and all(
            isinstance(each, TABLES) and any(ast.iter_child_nodes(each)) for each in nodes
        )

    def _is_layer(self, node: ast.expr) -> bool:
        """`self.resnet`, whose methods are a library's forwards: whatever makes it, makes a module."""
        while isinstance(node, (ast.Subscript, ast.Call)) or (
            isinstance(node, ast.Attribute) and not isinstance(node.value, ast.Name)
        ):
            node = node.func if isinstance(node, ast.Call) else node.value
        origins = self.module.program.flow.origins(self.module, node)
        return all(self._is_module(*each) for each in origins)

    def _is_module(self, module: Module, value: ast.expr) -> bool:
        if isinstance(value, ast.Constant):
            return value.value is None
        made = [home.name(each) or "" for home, each in self.module.program.flow.makers(module, value)]
        return bool(made) and all(self._is_kind_of_module(each) for each in made)

    def _is_kind_of_module(self, name: str) -> bool:
        local = self.forwards.class_named(name)
        return self.forwards.is_part(*local) if local else f"{name}.".startswith(MODULE_HOMES)

    # --- calls

    def _call_fills(self, call: Call) -> bool:
        name, function = call.name, call.node.func
        is_apply = isinstance(function, ast.Attribute) and function.attr == "apply"
        kind = self.module.name(function.value if is_apply else function)  # type: ignore[attr-defined]
        if self.forwards.functions(self.module, function) or self.forwards.class_named(kind):
            return False  # looked at, too
        if name is None:
            return self._is_unknown(function) or self._method_fills(call)
        if name.startswith("builtins."):
            return self._builtin_fills(call, name.partition(".")[2])
        if does(name) not in HARMLESS:
            return True
        is_given_shared = any(map(self.is_shared, values_of(call.node)))
        if name.startswith(COMPUTING_HOMES):
            return is_given_shared and self._library_fills(call, name)
        # called for what it does
        return is_given_shared or isinstance(self.module.parents[call.node], ast.Expr)

    def _builtin_fills(self, call: Call, name: str) -> bool:
        first = call.argument(0)
        if name in ("setattr", "delattr"):
            return first is not None and not self._is_replica(first)
        if name == "next":  # `next(self.parameters())` begins anew
            return not isinstance(first, ast.Call)
        return name not in (*LOOKING, "object.__setattr__")

    def _library_fills(self, call: Call, name: str) -> bool:
        """A function that computes, given what is shared."""
        if any((given := call.keyword(key)) and self.is_shared(given.value) for key in ("out", "generator")):
            return True
        inplace = call.keyword("inplace")
        if name.endswith("_") or inplace is not None and getattr(inplace.value, "value", True) is not False:
            return bool(call.node.args) and self.is_shared(call.node.args[0])
        return name.startswith(CHANGING_HOMES) or name.rpartition(".")[2] in CHANGING

    def _is_unknown(self, function: ast.expr) -> bool:
        """Whether nobody can tell what is called: `TABLE[name](x)`, `getattr(TOOLS, name)(x)`; not of self's layers."""
        match function:
            case ast.Name():
                return self.module.scope(function) is self.module.top and not self._is_looked_at(function)
            case ast.Subscript(value=ast.Name() as table):
                return self.is_shared(table) and not self._is_looked_at(table)
            case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name() as owner, *_]):
                return self.is_shared(owner) and not self._is_self(owner)
            case ast.Call(func=made) if not self._is_kind_of_module(self.module.name(made) or ""):
                given = getattr(self.module.parents[function], "args", [])
                return any(map(self.is_shared, given))  # `methodcaller("append", 1)(self.seen)`
        return False

    def _method_fills(self, call: Call) -> bool:
        function = call.node.func
        if (
            not isinstance(function, ast.Attribute)
            or self._is_self(function.value)
            or self._is_replica(function.value)
        ):
            return False
        if call.method in FILLING or not self.is_shared(function.value):
            return False  # the former is asked where it is mentioned
        if call.method.endswith("_") and not call.method.endswith("__") and call.method != "requires_grad_":
            return True
        return call.method not in READING and not self._is_layer(function.value)


@lru_cache(maxsize=1)
def consumed(program: Program) -> set[str]:
    """Attributes and variables of files that change when they are looked at: iterators, dicts with defaults."""
    given = [(name, module, each) for name, all_ in program.attributes.items() for module, each in all_]
    for module in program.modules:
        given += ((name, module, each) for name, all_ in module.top.bindings.items() for each in all_)
    return {name for name, module, each in given if _is_consumed(module, each.node)}


def _is_consumed(module: Module, value: ast.AST | None) -> bool:
    if not isinstance(value, ast.Call):
        return isinstance(value, ast.GeneratorExp)
    _, definition = module.definition(value.func) or (module, None)
    is_generator = isinstance(definition, FUNCTIONS) and any(inside(definition, ast.Yield, ast.YieldFrom))
    return is_generator or (module.name(value.func) or "").rpartition(".")[2] in CONSUMED
