"""Whether a node of a function that runs in a forward writes to what outlives it. Whatever cannot be told does."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import lru_cache

from dp2ddp.codemod.knowledge.changing import changed_argument
from dp2ddp.codemod.knowledge.functions import TRACKING, Does, does
from dp2ddp.codemod.knowledge.reading_methods import (
    CHANGING_HOMES,
    COMPUTING_HOMES,
    CONSUMED,
    FILLING,
    LOOKING,
    MODULE_HOMES,
    READING,
)
from dp2ddp.codemod.looks.called import functions_named, is_autograd_function, is_layer
from dp2ddp.codemod.looks.forwards import Forwards, Part, forwards_of
from dp2ddp.codemod.looks.sharing import is_constant
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import BUILDING, FUNCTIONS, inside, is_static, places, values_of
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.scopes import Binding

HARMLESS = (None, Does.WRAP, Does.DRAW, Does.COUNT_DEVICES, Does.MAKE_DEVICE, Does.SET_DEVICE, Does.CLOCK)
TABLES = (ast.Dict, ast.List, ast.Tuple, ast.Call, ast.Lambda)


@lru_cache(maxsize=1)  # each mention of DataParallel asks
def fillings(program: Program) -> list[Part]:
    """Where forwards and hooks write to what outlives them: to anything but locals and plain attributes of self."""
    running = forwards_of(program).running.items()
    return [part for function, module in running for part in _fillings_of(module, function)]


@lru_cache(maxsize=1)
def fillings_in_backward(program: Program) -> dict[Part, None]:
    """Where backwards and hooks on gradients write to what outlives them."""
    filled = (part for each in forwards_of(program).in_backward for part in _fillings_of(*each))
    return dict.fromkeys(part for part in filled if not is_kernel(*part))


def _fillings_of(module: Module, function: ast.AST) -> Iterator[Part]:
    forwards = forwards_of(module.program)
    filling = Filling(forwards, module)
    return ((module, node) for node in forwards.nodes_of(function) if filling.fills(node))


class Filling:
    """What the functions of one file write to, as far as they run in forwards."""

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
            case ast.Attribute(value=owner, attr="data", ctx=ast.Store()) if self._is_weight(owner):
                return True  # without gradients, the first replica's weights are the module's own
            # a class, a function, a file, too: `Net.count = 1`
            case (
                ast.Attribute(value=owner, ctx=ast.Store() | ast.Del())
                | ast.Subscript(value=owner, ctx=ast.Store() | ast.Del())
            ):
                return self.is_shared(owner) or self.module.name(owner, follow=False) is not None
            case ast.AugAssign(target=ast.Name() as target):
                return self.module.scope(target) is self.module.top or self.is_shared(target)
            case ast.Attribute(value=owner, attr=attr) if attr in FILLING and self.is_shared(owner):
                return attr != "add" or not self._is_sum(node)
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

    def _is_weight(self, node: ast.expr) -> bool:
        """`self.head.weight`, by another name, too."""
        values = (node, *(each for _, each in self.module.program.flow.origins(self.module, node)))
        return any(isinstance(each, ast.Attribute) and each.attr in self.sharing.weights for each in values)

    def _may_be_container(self, attr: str) -> bool:
        """`self.seen += [x]` extends the list that all replicas have; `self.count += 1` is lost with the replica."""
        given = self.module.program.attributes.get(attr, ())
        is_own = bool(given) and all(map(self._is_made_in_forward, *zip(*given, strict=True)))
        return not (is_own or self.sharing.is_copied(attr) or self.sharing.is_constant(attr))

    def _is_made_in_forward(self, module: Module, binding: Binding) -> bool:
        """A tensor that a replica makes for itself: `self.total = torch.zeros(3)`, `None` before."""
        made, function = binding.node, module.function_around(binding.node) if binding.node else None
        is_tensor = isinstance(made, ast.Call) and (module.name(made.func) or "").startswith("torch.")
        is_of_forward = function in self.forwards.running and function not in self.forwards.building
        is_new = is_tensor and is_of_forward and not self.sharing.level(module, made)
        return is_new or is_constant(module, made)

    def _is_sum(self, node: ast.AST) -> bool:
        """`add` of `torch.div(x, x.add(1))`, of a tensor: a set's gives None, with which nobody computes."""
        call = self.module.parents[node]
        around = self.module.parents[call] if isinstance(call, ast.Call) and call.func is node else None
        is_given = isinstance(around, ast.Call) and (self.module.name(around.func) or "").startswith("torch.")
        return is_given or isinstance(around, ast.BinOp)

    def _is_replica(self, owner: ast.expr) -> bool:
        """`self`, where that is a replica, not in a hook, nor in a function of `__init__`, which have the module.

        And what a hook is given.
        """
        if isinstance(owner, ast.Call):
            return self.module.name(owner.func) == "builtins.super"
        if not isinstance(owner, ast.Name) or not self._is_self(owner):
            return isinstance(owner, ast.Name) and self._is_given_to_hook(owner)
        scope = self.module.scope(owner)
        is_closure = scope is not None and self.sharing.is_closure(self.module, owner, scope)
        return not is_closure and (scope is None or scope.node not in self.forwards.bound)

    def _is_given_to_hook(self, owner: ast.Name) -> bool:
        scope = self.module.scope(owner)
        hook = scope.node if scope and scope.node in self.forwards.hooks else None
        return hook is not None and [each.arg for each in self.module.taken(hook)][:1] == [owner.id]

    def _is_self(self, owner: ast.expr) -> bool:
        """`self` of a module, the context of a Function, or an object being made."""
        scope = self.module.scope(owner) if isinstance(owner, ast.Name) else None
        kind = self.module.parents.get(scope.node) if scope else None
        if not isinstance(kind, ast.ClassDef) or not isinstance(scope.node, ast.FunctionDef):  # type: ignore[union-attr]
            return False
        function = scope.node  # type: ignore[union-attr]
        is_function = is_autograd_function(self.module, kind)
        is_kept = is_function or function.name in BUILDING or is_layer(self.module, kind)
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
        local = self.module.program.class_named(name)
        return is_layer(*local) if local else f"{name}.".startswith(MODULE_HOMES)

    # --- calls

    def _call_fills(self, call: Call) -> bool:
        name, function = call.name, call.node.func
        kind = (name or "").removesuffix(".apply")  # of an autograd.Function
        if functions_named(self.module, function) or self.module.program.class_named(kind):
            return False  # looked at, too
        if name is None and not self.module.is_of_absent_file(function):
            return self._is_unknown(function) or self._method_fills(call)
        name = name or ""
        if name.startswith("builtins."):
            return self._builtin_fills(call, name.partition(".")[2])
        if does(name) not in HARMLESS:
            return True
        is_given_shared = any(map(self.is_shared, values_of(call.node)))
        if name.startswith(COMPUTING_HOMES):
            return (is_given_shared or name.endswith("_")) and self._library_fills(call, name)
        if is_autograd_function(self.module, self.module.enclosing(call.node, ast.ClassDef)):
            return not is_kernel(self.module, call.node)
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
            return any(map(self.is_shared, _tensors_given_first(call.node)))
        return name.startswith(CHANGING_HOMES) or changed_argument(name) is not None

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


def _tensors_given_first(call: ast.Call) -> list[ast.expr]:
    """`torch.relu_(x)`, `torch._foreach_add_([x, y], 1)`."""
    first = call.args[:1]
    return first[0].elts if first and isinstance(first[0], ast.List | ast.Tuple) else first


def is_kernel(module: Module, node: ast.AST) -> bool:
    """A function of a library that is called in an autograd.Function, or in a backward: it computes."""
    home = (module.name(node.func) or "").partition(".")[0] if isinstance(node, ast.Call) else "builtins"
    return home not in TRACKING and home not in sys.stdlib_module_names


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
