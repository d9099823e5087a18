"""What one forward leaves for the next: which things outlive it, of which kind, and what changes them.

DataParallel's replicas are shallow copies: what their attributes refer to is one thing for all of them. A rank alone
would see its own part of what is done to it. What is set on a replica itself is lost.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Enum
from typing import TypeGuard

from dp2ddp.codemod.facts.call_graph import Part
from dp2ddp.codemod.facts.draws import GENERATORS
from dp2ddp.codemod.facts.mutating import MUTATING_METHODS, mutates
from dp2ddp.codemod.facts.mutations import How, mutations_at
from dp2ddp.codemod.facts.places import ExecutionPlace, Places
from dp2ddp.codemod.facts.randomness import TORCH_MAKERS
from dp2ddp.codemod.facts.roots import Roots, default_of, is_class, is_own
from dp2ddp.codemod.facts.script import SETTINGS, Script, literal
from dp2ddp.codemod.facts.tables import of

ITERATORS = (
    "itertools.",
    *(f"builtins.{name}" for name in ("iter", "enumerate", "zip", "map", "filter", "open")),
)
ARRAYS = of(
    "numpy", "zeros ones full empty array arange eye asarray linspace zeros_like ones_like load concatenate"
)
SHORT = {name.rpartition(".")[2]: name for name in MUTATING_METHODS}
NUMBERS = of(
    "builtins", "int float bool str len round tuple frozenset bytes complex range type id min max sum"
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
NEW_TENSORS = of("torch", "zeros ones empty full zeros_like ones_like empty_like full_like")


class ValueKind(Enum):
    """What a thing is, as far as it matters who changes it."""

    CONTAINER = "holds others"
    TENSOR = "a tensor that is neither a parameter nor a buffer"
    OBJECT = "an object of the script's own"
    ITERATOR = "what gives each thing once"
    FIXED = "a number, a text: it is never changed in place"
    MODULE = "a part of the model, a parameter or a buffer: DataParallel copies it"
    UNKNOWN = "anything"


class Carried:
    """What outlives the forwards of one file, and of which kind it is."""

    def __init__(self, script: Script, places: Places) -> None:
        self.script, self.places = script, places
        self.roots = Roots(script, places)
        self._kinds: dict[str, set[tuple[ValueKind, str | None]]] = {}
        self._may_change: dict[str, bool] = {}

    def outlives(self, root: ast.expr, change: ast.AST) -> bool:
        """Whether a thing was there before the forward: not what each forward makes anew before it changes it."""
        if not is_own(root):
            return True
        return not any(
            self._is_before(assignment, change)
            for assignment in self._assignments(root)
            if self._sets_anew(assignment)
        )

    def _sets_anew(self, assignment: ast.Assign | ast.AnnAssign) -> bool:
        """In each forward, without a condition, something new: what a replica is given by that is its own."""
        around = self.script.scopes.parents[assignment]
        in_forward = self.places.of(assignment) is ExecutionPlace.FORWARD and isinstance(
            around, ast.FunctionDef
        )
        return in_forward and assignment.value is not None and not self.roots.of(assignment.value)

    def _is_before(self, assignment: ast.stmt, change: ast.AST) -> bool:
        scopes = self.script.scopes
        node, other = scopes.function(assignment), scopes.function(change)
        if node is other:
            return assignment.lineno <= getattr(change, "lineno", 0)
        return getattr(node, "name", "") == "forward" or not self._is_forward(other)

    def _is_forward(self, function: ast.AST | None) -> bool:
        return getattr(function, "name", "") == "forward"

    def changes(self, root: ast.expr, method: str) -> bool:
        """Whether a method of a thing changes it, whatever the thing may be."""
        return any(
            self._method_changes(root, kind, type_name, method) for kind, type_name in self.kinds(root)
        )

    def _method_changes(self, root: ast.expr, kind: ValueKind, type_name: str | None, method: str) -> bool:
        if kind in (ValueKind.MODULE, ValueKind.FIXED):
            return False
        if kind is ValueKind.OBJECT and (classes := [*self._classes(root)]):
            return any(self._changes_itself(class_, method) for class_ in classes)
        return mutates(method, type_name) if type_name else self.may_change(method)

    def may_change(self, method: str) -> bool:
        """Whether a method changes its object, of any kind or of any class of the file that is no module."""
        if method not in self._may_change:
            classes = (node for node in self.script.nodes(ast.ClassDef) if isinstance(node, ast.ClassDef))
            plain = (class_ for class_ in classes if self.places.kind(class_) is None)
            self._may_change[method] = mutates(method) or any(
                self._changes_itself((self.script, node), method) for node in plain
            )
        return self._may_change[method]

    def _changes_itself(self, owner: Part, method: str) -> bool:
        """Whether a method stores to its object or what this holds, directly or through others of its own."""
        graph = self.places.modules.graph
        classes = graph.related(owner)
        bodies = [(home, node) for home, class_ in classes for node in getattr(class_, "body", ())]
        methods = [body for body in bodies if getattr(body[1], "name", "") == method]
        own = {body for _, body in bodies}
        reached = [node for node in graph.reached(methods) if node[1] in own]
        return any(_stores(script, node) for script, function in reached for node in ast.walk(function))

    def is_changed_by_operator(self, root: ast.expr) -> bool:
        """Whether `root += x` may change a thing in place: a list or an array, but no number.

        A tensor that a forward makes and keeps as its module's is the replica's, and goes with it.
        """
        if is_own(root) and not self._is_registered(root):
            kinds = {
                self._kind_of(script, value)
                for script, value in self.values(root)
                if not self._is_fresh(script, value)
            }
        else:
            kinds = self.kinds(root)
        return any(
            kind in (ValueKind.CONTAINER, ValueKind.TENSOR, ValueKind.OBJECT, ValueKind.UNKNOWN)
            for kind, _ in kinds
        )

    def _is_fresh(self, script: Script, value: ast.AST | None) -> bool:
        """A tensor that a forward makes."""
        is_made = isinstance(value, ast.Call) and script.scopes.name(value.func) in NEW_TENSORS
        return is_made and value is not None and self.places.of(value) is ExecutionPlace.FORWARD

    def holds(self, root: ast.expr) -> bool:
        """Whether a thing has parts that may be set: it is no number, and no part of the model."""
        return any(kind not in (ValueKind.FIXED, ValueKind.MODULE) for kind, _ in self.kinds(root))

    def is_iterator(self, root: ast.expr) -> bool:
        """Something that cannot be told from rank to rank: it has no state that can be read."""
        return any(kind is ValueKind.ITERATOR for kind, _ in self.kinds(root))

    def is_sendable(self, root: ast.expr) -> bool:
        """Whether templates/shared_state.py can tell other ranks what a thing has become."""
        return not any(type_name == "queue.SimpleQueue" for _, type_name in self.kinds(root))

    def is_default(self, root: ast.expr) -> bool:
        return isinstance(root, ast.Name) and default_of(self.script, root) is not None

    def is_shared(self, root: ast.expr) -> bool:
        """Whether a thing may have another name: it was handed in, taken from another, or given two names."""
        return any(self.has_other_name(*node) for node in self.values(root))

    def has_other_name(self, script: Script, value: ast.AST | None) -> bool:
        if value is None or self._kind_of(script, value)[0] is ValueKind.FIXED:
            return False
        statement = script.scopes.parents.get(value)
        is_of_two = isinstance(statement, ast.Assign) and len(statement.targets) > 1
        return is_of_two or isinstance(value, (ast.Name, ast.Attribute, ast.Subscript))

    def holds_attribute(self, thing: ast.expr) -> bool:
        """Whether `layer.cache`, of whichever object, was made a list or the like where no forward runs."""
        name = thing.attr if isinstance(thing, ast.Attribute) else ""
        return any(
            self._kind_of(script, value)[0] in (ValueKind.CONTAINER, ValueKind.TENSOR, ValueKind.OBJECT)
            for script, node in self.places.modules.graph.stores.get(name, ())
            if self.places.of(node) is not ExecutionPlace.FORWARD
            for value in _given_to(script, node)
            if value is not None
        )

    # --- what a thing is

    def kinds(self, root: ast.expr) -> set[tuple[ValueKind, str | None]]:
        """All that a thing may be, each with its class where that is known."""
        owner = self.script.scopes.owner_class(root)
        key = f"{id(owner) if is_own(root) else id(self.script.scopes.function(root))}.{self.script.text_of(root)}"
        if key not in self._kinds:
            self._kinds[key] = {(ValueKind.UNKNOWN, None)}  # things in a circle end here
            kinds = {self._kind_of(script, value) for script, value in self.values(root)}
            if not kinds or self._is_registered(root):
                kinds = {self._kind_of_unset(root)}
            self._kinds[key] = kinds
        return self._kinds[key]

    def _is_registered(self, root: ast.expr) -> bool:
        """Whether its class registers it as a buffer or a parameter: whatever tensor it is set to stays one."""
        owner = self.script.scopes.owner_class(root)
        return is_own(root) and any(
            call.method in ("register_buffer", "register_parameter")
            and self.script.scopes.owner_class(call.node) is owner
            and literal(call.argument(0, "name")) == getattr(root, "attr", None)
            for call in self.script.calls
        )

    def _kind_of_unset(self, root: ast.expr) -> tuple[ValueKind, str | None]:
        """The kind of what no assignment sets: a buffer, or a part that a library's class makes."""
        name = root.attr if isinstance(root, ast.Attribute) else getattr(root, "id", "")
        registered = {
            literal(call.argument(0, "name"))
            for call in self.script.calls
            if call.method in ("register_buffer", "register_parameter", "add_module", "register_module")
        }
        return (ValueKind.MODULE, None) if name in registered else (ValueKind.UNKNOWN, None)

    def _kind_of(self, script: Script, value: ast.AST | None) -> tuple[ValueKind, str | None]:
        match value:
            case ast.Constant() | ast.JoinedStr() | ast.Compare() | ast.Lambda():
                return ValueKind.FIXED, None
            case ast.UnaryOp(operand=operand):
                return self._kind_of(script, operand)
            case ast.List() | ast.ListComp():
                return ValueKind.CONTAINER, "builtins.list"
            case ast.Dict() | ast.DictComp():
                return ValueKind.CONTAINER, "builtins.dict"
            case ast.Set() | ast.SetComp():
                return ValueKind.CONTAINER, "builtins.set"
            case ast.GeneratorExp():
                return ValueKind.ITERATOR, None
            case ast.Tuple(elts=parts):
                holds = any(self._kind_of(script, part)[0] is not ValueKind.FIXED for part in parts)
                return (ValueKind.CONTAINER, None) if holds else (ValueKind.FIXED, None)
            case ast.BinOp(left=left, right=right):
                kinds = [self._kind_of(script, left), self._kind_of(script, right)]
                return next((kind for kind in kinds if kind[0] is not ValueKind.FIXED), kinds[0])
            case ast.Call():
                return self._kind_of_made(script, value)
            case ast.Attribute(value=ast.Name(id=name)) if name in SETTINGS:
                return ValueKind.FIXED, None
            case ast.Name() if (definition := self.places.find(script, value)) and isinstance(
                definition[1], FUNCTIONS
            ):
                return ValueKind.FIXED, None
            case ast.Name():
                return self._kind_of_name(script, value)
        return ValueKind.UNKNOWN, None

    def _kind_of_name(self, script: Script, value: ast.Name) -> tuple[ValueKind, str | None]:
        given = script.scopes.value(value)
        if given is not value:
            return self._kind_of(script, given)
        if value.id in SETTINGS:
            return ValueKind.OBJECT, None
        default = default_of(script, value)
        if default is not None:
            return self._kind_of(script, default)
        return ValueKind.UNKNOWN, None

    def _kind_of_made(self, script: Script, call: ast.Call) -> tuple[ValueKind, str | None]:
        name = script.scopes.name(call.func) or ""
        definition = self.places.find(script, call.func)
        if definition and isinstance(definition[1], ast.ClassDef):
            return (
                (ValueKind.OBJECT, None)
                if self.places.kind(definition[1]) is None
                else (ValueKind.MODULE, None)
            )
        if definition and any(
            isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(definition[1])
        ):
            return ValueKind.ITERATOR, None
        if name in MUTATING_METHODS:
            return ValueKind.CONTAINER, name
        last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in ARRAYS:
            return ValueKind.CONTAINER, "numpy.ndarray"
        if not name and not definition and last in SHORT:  # `defaultdict(list)`, from wherever it is imported
            return ValueKind.CONTAINER, SHORT[last]
        if name in TORCH_MAKERS or name.startswith("torch.rand"):
            return ValueKind.TENSOR, "torch.Tensor"
        if name.startswith(("torch.nn.", "torchvision.models.")) or last == "Parameter":
            return ValueKind.MODULE, None
        if (
            name in NUMBERS
            or name in GENERATORS
            or name.startswith(("torch.device", "torch.Generator", "logging."))
        ):
            return ValueKind.FIXED, None
        if name.startswith(ITERATORS):
            return ValueKind.ITERATOR, None
        if isinstance(call.func, ast.Attribute) and last in (
            "to",
            "cuda",
            "cpu",
            "float",
            "clone",
            "detach",
            "double",
        ):
            return self._kind_of(script, call.func.value)
        return ValueKind.UNKNOWN, None

    def values(self, root: ast.expr) -> Iterator[tuple[Script, ast.AST | None]]:
        """What a thing is set to, each with its file."""
        if isinstance(root, ast.Attribute):
            yield from self._assigned(root)
        elif isinstance(root, ast.Name):
            if (default := default_of(self.script, root)) is not None:
                yield self.script, default
                return
            home = self.script.scopes.lookup(root.id, self.script.scopes.scope_of[root])
            imported = self._imported(root)
            for value in home.values.get(root.id, []) if home else ():
                yield self.script, value
            if imported:
                yield from ((imported, node) for node in imported.scopes.top.values[root.id])

    def _imported(self, root: ast.Name) -> Script | None:
        module, _, name = (self.script.scopes.name(root) or "").rpartition(".")
        home = self.places.modules.by_name.get(module)
        return home if home and name == root.id and name in home.scopes.top.values else None

    def _related(self, root: ast.Attribute) -> list[Part]:
        """The classes whose attribute it may be; none: any."""
        owner = self.script.scopes.owner_class(root)
        if is_own(root) and owner:
            return list(self.places.modules.graph.related((self.script, owner)))
        definition = self.places.find(self.script, root.value) if is_class(self.script, root.value) else None
        return [definition] if definition else []

    def _assigned(self, root: ast.Attribute) -> Iterator[tuple[Script, ast.AST | None]]:
        classes = self._related(root)
        for script, node in classes or [(self.script, self.script.tree)]:
            if isinstance(node, ast.ClassDef):
                inside = script.scopes.scope_of[node.body[0]]
                yield from ((script, value) for value in inside.values.get(root.attr, ()))
            for inner in ast.walk(node):
                if _sets(inner, root.attr, script):
                    yield from ((script, value) for value in _given_to(script, inner))

    def _assignments(self, root: ast.Attribute) -> Iterator[ast.Assign | ast.AnnAssign]:
        for script, node in self._related(root):
            for inner in ast.walk(node) if script is self.script else ():
                if isinstance(inner, (ast.Assign, ast.AnnAssign)):
                    targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
                    if any(is_own(target) and target.attr == root.attr for target in targets):
                        yield inner

    def _classes(self, root: ast.expr) -> Iterator[Part]:
        """The classes, no modules, of which an object is made."""
        for script, value in self.values(root):
            made = script.scopes.value(value) if isinstance(value, ast.Name) else value
            definition = self.places.find(script, made.func) if isinstance(made, ast.Call) else None
            if definition and isinstance(definition[1], ast.ClassDef):
                yield definition


def _sets(node: ast.AST, name: str, script: Script) -> TypeGuard[ast.Attribute]:
    """`self.name = ...`, `Net.name = ...`."""
    is_set = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == name
    return is_set and (is_own(node) or is_class(script, node.value))  # type: ignore[attr-defined]  # an Attribute


def _given_to(script: Script, target: ast.expr) -> Iterator[ast.AST | None]:
    """The value of an assignment to an attribute; None where it cannot be told (unpacking, a loop)."""
    parent = script.scopes.parents[target]
    if isinstance(parent, (ast.Assign, ast.AnnAssign)):
        yield parent.value
    elif isinstance(parent, ast.Tuple) and isinstance(whole := script.scopes.parents[parent], ast.Assign):
        if isinstance(whole.value, ast.Tuple) and len(whole.value.elts) == len(parent.elts):
            yield whole.value.elts[parent.elts.index(target)]
        else:
            yield None
    elif not isinstance(parent, ast.AugAssign):
        yield None


def _stores(script: Script, node: ast.AST) -> bool:
    """Whether a node of a method changes its object, or something that this holds."""
    for change in mutations_at(script, node):
        by_method = change.how is How.METHOD and not mutates(change.method)
        if not by_method and change.how is not How.REBOUND and _is_of_self(change.thing):
            return change.how is not How.METHOD or not isinstance(change.thing, ast.Name)
    return False


def _is_of_self(node: ast.expr) -> bool:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name) and node.id == "self"
