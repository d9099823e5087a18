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
from dp2ddp.codemod.knowledge.reading_methods import FILLING, MODULE_HOMES, READING
from dp2ddp.codemod.looks.sharing import Sharing, is_constant
from dp2ddp.codemod.model.flow import Source
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
    looked_up,
    places,
)
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.texts import pattern_of

MODULE = "torch.nn.Module"
OF_FUNCTION = ("torch.autograd.Function", "torch.autograd.function.Function")
NO_MODULES = (
    *("builtins.", "torchvision.transforms", "torchvision.datasets", "torch.utils.", "torch.optim."),
    *("abc.", "enum.", "typing.", "collections.", "argparse.", "threading."),
)
FILES = {"sys.modules", "importlib.import_module", "builtins.__import__"}  # of what gives one
COPYING = ("__getstate__", "__reduce__")  # by nobody in a forward
FILLED_LATER = ("builtins.list", "builtins.dict", "builtins.set", "collections.", "types.SimpleNamespace")
HOLDING = ("torch.nn.Sequential", "torch.nn.Module", DATA_PARALLEL)  # layers that are not seen here
SELF = ("self", "type(self)", "self.__class__", "super()")
BACKWARD = ("backward", "vjp")
HOOKS = re.compile(r"register_(?!.*step).*hook.*")
# Of a tensor: outside of forwards it runs once in a backward, on the gradient of the whole batch, on all ranks alike.
OF_TENSORS = ("register_hook", "register_post_accumulate_grad_hook")
FORWARD_HOOKS = re.compile(r"register_(module_)?forward_(pre_)?hook")
BACKWARD_HOOKS = re.compile(r"register_\w*backward\w*")
SAVED = "torch.autograd.graph.saved_tensors_hooks"
BRANCHES = (ast.If, ast.IfExp, ast.Try, ast.BoolOp, ast.ExceptHandler)
Part = tuple[Module, ast.AST]


@lru_cache(maxsize=1)
def forwards_of(program: Program) -> Forwards:
    """Found out once a program."""
    return Forwards(program)


class Forwards:
    """The functions of a program that run in forwards and in hooks."""

    def __init__(self, program: Program) -> None:
        self.program, self.sharing = program, Sharing(program)
        self.methods = program.methods_named
        self.running: dict[ast.AST, Module] = {}  # functions and lambdas of forwards and hooks
        self.building: dict[ast.AST, Module] = {}  # what runs before, and values that models get: for later
        # methods of a module itself: `layer.register_forward_hook(self.keep)`
        self.bound: set[ast.AST] = set()
        self.hooks = {each for module in program.modules for _, each in self._forward_hooks(module)}
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

    @cached_property
    def in_backward(self) -> dict[Part, None]:
        """Functions that may run on each rank in backward: all that those name which do."""
        return dict.fromkeys(all_from(self._roots_of_backward(), self._named_in))

    @cached_property
    def surely_running(self) -> dict[Part, None]:
        """Forwards of layers, hooks on them, and what these call; of objects that are not known, methods of that name.

        Not what is only handed on (tables of functions that build models): nearly all of a program is.
        """
        running = ((home, each) for each, home in self.running.items())
        forwards = (part for part in running if getattr(part[1], "name", "") == "forward")
        hooks = [part for module in self.program.modules for part in _hooked(module, FORWARD_HOOKS)]
        return dict.fromkeys(all_from((*forwards, *hooks), _called_in))

    def _roots_of_backward(self) -> Iterator[Part]:
        """Backwards of Functions, hooks on gradients of rows and of layers: what runs on each rank in backward."""
        for module in self.program.modules:
            for node in module.all(ast.ClassDef):
                if self.is_function(module, node):
                    yield from ((module, each) for each in functions_of(node) if each.name in BACKWARD)
            for call in module.calls:
                is_of_rows = call.method in OF_TENSORS and module.function_around(call.node) in self.running
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
        owner, kind = self.class_named(home) or (module, None)
        if own := next(self.program.methods_of(owner, kind, name), None):
            return [own]  # `Base.forward(self, x)`
        there = self.program.by_name.get(home)
        nodes = [each.node for each in there.top.bindings.get(name, ())] if there else []
        functions = [(there, each) for each in nodes if isinstance(each, FUNCTIONS)]
        is_of_library = bool(dotted) and not self.program.is_local(dotted)
        if functions or is_of_library or isinstance(node, ast.Name):
            return functions  # type: ignore[return-value]  # `there` is a file
        is_read = isinstance(node.ctx, ast.Load)
        return [each for each in self.methods.get(node.attr, ()) if not (is_read and _is_setter(each[1]))]

    def looked_up(self, module: Module, node: ast.AST) -> list[tuple[Module, Function]]:
        """The methods that a text may name: of `self`, those of its class and its kin; of others, by their names alone.

        Where a text says nothing, those of all layers. What is looked up in a file or a library is no method.
        """
        owner, key = looked_up(node) or (None, None)
        if owner is None or key is None or self._is_file(module, owner):
            return []
        own = module.enclosing(owner, ast.ClassDef) if ast.unparse(owner) in SELF else None
        text = pattern_of(module.value(key))
        named = ((name, methods) for name, methods in self.methods.items() if name[:2] != "__")
        matching = (each for name, methods in named if text.fullmatch(name) for each in methods)
        if own is None:
            is_unknown = text.pattern == ".*"
            return [each for each in matching if not is_unknown or self.is_part(each[0], _kind(*each))]
        return [each for each in matching if self._are_kin(module, own, *each)]

    def _is_file(self, module: Module, owner: ast.expr) -> bool:
        """Whether an owner is something of a library, or a file of the program: `sys.modules[__name__]`."""
        if name := module.name(owner):
            return name in self.program.by_name or not self.program.is_local(name)
        return FILES.issuperset(map(_source_name, self.program.flow.origins(module, owner)))

    def _are_kin(self, module: Module, own: ast.ClassDef, home: Module, method: Function) -> bool:
        """Whether a method is of a class, or of one that derives from it or that it is derived from."""
        above = [each for _, each in self.program.lineage(module, own)]
        below = [each for _, each in self.program.lineage(home, _kind(home, method))]
        return own in below or below[0] in above

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

    def is_function(self, module: Module, node: ast.AST | None) -> bool:
        """Whether a class is a torch.autograd.Function."""
        return isinstance(node, ast.ClassDef) and any(module.name(base) in OF_FUNCTION for base in node.bases)

    def _forward_hooks(self, module: Module) -> Iterator[Part]:
        """The functions, and `__call__` of the objects, that are forward hooks: they get a replica."""
        for home, hook in _hooked(module, FORWARD_HOOKS):
            yield home, hook
            makers = self.program.flow.makers(home, hook) if isinstance(hook, ast.expr) else ()
            for made in (self.class_named(there.name(func)) for there, func in makers):
                yield from self.program.methods_of(*made, "__call__") if made else ()

    # --- which functions run

    def _begin(self) -> None:
        for module in self.program.modules:
            for node in module.all(ast.ClassDef):
                if self.program.reach.runs(module, node) and self.is_part(module, node):
                    self._add_part(module, node)
            for call in module.calls:
                is_hook = HOOKS.fullmatch(call.method) and call.method not in (*self.methods, *OF_TENSORS)
                if is_hook and not self._is_of_wrapper(module, call) or call.name == SAVED:
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
                    is_empty = any(self._is_filled_later(module, each) for each in module.values(given))
                    if is_empty and not _is_filled_above(module, given):
                        self._taint(module, call.node.func, place)
        for module, binding in self.program.attributes.get("forward", ()):
            if isinstance(binding.node, ast.expr):
                self._build(module, binding.node)

    def _is_of_wrapper(self, module: Module, call: Call) -> bool:
        """`net.register_forward_hook(keep)` of DataParallel itself: it runs once, on all rows."""
        if not isinstance(call.node.func, ast.Attribute) or not FORWARD_HOOKS.fullmatch(call.method):
            return False
        value = module.value(call.node.func.value)  # of a name that means nothing else, before the wrap, say
        while isinstance(value, ast.Call) and getattr(value.func, "attr", "") in ("cuda", "to", "train"):
            value = value.func.value  # type: ignore[attr-defined]
        return isinstance(value, ast.Call) and module.name(value.func) in CLASSES

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
            numbers = (ast.Constant, ast.UnaryOp)
            given = defaults(function).items()  # `def forward(self, x, seen=[])`
            self.sharing.parameters |= {
                (function, name) for name, each in given if not isinstance(each, numbers)
            }
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
            for home, function in self.looked_up(module, node):
                self.bound |= {function} if later else set()
                (self._run if runs or later else self._build)(home, function)
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
        functions: list[tuple[Module, Function]] = (
            [(module, node)]
            if isinstance(node, ast.Lambda)
            else [*self.functions(module, node), *self.looked_up(module, node)]
        )
        applied = self.class_named((module.name(node) or "").removesuffix(".apply"))
        if applied and self.is_function(*applied):  # whose forward gets the context first
            functions = [*self.program.methods_of(*applied, "forward")]
            place = place + 1 if isinstance(place, int) else place
        is_method = isinstance(node, ast.Attribute) and (
            node.attr in READING | FILLING or node.attr[:2] == "__"
        )
        is_unknown = module.name(node) is None and not module.is_of_absent_file(node)
        if not functions and place is not None and is_unknown and not is_method:
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
        named = [*self.methods.get("forward", ()), *self.methods.get("__call__", ())]
        forwards = [(home, each) for home, each in named if not self.is_function(home, home.parents[each])]
        values = self.program.attributes.get(getattr(node, "attr", ""), [])
        own: set[ast.AST] = set()
        for module, binding in values:
            kind = module.name(binding.node.func) or "" if isinstance(binding.node, ast.Call) else ""
            made = self.class_named(kind)
            if made is None and (not kind.startswith("torch.nn.") or kind.startswith(HOLDING)):
                return forwards
            own |= {made[1]} if made else set()
        return [(home, each) for home, each in forwards if not values or home.parents[each] in own]


def _kind(module: Module, method: Function) -> ast.ClassDef:
    return module.parents[method]  # type: ignore[return-value]  # of a method


def _is_setter(function: ast.FunctionDef) -> bool:
    """`@size.setter`, which reading does not call."""
    return any(getattr(each, "attr", "") in ("setter", "deleter") for each in function.decorator_list)


def _source_name(made: Source) -> str | None:
    """What is called, or what a part is taken of: `sys.modules` of `sys.modules[__name__]`."""
    match made:
        case home, (ast.Call(func=source) | ast.Subscript(value=source)):
            return home.name(source)
    return None


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
        elif called is not node and isinstance(called, ast.Attribute):
            is_common = called.attr in READING | FILLING or called.attr.startswith("__")
            yield from home.program.methods_named.get(called.attr, ()) if not is_common else ()
        elif called is not node:
            origins = home.program.flow.origins(home, called)
            yield from (made for other, each in origins if (made := other.definition(each)))


def _is_filled_above(module: Module, node: ast.expr) -> bool:
    """Whether a list surely has something in it: `parts.append(x)` stands above, in no branch."""
    appends = (each for each in module.by_word.get("append", ()) if isinstance(each, ast.Attribute))
    return any(
        ast.dump(each.value) == ast.dump(node)
        and each.lineno < node.lineno
        and module.enclosing(each, *FUNCTIONS, *BRANCHES) is module.function_around(node)
        for each in appends
    )


def _given(call: ast.Call) -> list[tuple[int | str | None, ast.expr]]:
    """What a call gives, with places and keywords."""
    return [*enumerate(call.args), *((each.arg, each.value) for each in call.keywords)]
