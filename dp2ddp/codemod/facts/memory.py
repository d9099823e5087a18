"""What a forward, or a hook, keeps for the next one or the rest of the script: lists, dicts, counters, attributes."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dp2ddp.codemod.facts.cached import is_cache_entry
from dp2ddp.codemod.facts.carried import Carried, is_own
from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.places import Place, Places
from dp2ddp.codemod.facts.script import Script

HOOKS = ("register_forward_hook", "register_forward_pre_hook")
BACKWARD_HOOKS = ("register_backward_hook", "register_full_backward_hook", "register_full_backward_pre_hook")
CHANGES = (
    "append",
    "extend",
    "insert",
    "appendleft",
    "add",
    "update",
    "setdefault",
    "pop",
    "popleft",
    "clear",
)
CONTAINERS = ("list", "dict", "set", "defaultdict", "Counter", "deque", "OrderedDict")


@dataclass(frozen=True, eq=False)
class Kept:
    """Something that a forward fills, and the next one or the rest of the script reads."""

    node: ast.AST  # where it is filled
    name: str
    is_reached: bool  # by the wrapper, when the script runs
    is_read_outside: bool


class Memory:
    """What the forwards and hooks of one file change, and who reads it."""

    def __init__(
        self, script: Script, places: Places, wraps: Sequence[Wrap], scripts: Sequence[Script]
    ) -> None:
        self.script, self.places, self.wraps, self.scripts = script, places, wraps, scripts
        self.carried = Carried(script, places)
        self.backward_hooks = set(self._hooks(BACKWARD_HOOKS))
        self.hooks = {*self._hooks(HOOKS), *self.backward_hooks}

    def kept(self) -> Iterator[Kept]:
        """What is filled in a forward, and read outside or by the next forward, each once."""
        told: set[str] = set()
        changes = list(self.changes())
        places = {kept for _, kept in changes}
        for node, kept in changes:
            name = self.script.told(kept)
            outside = self.is_read_outside(kept)
            if name not in told and (outside or self._is_read_by_next(node, kept, places)):
                told.add(name)
                behind = any(one in self.backward_hooks for one in self.script.scopes.ancestors(node))
                yield Kept(node, name, self._is_reached(kept) and not behind, outside)

    def _is_read_by_next(self, node: ast.AST, kept: ast.expr, changes: set[ast.expr]) -> bool:
        """Whether a forward may see what one before has left: not of a cache, nor of what it has just put there."""
        if is_cache_entry(self.script, node, kept) or is_own(kept) and not self.carried.outlives(kept):
            return False
        if isinstance(node, ast.Call) and self.carried.gives(node):
            return True
        function = self.script.scopes.function(node)
        end = (getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0))
        for script in self.scripts:
            for one in self._reads_in(script, kept):
                before = script is not self.script or (one.lineno, one.col_offset) <= end
                elsewhere = before or script.scopes.function(one) is not function
                if (
                    self.is_in_forward(one, script)
                    and one not in changes
                    and (elsewhere or not isinstance(node, ast.Assign))
                ):
                    return True
        return False

    def _is_reached(self, kept: ast.expr) -> bool:
        """Whether it is a container or an attribute that can be found when the script runs, and not a plain name."""
        if self.carried.is_iterator(kept) or self.carried.is_default(kept):
            return False
        if isinstance(kept, ast.Attribute):
            return is_own(kept)
        return isinstance(kept.ctx, ast.Load) if isinstance(kept, ast.Name) else False

    def _hooks(self, registered: tuple[str, ...]) -> Iterator[ast.AST]:
        """Functions that run in a replica; a hook of the wrapper itself runs once, on the whole batch."""
        for call in self.script.calls:
            function = call.node.func
            if call.method not in registered or not call.node.args or not isinstance(function, ast.Attribute):
                continue
            if not self._is_wrapped(function.value):
                yield from self._functions(call.node.args[0])

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
        elif found := self.script.scopes.definitions(given):
            yield from found
        elif isinstance(made := self.script.scopes.value(given), ast.Call):  # an object that can be called
            kind = self.script.scopes.definition(made.func)
            yield from (one for one in getattr(kind, "body", []) if getattr(one, "name", "") == "__call__")

    def _is_wrapped(self, node: ast.expr) -> bool:
        """By name, behind the wrap: `net = DataParallel(net)` gives the name another meaning there."""
        return any(
            self.script.told(node) in wrap.names and node.lineno > wrap.call.node.lineno
            for wrap in self.wraps
        )

    def changes(self) -> Iterator[tuple[ast.AST, ast.expr]]:
        """Each change in a forward, with the name or the `self.NAME` that is changed."""
        for node in self.script.nodes(ast.Call, ast.Assign, ast.AugAssign):
            if not self.is_in_forward(node):
                continue
            for changed in (*_changed(node), *self._set_on_object(node)):
                kept = _kept(changed)
                if kept is not None and self._outlives(changed, kept):
                    yield node, kept
            yield from ((node, kept) for kept in self.carried.changes(node))

    def _set_on_object(self, node: ast.AST) -> Iterator[ast.expr]:
        """`self.features = output` in a hook that is a method of an object, which is no module."""
        owner = self.script.scopes.owner_class(node)
        if owner and self.places.kind(owner) is None and isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (one for one in targets if isinstance(one, ast.Attribute) and is_own(one))

    def is_in_forward(self, node: ast.AST, script: Script | None = None) -> bool:
        around = (script or self.script).scopes.ancestors(node)
        return self.places.of(node) is Place.FORWARD or any(one in self.hooks for one in around)

    def _outlives(self, changed: ast.expr, kept: ast.expr) -> bool:
        if isinstance(kept, ast.Attribute) and is_own(kept):
            if changed is kept and isinstance(kept.ctx, ast.Store):
                return True
            return any(map(self._is_container, self._values_of(kept.attr)))
        name = kept.value if isinstance(kept, ast.Attribute) else kept
        assert isinstance(name, ast.Name)
        scopes = self.script.scopes
        home = scopes.lookup(name.id, scopes.scope_of[name])
        if home is None or home is scopes.scope_of[kept] is not scopes.top:
            return False
        if isinstance(kept, ast.Attribute):
            return changed is kept and isinstance(kept.ctx, ast.Store)
        return isinstance(name.ctx, ast.Store) or any(map(self._is_container, home.values.get(name.id, [])))

    def _is_container(self, value: ast.AST | None) -> bool:
        """A list, a dict, or an object of the script's own (a meter, say)."""
        if isinstance(value, ast.Call):
            name = value.func.id if isinstance(value.func, ast.Name) else getattr(value.func, "attr", "")
            made = self.script.scopes.definition(value.func)
            own = isinstance(made, ast.ClassDef) and self.places.kind(made) is None
            return name in CONTAINERS or own
        return isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp))

    def _values_of(self, attribute: str) -> Iterator[ast.AST | None]:
        for node in self.script.nodes(ast.Assign):
            assert isinstance(node, ast.Assign)
            if any(isinstance(one, ast.Attribute) and one.attr == attribute for one in node.targets):
                yield node.value

    def is_read_outside(self, kept: ast.expr) -> bool:
        return any(
            not self.is_in_forward(one) for script in self.scripts for one in self._reads_in(script, kept)
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
        homes = [script.scopes.lookup(one.id, script.scopes.scope_of[one]) for one in (kept, node)]
        return homes[0] is homes[1]


def _id(kept: ast.expr) -> str:
    return kept.id if isinstance(kept, ast.Name) else ""


def data_writes(script: Script, places: Places) -> Iterator[ast.AST]:
    """`self.codebook.data.mul_(0.9)` in a forward: parameters that it changes behind autograd's back."""
    for node in script.nodes(ast.Call, ast.Assign, ast.AugAssign):
        if any(map(_is_own_data, _written(node))) and places.of(node) is Place.FORWARD:
            yield node


def _written(node: ast.AST) -> Iterator[ast.expr]:
    """What `x.mul_()`, `x[i] = ...` and `x += ...` write to."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if isinstance(node.func, ast.Attribute) and name.endswith("_") and not name.startswith("_"):
            yield node.func.value
    elif isinstance(node, (ast.Assign, ast.AugAssign)):
        yield from node.targets if isinstance(node, ast.Assign) else [node.target]


def _is_own_data(written: ast.expr) -> bool:
    found = {one.attr for one in ast.walk(written) if isinstance(one, ast.Attribute)}
    return "data" in found and any(
        isinstance(one, ast.Name) and one.id == "self" for one in ast.walk(written)
    )


def _changed(node: ast.AST) -> Iterator[ast.expr]:
    """The containers, and the names, that a call or an assignment changes."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
            yield node.func.value
        return
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AugAssign)
        else []
    )
    for target in targets:
        if isinstance(target, ast.Subscript):
            yield target.value
        elif isinstance(target, ast.Name) or isinstance(target, ast.Attribute) and not is_own(target):
            yield target  # `self.NAME = ...` is set on a replica, and lost


def _kept(changed: ast.expr) -> ast.expr | None:
    """`self.NAME`, `OTHER.NAME` or the first NAME of a chain of subscripts."""
    while isinstance(changed, ast.Subscript):
        changed = changed.value
    is_of_name = isinstance(changed, ast.Attribute) and isinstance(changed.value, ast.Name)
    return changed if isinstance(changed, ast.Name) or is_of_name else None
