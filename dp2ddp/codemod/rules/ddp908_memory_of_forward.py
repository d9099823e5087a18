"""DDP908: what a forward keeps for the rest of the script."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import Finding, Hazard
from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.places import Place
from dp2ddp.codemod.rule import Flags, Rule, Untouched
from dp2ddp.codemod.strategy import Strategy

HOOKS = ("register_forward_hook", "register_forward_pre_hook")
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


class MemoryOfForward(Rule):
    """Say where a forward fills a list, a dict or a counter that the rest of the script reads.

    ## What it does
    A hazard where a forward, or a forward hook of a part of the model, changes a container or a global that
    outlives the call and that is read outside of forwards.

    ## Why
    DataParallel's replicas are threads of one process: all W of them fill the same list. A rank fills its own,
    with what it saw of its own rows.

    ## Safety
    Attributes of the module that are set anew in each forward, and buffers, behave as under DataParallel, and
    are no hazard. Neither is a cache that only forwards read.

    ## References
    SEMANTICS section 1 (replicas share what the module's attributes refer to).
    """

    code = "DDP908"
    name = "memory-of-forward"
    examples = (
        Flags(
            before="""
                import torch
                sizes = []
                class Net(torch.nn.Module):
                    def forward(self, x):
                        sizes.append(len(x))
                        return x
                net = torch.nn.DataParallel(Net())
                print(sum(sizes))
            """,
            message="`sizes` is filled in the forward",
        ),
        Flags(
            before="""
                import torch
                class Net(torch.nn.Module):
                    def __init__(self):
                        self.stats = {"rows": 0}
                    def forward(self, x):
                        self.stats["rows"] += len(x)
                        return x
                net = torch.nn.DataParallel(Net())
                print(net.module.stats)
            """,
            message="`self.stats` is filled in the forward",
        ),
        Flags(
            before="""
                import torch
                calls = 0
                class Net(torch.nn.Module):
                    def forward(self, x):
                        global calls
                        calls += 1
                        return x
                net = torch.nn.DataParallel(Net())
                print(calls)
            """,
            message="`calls` is filled in the forward",
        ),
        Flags(
            before="""
                import torch
                class Net(torch.nn.Module):
                    calls = 0
                    def forward(self, x):
                        Net.calls += 1
                        return x
                net = torch.nn.DataParallel(Net())
                print(Net.calls)
            """,
            message="`Net.calls` is filled in the forward",
        ),
        Flags(
            before="""
                import torch
                seen = {}
                net = torch.nn.Linear(2, 2)
                net.register_forward_hook(lambda m, i, o: seen.update(out=o))
                net = torch.nn.DataParallel(net)
                print(seen["out"])
            """,
            message="`seen` is filled in the forward",
        ),
        Untouched(
            """
                import torch
                cache = {}
                class Net(torch.nn.Module):
                    def forward(self, x):
                        parts = []
                        parts.append(x)
                        cache[len(x)] = 1
                        self.rows = len(cache)
                        x.kept = True
                        return parts
                net = torch.nn.DataParallel(Net())
                parts = net(x)
                print(parts, net.module.rows, parts.kept)
            """
        ),
    )

    def plan(self, facts: Facts, strategy: Strategy) -> Iterator[Finding]:
        if not facts.wraps:
            return
        memory = _Memory(facts)
        told: set[str] = set()
        for node, kept in memory.changes():
            name = facts.script.told(kept)
            if name not in told and memory.is_read_outside(kept):
                told.add(name)
                yield Hazard(
                    node,
                    f"`{name}` is filled in the forward of a model and read outside: a rank would fill its own",
                    "let the forward return it, and fill it behind the forward",
                )


class _Memory:
    """What forwards change, and who reads it."""

    def __init__(self, facts: Facts) -> None:
        self.script, self.places = facts.script, facts.places
        self.wraps = facts.wraps
        self.hooks = set(self._hooks())

    def _hooks(self) -> Iterator[ast.AST]:
        """Functions that run in a forward; a hook of the wrapper itself runs once, on the whole batch."""
        for call in self.script.calls:
            if call.method in HOOKS and call.node.args and isinstance(call.node.func, ast.Attribute):
                given = call.node.args[0]
                hook = given if isinstance(given, ast.Lambda) else self.script.scopes.definition(given)
                if hook and not self._is_wrapped(call.node.func.value):
                    yield hook

    def _is_wrapped(self, node: ast.expr) -> bool:
        """By name, behind the wrap: `net = DataParallel(net)` gives the name another meaning there."""
        return any(
            self.script.told(node) in wrap.names and node.lineno > wrap.call.node.lineno
            for wrap in self.wraps
        )

    def changes(self) -> Iterator[tuple[ast.AST, ast.expr]]:
        """Each change in a forward, with the name or the `self.NAME` that is changed."""
        for node in self.script.nodes(ast.Call, ast.Assign, ast.AugAssign):
            for changed in _changed(node):
                kept = _kept(changed)
                if kept is not None and self.is_in_forward(node) and self._outlives(changed, kept):
                    yield node, kept

    def is_in_forward(self, node: ast.AST) -> bool:
        return self.places.of(node) is Place.FORWARD or any(
            one in self.hooks for one in self.script.scopes.ancestors(node)
        )

    def _outlives(self, changed: ast.expr, kept: ast.expr) -> bool:
        if isinstance(kept, ast.Attribute) and _is_own(kept):
            return any(map(_is_container, self._values_of(kept.attr)))
        name = kept.value if isinstance(kept, ast.Attribute) else kept
        assert isinstance(name, ast.Name)
        scopes = self.script.scopes
        home = scopes.lookup(name.id, scopes.scope_of[name])
        if home is None or home is scopes.scope_of[kept] is not scopes.top:
            return False
        if isinstance(kept, ast.Attribute):
            return changed is kept and isinstance(kept.ctx, ast.Store)
        return isinstance(name.ctx, ast.Store) or any(map(_is_container, home.values.get(name.id, [])))

    def _values_of(self, attribute: str) -> Iterator[ast.AST | None]:
        for node in self.script.nodes(ast.Assign):
            assert isinstance(node, ast.Assign)
            if any(isinstance(one, ast.Attribute) and one.attr == attribute for one in node.targets):
                yield node.value

    def is_read_outside(self, kept: ast.expr) -> bool:
        scopes = self.script.scopes
        for node in self.script.nodes(type(kept)):
            if not isinstance(getattr(node, "ctx", None), ast.Load) or self.is_in_forward(node):
                continue
            if isinstance(kept, ast.Attribute) and isinstance(node, ast.Attribute) and node.attr == kept.attr:
                return True
            if isinstance(kept, ast.Name) and isinstance(node, ast.Name) and node.id == kept.id:
                homes = [scopes.lookup(one.id, scopes.scope_of[one]) for one in (kept, node)]
                if homes[0] is homes[1]:
                    return True
        return False


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
        elif isinstance(target, ast.Name) or isinstance(target, ast.Attribute) and not _is_own(target):
            yield target  # `self.NAME = ...` is set on a replica, and lost


def _kept(changed: ast.expr) -> ast.expr | None:
    """`self.NAME`, `OTHER.NAME` or the first NAME of a chain of subscripts."""
    while isinstance(changed, ast.Subscript):
        changed = changed.value
    is_of_name = isinstance(changed, ast.Attribute) and isinstance(changed.value, ast.Name)
    return changed if isinstance(changed, ast.Name) or is_of_name else None


def _is_own(attribute: ast.Attribute) -> bool:
    return isinstance(attribute.value, ast.Name) and attribute.value.id == "self"


def _is_container(value: ast.AST | None) -> bool:
    if isinstance(value, ast.Call):
        name = value.func.id if isinstance(value.func, ast.Name) else getattr(value.func, "attr", "")
        return name in CONTAINERS
    return isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp))
