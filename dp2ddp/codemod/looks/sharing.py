"""What an expression of a forward may be: made there, or something that outlives it."""

import ast
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import partial
from typing import TypeAlias

from dp2ddp.codemod.knowledge.reading_methods import HANDING_ON, NEW_CONTAINERS, VIEWS
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import Function, values_of
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.scopes import Binding, Binds, Scope

RETURNS = (ast.Return, ast.YieldFrom, ast.Yield)
OF_NUMBERS = ("builtins.len", "builtins.int", "builtins.float", "builtins.bool", "builtins.str")
OF_LAYERS = {"weight", "bias"}
OF_NORMS = {"running_mean", "running_var", "num_batches_tracked"}  # which torch's own layers register
Parameter: TypeAlias = tuple[ast.AST, str]  # the function, and the name


class Level(IntEnum):
    """How far a thing is from what outlives a forward."""

    NEW = 0
    HOLDS_SHARED = 1  # is new, but what is in it is not
    SHARED = 2


class Sharing:
    """Levels of expressions. `parameters`, `outer` and `returns` grow while the forwards are looked at."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.buffers = _registered(program, "register_buffer") | (OF_NORMS - program.attributes.keys())
        self.weights = OF_LAYERS | _registered(program, "register_parameter") | _set_to_weights(program)
        self.parameters: set[Parameter] = set()  # that somebody hands something shared
        self.outer: set[ast.AST] = set()  # functions that run before the forward; their variables outlive it
        self.returns: dict[str, list[tuple[Module, Function]]] = {}  # functions that run in forwards, by name
        self._returned_by: dict[ast.AST, list[ast.expr]] = {}
        self._levels: dict[ast.AST, Level] = {}
        self._answers: dict[object, Level] = {}  # what names are, and functions return, at least
        self._open: dict[object, Callable[[], Level]] = {}  # those of them that are to be asked again

    def is_shared(self, module: Module, node: ast.expr) -> bool:
        return self.level(module, node) is Level.SHARED

    def level(self, module: Module, node: ast.AST | None) -> Level:
        """How far an expression is from what outlives the forward."""
        if node is None or self._open:  # this is not the last answer
            return self._find_level(module, node)
        if node not in self._levels:
            self._levels[node] = self._find_level(module, node)
        return self._levels[node]

    def look_again(self) -> None:
        """More may be shared now."""
        self._levels.clear()
        self._answers.clear()

    def _find_level(self, module: Module, node: ast.AST | None) -> Level:
        match node:
            case ast.Name():
                return self._of_name(module, node)
            case ast.Attribute(value=value, attr="data"):
                return Level.SHARED if self._may_be_weight(module, value) else Level.NEW
            case ast.Attribute(attr=attr) if self.is_copied(attr) or self.is_constant(attr):
                return Level.NEW
            case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.Starred(value=value):
                return self._part(module, [value])
            case ast.Dict(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
                return self._holding(module, parts)
            case (
                ast.DictComp(value=part)
                | ast.ListComp(elt=part)
                | ast.SetComp(elt=part)
                | ast.GeneratorExp(elt=part)
            ):
                return self._holding(module, [part])
            case ast.BinOp(left=left, right=ast.List() as right):  # `self.layers + [x]`
                return self._holding(module, [left, right])
            case ast.IfExp(body=body, orelse=other):
                return self._highest(module, [body, other])
            case ast.BoolOp(values=parts):
                return self._highest(module, parts)
            case ast.NamedExpr(value=value):
                return self.level(module, value)
            case ast.Call():
                return self._of_call(module, node)
            case ast.Await() | ast.Yield() | ast.YieldFrom():
                return Level.SHARED
        return Level.NEW

    def _highest(self, module: Module, nodes: Iterable[ast.AST | None]) -> Level:
        return max((self.level(module, each) for each in nodes), default=Level.NEW)

    def _part(self, module: Module, wholes: Iterable[ast.AST | None]) -> Level:
        return Level.SHARED if self._highest(module, wholes) else Level.NEW

    def _holding(self, module: Module, parts: Iterable[ast.AST | None]) -> Level:
        return Level.HOLDS_SHARED if self._highest(module, parts) else Level.NEW

    # --- attributes

    def is_copied(self, name: str) -> bool:
        """Whether a replica has one of its own: a buffer or a parameter, which the wrapper looks after."""
        return name in self.weights or name in self.buffers

    def is_weight(self, name: str) -> bool:
        """Whether it only ever is a parameter: `weight`, or what the program itself makes one."""
        given = self.program.attributes.get(name, ())
        return name in OF_LAYERS or bool(given) and all(_makes_weight(*each) for each in given)

    def is_constant(self, name: str) -> bool:
        """Whether it only ever is a number, a text, None, as a property, too: what nobody can change in place."""
        if given := self.program.attributes.get(name, []):
            return _are_constants(given)
        methods = self.program.methods_named.get(name, ())
        return all(_is_property(*each) for each in methods) and self.gives_constant(name)

    def gives_constant(self, name: str) -> bool:
        """Whether the program's methods of a name, of which there are some, only ever return such a thing."""
        methods = self.program.methods_named.get(name, ())
        returned = [(home, self.returned_by(each)) for home, each in methods]
        return bool(returned) and all(
            values and all(is_constant(home, each) for each in values) for home, values in returned
        )

    def _may_be_weight(self, module: Module, node: ast.expr) -> bool:
        """Whether writing to `.data` may change a parameter, which no counter of versions shows."""
        if isinstance(node, ast.Name) and not self.is_shared(module, node):
            given = [each for each in _bindings_at(module, node) if each.how is not Binds.CHANGE]
            made = (
                each.how is Binds.VALUE and isinstance(each.node, (ast.Call, ast.BinOp)) for each in given
            )
            return not given or not all(made)
        return not isinstance(node, ast.Attribute) or node.attr not in self.buffers

    # --- calls

    def _of_call(self, module: Module, node: ast.Call) -> Level:
        name, method = module.name(node.func) or "", isinstance(node.func, ast.Attribute)
        last = node.func.attr if isinstance(node.func, ast.Attribute) else name.rpartition(".")[2]
        owner = [node.func.value] if isinstance(node.func, ast.Attribute) and not name else []
        given = values_of(node)
        if len(given) > 1 and isinstance(given[1], ast.Constant) and given[1].value == "data":
            return Level.SHARED  # getattr(parameter, "data")
        if returned := max((self._returned(*each) for each in self.returns.get(last, ())), default=Level.NEW):
            return returned
        if last == "copy" and owner:
            return self._holding(module, owner)
        if name.startswith("builtins.") and last in NEW_CONTAINERS:
            return self._holding(module, given)
        if isinstance((module.definition(node.func) or (module, None))[1], ast.ClassDef):
            return Level.HOLDS_SHARED  # whatever it finds in its class
        if last in VIEWS:
            return self._part(module, owner or given)
        is_computed = not name and not method and not isinstance(node.func, ast.Name)
        return self._part(module, given) if is_computed or name.startswith(HANDING_ON) else Level.NEW

    def _returned(self, module: Module, function: Function) -> Level:
        return self._answer(function, lambda: self._highest(module, self.returned_by(function)))

    def _answer(self, key: object, ask: Callable[[], Level]) -> Level:
        """What a name or a function stands for, which may lead back to itself: asked until no answer changes."""
        is_first = not self._open
        if key not in self._answers:
            self._answers[key], self._open[key] = Level.NEW, ask
            before: dict[object, Level] = {}
            while is_first and before != self._answers:
                before = dict(self._answers)
                self._answers.update(
                    {each: max(before[each], again()) for each, again in [*self._open.items()]}
                )
            if is_first:
                self._open.clear()
        return self._answers[key]

    def returned_by(self, function: Function) -> list[ast.expr]:
        if function not in self._returned_by:
            returned = (each for each in ast.walk(function) if isinstance(each, RETURNS))
            self._returned_by[function] = [
                ast.List([each.value]) if isinstance(each, ast.Yield) else each.value
                for each in returned
                if each.value
            ]
        return self._returned_by[function]

    # --- names

    def _of_name(self, module: Module, node: ast.Name) -> Level:
        scope = module.scope(node)
        if scope is None or scope is module.top and module.name(node, follow=False):
            return Level.NEW if module.name(node) else Level.SHARED  # a function, a class, a library
        bindings = _bindings_at(module, node)
        if scope is module.top or self.is_closure(module, node, scope):
            return Level.NEW if _are_constants((module, each) for each in bindings) else Level.SHARED
        key = (id(scope), node.id, len(bindings))  # a place may have fewer of its bindings
        return self._answer(key, partial(self._of_bindings, module, scope, node.id, bindings))

    def _of_bindings(self, module: Module, scope: Scope, name: str, bindings: Iterable[Binding]) -> Level:
        return max((self._of_binding(module, scope, name, each) for each in bindings), default=Level.NEW)

    def is_closure(self, module: Module, node: ast.AST, scope: Scope) -> bool:
        """Whether a name belongs to a function around, which has ended before the forward began."""
        return scope.node in self.outer and module.function_around(node) is not scope.node

    def _of_binding(self, module: Module, scope: Scope, name: str, binding: Binding) -> Level:
        match binding.how:
            case Binds.PARAMETER:
                return Level.SHARED if (scope.node, name) in self.parameters else Level.NEW
            case Binds.CAUGHT:
                return Level.HOLDS_SHARED  # an error may carry anything
            case Binds.CONTEXT:
                return self.level(module, binding.whole)
            case Binds.VALUE:
                return self.level(module, binding.node)
        return self._part(module, [binding.whole or binding.node])


def _bindings_at(module: Module, node: ast.Name) -> list[Binding]:
    """What may bind a name where it stands: no longer the parameter, below `x = x.clone()`."""
    given = module.bindings(node)
    if any(_is_set_above(module, each.node, node) for each in given if each.how is Binds.VALUE):
        return [each for each in given if each.how is not Binds.PARAMETER]
    return given


def _is_set_above(module: Module, value: ast.AST | None, node: ast.AST) -> bool:
    """Whether a name is set to a value by a statement that stands above a node, in a block around it."""
    statement = module.parents[value] if value else None
    if not isinstance(statement, ast.Assign) or (statement.end_lineno or 0) >= node.lineno:  # type: ignore[attr-defined]
        return False
    around = [node, *module.around(node)]
    return any(each in around for each in module.block_of(statement))


def _registered(program: Program, method: str) -> set[str]:
    """The names that modules are told: `register_buffer("mean", ...)`."""
    names = (call.argument(0, "name") for _, call in program.calls if call.method == method)
    return {str(each.value) for each in names if isinstance(each, ast.Constant)}


def _set_to_weights(program: Program) -> set[str]:
    return {name for name, given in program.attributes.items() if any(_makes_weight(*each) for each in given)}


def _makes_weight(module: Module, binding: Binding) -> bool:
    node = binding.node
    return isinstance(node, ast.Call) and (module.name(node.func) or "").endswith("nn.Parameter")


def _are_constants(bindings: Iterable[tuple[Module, Binding]]) -> bool:
    """Whether something only ever is set to constants, and is set at all."""
    given = [(module, each) for module, each in bindings if each.how is not Binds.CHANGE]
    return bool(given) and all(
        each.how is Binds.VALUE and is_constant(module, each.node) for module, each in given
    )


def is_constant(module: Module, value: ast.AST | None) -> bool:
    """Whether it is a number, a text, None."""
    match value:
        case ast.Constant() | ast.JoinedStr() | ast.Compare():
            return True
        case ast.Call(func=func):
            return module.name(func) in OF_NUMBERS
        case ast.UnaryOp(operand=inner):
            return is_constant(module, inner)
        case ast.BinOp(left=left, right=right):
            return is_constant(module, left) and is_constant(module, right)
    return False


def _is_property(module: Module, function: Function) -> bool:
    return any(module.name(each) == "builtins.property" for each in getattr(function, "decorator_list", ()))
