"""Which functions of a program run in forwards, in backwards and in hooks.

DataParallel's replicas are threads of one process: what a forward writes to `self` is lost with its replica, what it
writes to anything else is there for the next replica, and afterwards. Whatever cannot be told counts as the latter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property, lru_cache

from dp2ddp.codemod.knowledge.derived import CLASSES
from dp2ddp.codemod.knowledge.reading_methods import FILLING, READING
from dp2ddp.codemod.looks.called import functions_named, is_autograd_function, is_layer, methods_by_text
from dp2ddp.codemod.looks.handed_in import HandedIn
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
BACKWARD = ("backward", "vjp")
HOOKS = re.compile(r"register_(?!.*step).*hook.*")
# Of a tensor: outside of forwards it runs once in a backward, on the gradient of the whole batch, on all ranks alike.
OF_TENSORS = ("register_hook", "register_post_accumulate_grad_hook")
FORWARD_HOOKS = re.compile(r"register_(module_)?forward_(pre_)?hook")
BACKWARD_HOOKS = re.compile(r"register_\w*backward\w*")
SAVED = "torch.autograd.graph.saved_tensors_hooks"
Part = tuple[Module, ast.AST]


@lru_cache(maxsize=1)
def forwards_of(program: Program) -> Forwards:
    """Found out once a program."""
    return Forwards(program)


class Forwards:
    """The functions of a program that run in forwards and in hooks."""

    def __init__(self, program: Program) -> None:
        self.program, self.sharing = program, Sharing(program)
        self.handed_in = HandedIn(program, self.sharing)
        self.running: dict[ast.AST, Module] = {}  # functions and lambdas of forwards and hooks
        self.building: dict[ast.AST, Module] = {}  # what runs before, and values that models get: for later
        # methods of a module itself: `layer.register_forward_hook(self.keep)`
        self.bound: set[ast.AST] = set()
        self.hooks = {each for module in program.modules for _, each in self._forward_hooks(module)}
        self._nodes: dict[ast.AST, list[ast.AST]] = {}
        self._used: set[ast.AST] = set()  # classes and variables that were looked through
        self._followed: set[tuple[ast.AST, bool, bool]] = set()  # names, of which nothing new can be said
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
                if is_autograd_function(module, node):
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
            yield from functions_named(part[0], node)

    def nodes_of(self, function: ast.AST) -> list[ast.AST]:
        if function not in self._nodes:
            self._nodes[function] = [*ast.walk(function)]
        return self._nodes[function]

    def _forward_hooks(self, module: Module) -> Iterator[Part]:
        """The functions, and `__call__` of the objects, that are forward hooks: they get a replica."""
        for home, hook in _hooked(module, FORWARD_HOOKS):
            yield home, hook
            makers = self.program.flow.makers(home, hook) if isinstance(hook, ast.expr) else ()
            for made in (self.program.class_named(there.name(func)) for there, func in makers):
                yield from self.program.methods_of(*made, "__call__") if made else ()

    # --- which functions run

    def _begin(self) -> None:
        for module in self.program.modules:
            for node in module.all(ast.ClassDef):
                if self.program.reach.runs(module, node) and is_layer(module, node):
                    self._add_layer(module, node)
            for call in module.calls:
                is_hook = HOOKS.fullmatch(call.method) and call.method not in (
                    *self.program.methods_named,
                    *OF_TENSORS,
                )
                if is_hook and not self._is_of_wrapper(module, call) or call.name == SAVED:
                    for given in call.node.args:
                        self._build(module, given)
                        self.handed_in.to(module, given, 0)
                made = self.program.class_named(call.name)
                if made and is_layer(*made):
                    for given in values_of(call.node):
                        self._build(module, given)
                match call.node.args if call.name == "builtins.setattr" else []:
                    case [_, ast.Constant(value="forward"), given]:
                        self._build(module, given)
                self.handed_in.to_model(module, call)
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

    def _add_layer(self, module: Module, node: ast.ClassDef) -> None:
        for each in node.body:  # `size = Descriptor()`
            if isinstance(each, ast.Assign):
                self._build(module, each.value)
        bases = {module.name(base) for base in node.bases}
        # else a library has its forward
        is_whole = all(base == MODULE or self.program.class_named(base) for base in bases)
        for function in functions_of(node):
            is_called = not is_whole or function.name == "forward" or function.name.startswith("__")
            if function.name in BUILDING:
                self._build(module, function)
            elif is_called:
                self._run(module, function)

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
            self.handed_in.by_call(module, call, runs=runs)
        for node in nodes:
            later = not runs and node not in called
            for home, function in methods_by_text(module, node):
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
                    self.bound |= {function for _, function in functions_named(module, node)}
                self._mention(module, node, runs=runs or later)
                made = self.program.class_named(module.name(node)) if runs and node in called else None
                if made and not is_layer(*made):  # `Item(x)`: what it keeps on itself is its own
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
        is_setter = isinstance(node, ast.Attribute) and node.attr in self.program.methods_named
        if not isinstance(node.ctx, ast.Load) and not is_setter:
            return True
        # `Registry.get(name)`
        if not isinstance(node, ast.Attribute) or self.program.class_named(module.name(node.value)):
            return False
        is_known = node.attr in READING | FILLING
        return node.attr in BUILDING or is_known and not self.sharing.level(module, node.value)

    def _mention(self, module: Module, node: ast.Name | ast.Attribute, *, runs: bool) -> None:
        """What code names, it may call."""
        for home, function in functions_named(module, node):
            (self._run if runs else self._build)(home, function)
        name = module.name(node) or ""
        owner = self.program.class_named(name) or self.program.class_named(name.rpartition(".")[0])
        if owner and owner[1] not in self._used:
            self._used.add(owner[1])
            self._use_class(*owner)
        if isinstance(node, ast.Name):
            self._use_variable(module, node, runs=runs)

    def _use_class(self, module: Module, node: ast.ClassDef) -> None:
        """What Python itself calls of an object of a class; the forward and backward of a Function."""
        for each in functions_of(node):
            is_called = each.name.startswith("__") and each.name not in BUILDING
            if is_called or is_autograd_function(module, node) and each.name in ("forward", "backward"):
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
