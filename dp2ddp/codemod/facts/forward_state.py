"""What a forward, or a hook, keeps for the next one or the rest of the script: lists, dicts, counters, attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dp2ddp.codemod.facts.cached import is_cache_entry
from dp2ddp.codemod.facts.carried import Carried, ValueKind
from dp2ddp.codemod.facts.iterations import FUNCTIONS, LOOPS
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.mutating import is_in_place
from dp2ddp.codemod.facts.mutations import How, Mutation, learns, mutations_at
from dp2ddp.codemod.facts.places import ExecutionPlace, Places
from dp2ddp.codemod.facts.randomness import is_remembered
from dp2ddp.codemod.facts.reach import Reach
from dp2ddp.codemod.facts.roots import is_class, is_own
from dp2ddp.codemod.facts.script import Script

HOOKS = ("register_forward_hook", "register_forward_pre_hook")
BACKWARD_HOOKS = ("register_backward_hook", "register_full_backward_hook", "register_full_backward_pre_hook")
OWN_DICTS = {"__dict__", "_buffers", "_parameters", "_modules"}  # each replica has its own


@dataclass(frozen=True, eq=False)
class Kept:
    """Something that a forward fills, and the next one or the rest of the script reads."""

    node: ast.AST  # where it is filled
    name: str
    is_reached: bool  # by the wrapper, when the script runs
    is_read_outside: bool


class ForwardState:
    """What the forwards and hooks of one file change, and who reads it."""

    def __init__(
        self,
        script: Script,
        places: Places,
        wraps: Sequence[Wrap],
        scripts: Sequence[Script],
        reach: Reach | None = None,
    ) -> None:
        self.reach = reach
        self.script, self.places, self.wraps, self.scripts = script, places, wraps, scripts
        self.carried = Carried(script, places)
        self.backward_hooks = set(self._hooks(BACKWARD_HOOKS))
        self.hooks = {*self._hooks(HOOKS), *self.backward_hooks}

    def kept(self) -> Iterator[Kept]:
        """What is filled in a forward, and read outside or by the next forward, each once."""
        reported: set[str] = set()
        changes = list(self.changes())
        places = {kept for change, kept in changes if change.method != "__getitem__"}
        for change, kept in changes:
            name = self.script.text_of(kept)
            if name in reported:
                continue
            outside, by_next = self.is_read_outside(kept), self._is_read_by_next(change, kept, places)
            shared = self.carried.is_shared(kept)
            if outside or by_next or shared:
                reported.add(name)
                behind = any(
                    ancestor in self.backward_hooks for ancestor in self.script.scopes.ancestors(change.node)
                )
                behind = behind or is_remembered(self.script, change.node)
                yield Kept(change.act, name, self._is_reached(kept) and not behind, outside or not by_next)

    def _is_read_by_next(self, change: Mutation, kept: ast.expr, changes: set[ast.expr]) -> bool:
        """Whether a forward may see what one before has left: not of a cache, nor of what it has just put there."""
        node = change.act
        if is_cache_entry(self.script, node, kept):
            return False
        if learns(self.script, change) or self.carried.is_iterator(kept):
            return True
        function = self.script.scopes.function(node)
        end = (getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0))
        for script in self.scripts:
            for inner in self._reads_in(script, kept):
                before = script is not self.script or (inner.lineno, inner.col_offset) <= end
                elsewhere = before or script.scopes.function(inner) is not function
                if (
                    self.is_in_forward(inner, script)
                    and inner not in changes
                    and (elsewhere or not isinstance(node, ast.Assign))
                ):
                    return True
        return False

    def _is_reached(self, kept: ast.expr) -> bool:
        """Whether it is a container or an attribute that can be found when the script runs, and not a plain name."""
        if (
            self.carried.is_iterator(kept)
            or self.carried.is_default(kept)
            or not self.carried.is_sendable(kept)
        ):
            return False
        if isinstance(kept, ast.Attribute):
            is_part = (
                not is_own(kept)
                and not is_class(self.script, kept.value)
                and self.carried.holds_attribute(kept)
            )
            return (is_own(kept) or is_part) and kept.attr not in OWN_DICTS
        return isinstance(kept.ctx, ast.Load) if isinstance(kept, ast.Name) else False

    def _hooks(self, registered: tuple[str, ...]) -> Iterator[ast.AST]:
        """Functions that run in a replica; a hook of the wrapper itself runs once, on the whole batch."""
        for call in self.script.calls:
            function = call.node.func
            if call.method not in registered or not call.node.args or not isinstance(function, ast.Attribute):
                continue
            if (
                not self._is_wrapped(function.value)
                and not self.places.apart.has_model(function.value)
                and not self._is_over_before_wraps(call.node)
            ):
                yield from self._functions(call.node.args[0])

    def _is_over_before_wraps(self, registered: ast.Call) -> bool:
        """A function that counts operations: it takes its hooks away, and is called before the model is wrapped."""
        around = [
            ancestor
            for ancestor in self.script.scopes.ancestors(registered)
            if isinstance(ancestor, FUNCTIONS)
        ]
        if not around or not any(
            isinstance(node, ast.Attribute) and node.attr == "remove" for node in ast.walk(around[-1])
        ):
            return False
        mentions = [
            (script, mention)
            for script in self.scripts
            for mention in script.by_word.get(around[-1].name, ())
            if self.reach is None or self.reach.holds(script, mention)
        ]
        return all(self._is_before_wraps(script, mention) for script, mention in mentions)

    def _is_before_wraps(self, script: Script, mention: ast.expr) -> bool:
        call = script.scopes.parents[mention]
        if not isinstance(call, ast.Call) or call.func is not mention:
            return False
        return bool(self.wraps) and all(
            wrap.call.node in script.scopes.parents
            and script.scopes.function(wrap.call.node) is script.scopes.function(call)
            and script.positions.span(wrap.call.node).start > script.positions.span(call).start
            and not any(isinstance(ancestor, LOOPS) for ancestor in script.scopes.ancestors(wrap.call.node))
            for wrap in self.wraps
        )

    def _functions(self, given: ast.expr) -> Iterator[ast.AST]:
        """The functions that a hook is: a name, a lambda, a method, or what a function makes (`keep("layer4")`)."""
        if isinstance(given, ast.Lambda):
            yield given
        elif isinstance(given, ast.Attribute):
            for node in self.script.nodes(ast.FunctionDef):
                if isinstance(node, ast.FunctionDef) and node.name == given.attr:
                    yield node
        elif isinstance(given, ast.Call):
            for argument in (given.func, *given.args):
                yield from self._functions(argument)
        elif definitions := self.script.scopes.definitions(given):
            yield from definitions
        elif isinstance(made := self.script.scopes.value(given), ast.Call):  # an object that can be called
            kind = self.script.scopes.definition(made.func)
            yield from (node for node in getattr(kind, "body", []) if getattr(node, "name", "") == "__call__")

    def _is_wrapped(self, node: ast.expr) -> bool:
        """By name, behind the wrap: `net = DataParallel(net)` gives the name another meaning there."""
        return any(
            self.script.text_of(node) in wrap.names and node.lineno > wrap.call.node.lineno
            for wrap in self.wraps
        )

    def changes(self) -> Iterator[tuple[Mutation, ast.expr]]:
        """Each change in a forward, with the name or the `self.NAME` that is changed."""
        kinds = (ast.Attribute, ast.Subscript, ast.Name, ast.AugAssign, ast.Call)
        for node in self.script.nodes(*kinds):
            if self.is_in_forward(node):
                for change in mutations_at(self.script, node):
                    yield from ((change, kept) for kept in self._changed(change))
                if isinstance(node, (ast.Attribute, ast.Name)) and isinstance(node.ctx, ast.Load):
                    yield from self._used_up(node)

    def _used_up(self, node: ast.Attribute | ast.Name) -> Iterator[tuple[Mutation, ast.expr]]:
        """`for scale in self.scales`, of an iterator: whoever reads it, changes it."""
        is_attribute = isinstance(self.script.scopes.parents[node], ast.Attribute)
        if (is_own(node) or isinstance(node, ast.Name)) and not is_attribute:
            for kept in self.carried.roots.of(node):
                if kept is node and self.carried.is_iterator(kept):
                    yield Mutation(node, node, node, How.ARGUMENT), kept

    def _changed(self, change: Mutation) -> Iterator[ast.expr]:
        """What of all that outlives the forward is changed."""
        if change.how is How.REBOUND:
            yield change.thing
        elif change.how is How.PART and isinstance(change.node, ast.Attribute) and self._is_namespace(change):
            yield change.node
        elif change.how is How.ARGUMENT and self._is_namespace(change):
            yield change.act if isinstance(change.act, ast.expr) else change.node
        elif not self._is_of_replica(change) and not self._is_of_copy(change):
            roots = self.carried.roots.of(change.thing)
            for root in roots:
                if self._is_changed(change, root) and self.carried.outlives(root, change.node):
                    yield root
            if self._is_of_part(change, roots):
                yield _without_items(change.thing)

    def _is_namespace(self, change: Mutation) -> bool:
        """What is set on a class, a function, or an object that is no module: `Net.calls = 1`, `self.features = x`."""
        if is_class(self.script, change.thing) or self.places.find(self.script, change.thing) is not None:
            return True
        owner = self.script.scopes.owner_class(change.node)
        is_self = isinstance(change.thing, ast.Name) and change.thing.id == "self"
        return is_self and owner is not None and self.places.kind(owner) is None

    def _is_of_copy(self, change: Mutation) -> bool:
        """`mine = list(self.items); mine.append(x)`: the copy is changed, and not the list.

        `mine[0] += x` may change what was in the list.
        """
        roots = self.carried.roots
        is_of_item = change.how is How.PART and isinstance(change.act, ast.AugAssign)
        if roots.is_new_container(change.thing):
            return not is_of_item
        return roots.is_picked(change.thing) and not any(
            kind is ValueKind.OBJECT  # which gives its items as it likes
            for root in roots.of(change.thing)
            for kind, _ in self.carried.kinds(root)
        )

    def _is_of_part(self, change: Mutation, roots: list[ast.expr]) -> bool:
        """`self.layer.cache.append(x)`, `layer.cache[0] = x`: what a part of the model keeps, beside its parameters."""
        thing = _without_items(change.thing)
        if not isinstance(thing, ast.Attribute) or is_own(thing) or not self.carried.holds_attribute(thing):
            return False
        if change.how is How.METHOD and not self.carried.may_change(change.method):
            return False
        if not roots:  # a parameter, of a hook say; what is made here is nobody else's
            owner = self.script.scopes.value(_root(thing))
            return isinstance(owner, ast.Name)
        return not any(map(self.carried.holds, roots))

    def _is_of_replica(self, change: Mutation) -> bool:
        """`self.__dict__["n"] = 1`, which is lost, as whatever is set on a replica."""
        return change.how in (How.PART, How.METHOD) and (
            is_own(change.thing)
            and change.thing.attr in OWN_DICTS
            or self.script.text_of(change.thing) == "vars(self)"
        )

    def _is_changed(self, change: Mutation, root: ast.expr) -> bool:
        if not isinstance(root, (ast.Name, ast.Attribute)):
            return change.how is not How.METHOD or self.carried.may_change(change.method)
        is_whole = change.thing is root or self.script.scopes.value(change.thing) is root
        if change.how is How.OPERATOR:
            return self.carried.is_changed_by_operator(root)
        if change.how is not How.METHOD:
            return self.carried.holds(root)
        if is_whole:
            return self.carried.changes(root, change.method)
        return self.carried.holds(root) and self.carried.may_change(change.method)

    def is_in_forward(self, node: ast.AST, script: Script | None = None) -> bool:
        around = (script or self.script).scopes.ancestors(node)
        return self.places.of(node) is ExecutionPlace.FORWARD or any(
            parent in self.hooks for parent in around
        )

    def is_read_outside(self, kept: ast.expr) -> bool:
        if not isinstance(kept, (ast.Name, ast.Attribute)):
            return True  # `getattr(self, name)`: any of them
        return any(
            not self.is_in_forward(node) for script in self.scripts for node in self._reads_in(script, kept)
        )

    def _reads_in(self, script: Script, kept: ast.expr) -> Iterator[ast.Attribute | ast.Name]:
        for node in script.nodes(ast.Attribute, ast.Name):
            assert isinstance(node, (ast.Attribute, ast.Name))
            if not isinstance(node.ctx, ast.Load):
                continue
            if isinstance(node, ast.Attribute):
                name = (
                    kept.attr if isinstance(kept, ast.Attribute) else script is not self.script and _id(kept)
                )
                if node.attr == name:
                    yield node
            elif isinstance(kept, ast.Name) and node.id == kept.id and self._is_same(script, node, kept):
                yield node

    def _is_same(self, script: Script, node: ast.Name, kept: ast.Name) -> bool:
        """Whether two names of the same text mean the same; in another file they may."""
        if script is not self.script:
            return script.scopes.lookup(node.id, script.scopes.scope_of[node]) is script.scopes.top
        homes = [script.scopes.lookup(inner.id, script.scopes.scope_of[inner]) for inner in (kept, node)]
        return homes[0] is homes[1]


def _without_items(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node


def _id(kept: ast.expr) -> str:
    return kept.id if isinstance(kept, ast.Name) else ""


def data_writes(script: Script, places: Places) -> Iterator[ast.AST]:
    """`self.codebook.data.mul_(0.9)` in a forward: parameters that it changes behind autograd's back."""
    for node in script.nodes(ast.Call, ast.Assign, ast.AugAssign):
        if any(map(_is_own_data, _written(node))) and places.of(node) is ExecutionPlace.FORWARD:
            yield node


def _written(node: ast.AST) -> Iterator[ast.expr]:
    """What `x.mul_()`, `x[i] = ...` and `x += ...` write to."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and is_in_place(node.func.attr):
            yield node.func.value
    elif isinstance(node, (ast.Assign, ast.AugAssign)):
        yield from node.targets if isinstance(node, ast.Assign) else [node.target]


def _is_own_data(written: ast.expr) -> bool:
    attributes = {node.attr for node in ast.walk(written) if isinstance(node, ast.Attribute)}
    return "data" in attributes and any(
        isinstance(node, ast.Name) and node.id == "self" for node in ast.walk(written)
    )
