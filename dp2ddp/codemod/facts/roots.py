"""What an expression is, or is a part of, that lives longer than the call: `self.NAME`, a global, a class's attribute.

Followed through other names, what loops and unpacking give, views, items, and the script's own functions, as far as the
text tells. Replicas of DataParallel share all of it; what a rank does to it, it does alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TypeGuard

from dp2ddp.codemod.facts.aliases import assigned, handed_over
from dp2ddp.codemod.facts.mutating import FILLING_METHODS, is_in_place
from dp2ddp.codemod.facts.places import ExecutionPlace, Places
from dp2ddp.codemod.facts.script import Script, Variable, literal
from dp2ddp.codemod.facts.tables import of

Function = (ast.FunctionDef, ast.AsyncFunctionDef)
# Methods that give what an object holds, or another view of it: what is done to the result is done to the object.
VIEWS = {
    *("get", "setdefault", "pop", "popitem", "popleft", "values", "items", "keys", "get_nowait"),
    *(
        "view",
        "view_as",
        "reshape",
        "ravel",
        "flatten",
        "squeeze",
        "unsqueeze",
        "transpose",
        "permute",
        "swapaxes",
    ),
    *(
        "t",
        "narrow",
        "select",
        "expand",
        "expand_as",
        "detach",
        "numpy",
        "diagonal",
        "chunk",
        "split",
        "unbind",
    ),
    *(
        "contiguous",
        "to",
        "cpu",
        "cuda",
        "float",
        "double",
        "setflags",
        "as_strided",
        "unfold",
        "index_select",
    ),
    *("__getitem__", "__iter__", "__enter__", "__getattribute__"),
}
PASS_ON = {  # functions whose result is, or gives, what they are given
    *(
        f"builtins.{name}"
        for name in ("iter", "reversed", "enumerate", "zip", "list", "tuple", "sorted", "next")
    ),
    *(f"builtins.{name}" for name in ("filter", "map", "vars", "max", "min", "super", "set", "memoryview")),
    *("operator.getitem", "copy.copy", "numpy.asarray", "numpy.ravel", "torch.from_numpy", "torch.as_tensor"),
    *("itertools.chain", "itertools.islice", "itertools.zip_longest", "itertools.chain.from_iterable"),
    *("typing.cast", "heapq.heappop"),
}
NEW_CONTAINERS = (ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Set, ast.SetComp)
COPIES = {*of("builtins", "list tuple dict set sorted bytearray"), "copy.copy"}

ARRAYS_OF_INDICES = {*of("numpy", "arange argsort flatnonzero random.permutation"), "torch.randperm"}
SIZED = {"numpy.random.choice"}  # an array, if a size is asked for


class Roots:
    """TrainingScript for one file; each question ends, whatever stands for whatever."""

    def __init__(self, script: Script, places: Places) -> None:
        self.script, self.places = script, places

    def of(self, node: ast.expr) -> list[ast.expr]:
        """The attributes of self or of classes, the outer names and the defaults that an expression may be part of."""
        return list(self._roots_of(node, set()))

    def _roots_of(self, node: ast.AST | None, seen: set[ast.AST]) -> Iterator[ast.expr]:
        if node is None or node in seen:
            return
        seen.add(node)
        match node:
            case ast.Attribute() if is_own(node) or is_class(self.script, node.value):
                yield node
            case ast.Attribute(value=ast.Name() as owner) if self._is_module(owner):
                yield node
            case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.Starred(value=value):
                yield from self._roots_of(value, seen)
            case ast.NamedExpr(value=value) | ast.Await(value=value):
                yield from self._roots_of(value, seen)
            case ast.IfExp(body=inner, orelse=other):
                yield from self._roots_of(inner, seen)
                yield from self._roots_of(other, seen)
            case ast.BoolOp(values=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    yield from self._roots_of(part, seen)
            case ast.GeneratorExp() | ast.ListComp():
                yield from self._roots_of(node.elt, seen)
            case ast.Call():
                yield from self._roots_of_call(node, seen)
            case ast.Name():
                yield from self._roots_of_name(node, seen)

    def _roots_of_call(self, call: ast.Call, seen: set[ast.AST]) -> Iterator[ast.expr]:
        name = self.script.scopes.name(call.func)
        if name == "builtins.vars" and call.args and _is_self(call.args[0]):
            yield call
        elif name == "builtins.getattr" and len(call.args) > 1:
            yield from self._looked_up(call, seen)
        elif name in PASS_ON:
            for given in call.args:
                yield from self._roots_of(given, seen)
        elif function := self._function(call):
            for node in ast.walk(function):
                if isinstance(node, (ast.Return, ast.Yield)):
                    yield from self._roots_of(node.value, seen)
        elif isinstance(call.func, ast.Attribute) and (
            call.func.attr in VIEWS or is_in_place(call.func.attr)
        ):
            yield from self._roots_of(call.func.value, seen)

    def _function(self, call: ast.Call) -> ast.AST | None:
        """The script's own function that is called; a class makes something new."""
        meanings = self.places.modules.graph.means(self.script, call.func)
        return next((item for script, item in meanings if script is self.script), None)

    def _looked_up(self, call: ast.Call, seen: set[ast.AST]) -> Iterator[ast.expr]:
        """`getattr(self, "cache")`; by a name that is not known it may be any: the call stands for it."""
        owner, name = call.args[:2]
        if not _is_self(owner) and not is_class(self.script, owner):
            yield from self._roots_of(owner, seen)
        elif isinstance(text := literal(name), str):
            for node in self.script.nodes(ast.Attribute):
                if isinstance(node, ast.Attribute) and node.attr == text and is_own(node):
                    yield node
                    return
            yield call
        else:
            yield call

    def _roots_of_name(self, node: ast.Name, seen: set[ast.AST]) -> Iterator[ast.expr]:
        scopes = self.script.scopes
        home = scopes.lookup(node.id, scopes.scope_of[node])
        if home is None or node.id in home.definitions:
            return
        if node.id in home.imports:
            module, _, name = (scopes.name(node) or "").rpartition(".")
            there = self.places.modules.by_name.get(module)
            if there and name in there.scopes.top.values:
                yield node
            return
        function = scopes.function(node)
        around = isinstance(home.node, (*Function, ast.Lambda)) and home.node is not function
        if (
            home is scopes.top
            or around
            and self.places.functions.get(home.node) is not ExecutionPlace.FORWARD
        ):
            yield node
            return
        if default_of(self.script, node) is not None:
            yield node
        yield from self._bound(node, home.node, seen)

    def _bound(self, name: ast.Name, function: ast.AST, seen: set[ast.AST]) -> Iterator[ast.expr]:
        """What a name of the function's own stands for: by assignments, loops, `with`, and as a parameter."""
        scopes = self.script.scopes
        home = scopes.lookup(name.id, scopes.scope_of[name])
        stored = [
            store
            for store in self._stored.get(name.id, ())
            if scopes.lookup(store.id, scopes.scope_of[store]) is home
        ]
        if home is not None and any(map(self._makes_container, home.values.get(name.id, ()))):
            for part in self._filled_in(name):
                yield from self._roots_of(part, seen)
        just_bound = self._just_bound(name, stored)
        if just_bound is not None:
            yield from self._roots_of(just_bound, seen)
            return
        for store in stored:
            for given in self._given(store):
                yield from self._roots_of(given, seen)
        for given in self._handed_in(name.id, function):
            yield from self._roots_of(given, seen)

    def _just_bound(self, name: ast.Name, stored: list[ast.Name]) -> ast.expr | None:
        """What `points = moved(points)` has bound it to, further up in the same block, or in one around it.

        Nothing in between binds it, and no loop or branch on the way out.
        """
        scopes = self.script.scopes
        inside: ast.stmt = scopes.statement(name)
        function = scopes.function(name)
        if not isinstance(inside, (ast.Expr, ast.Assign, ast.Return)) or any(
            scopes.function(store) is not function for store in stored
        ):
            return None
        binding = {store for store in stored if isinstance(store.ctx, ast.Store)}
        while True:
            holder = scopes.parents.get(inside)
            blocks = (getattr(holder, part, None) for part in ("body", "orelse", "finalbody"))
            block = next(
                (statement for statement in blocks if isinstance(statement, list) and inside in statement),
                [inside],
            )
            for before in reversed(block[: block.index(inside)]):
                if (
                    isinstance(before, ast.Assign)
                    and len(before.targets) == 1
                    and before.targets[0] in binding
                ):
                    return before.value
                if any(store in stored for store in ast.walk(before)):
                    return None
            if not isinstance(holder, (ast.For, ast.While, ast.If, ast.With)):
                return None
            if any(store in stored for store in ast.walk(holder)):
                return None
            inside = holder

    def values_of(self, name: ast.expr) -> list[ast.expr]:
        """All that a name of the function's own may stand for there; none if that cannot be told."""
        if not isinstance(name, ast.Name):
            return []
        scopes = self.script.scopes
        home = scopes.lookup(name.id, scopes.scope_of[name])
        if home is None or not isinstance(home.node, (*Function, ast.Lambda)):
            return []
        stored = [
            store
            for store in self._stored.get(name.id, ())
            if scopes.lookup(store.id, scopes.scope_of[store]) is home
        ]
        just_bound = self._just_bound(name, stored)
        if just_bound is not None:
            return [just_bound]
        if any(node.arg == name.id for node in ast.walk(home.node.args) if isinstance(node, ast.arg)):
            return []
        values = [_assigned(scopes.parents[store], store) for store in stored if not self._is_added_to(store)]
        return [value for value in values if value is not None] if None not in values else []

    def _is_added_to(self, stored: ast.Name) -> bool:
        """`found += more`: the same list, array or tensor."""
        return isinstance(self.script.scopes.parents[stored], ast.AugAssign)

    def is_new_container(self, node: ast.expr) -> bool:
        """Whether it is a list, dict or set that the function has made: what is put in, is in no other one."""
        values = self.values_of(node)
        return bool(values) and all(map(self._makes_container, values))

    def _makes_container(self, value: ast.expr | None) -> bool:
        is_copy = isinstance(value, ast.Call) and self.script.scopes.name(value.func) in COPIES
        return is_copy or isinstance(value, NEW_CONTAINERS)

    def is_picked(self, node: ast.expr) -> bool:
        """Whether it is an array, or a tensor, of picked rows: `points[np.random.choice(n, 64), :]` is no view."""
        values = self.values_of(node)
        return bool(values) and all(
            isinstance(value, ast.Subscript) and self._picks(value) for value in values
        )

    def _picks(self, item: ast.Subscript) -> bool:
        parts = item.slice.elts if isinstance(item.slice, ast.Tuple) else [item.slice]
        return any(self._is_array_of_indices(part) for part in parts)

    def _is_array_of_indices(self, node: ast.expr) -> bool:
        values = self.values_of(node) if isinstance(node, ast.Name) else [node]
        return bool(values) and all(
            isinstance(value, ast.Call)
            and (
                self.script.scopes.name(value.func) in ARRAYS_OF_INDICES
                or self.script.scopes.name(value.func) in SIZED
                and any(not _is_none(size) for size in (*value.args[1:2], *_given_as(value, "size")))
            )
            for value in values
        )

    def _filled_in(self, container: ast.Name) -> Iterator[ast.expr]:
        """What `found.append(x)`, `found[k] = x` and `found += x` put into a container of this name."""
        scopes = self.script.scopes
        home = scopes.lookup(container.id, scopes.scope_of[container])
        for node in self._named.get(container.id, ()):
            if scopes.lookup(node.id, scopes.scope_of[node]) is not home:
                continue
            around = scopes.parents[node]
            above = scopes.parents[around]
            match around, above:
                case ast.Attribute(attr=method), ast.Call(func=func, args=args) if func is around:
                    yield from args if method in FILLING_METHODS else ()
                case ast.Subscript(ctx=ast.Store(), value=whole), ast.Assign(value=value) if whole is node:
                    yield value
                case ast.AugAssign(target=target, value=value), _ if target is node:
                    yield value

    def _given(self, stored: ast.Name) -> Iterator[ast.expr]:
        below: ast.AST = stored
        for parent in self.script.scopes.ancestors(stored):
            match parent:
                case ast.Tuple() | ast.List() | ast.Starred():
                    below = parent
                    continue
                case ast.Assign(value=value):
                    for target in parent.targets:
                        yield from (
                            node for to, node in assigned(self.script, target, value) if to in (stored, below)
                        )
                case ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
                    yield value
                case ast.For(iter=value) | ast.AsyncFor(iter=value) | ast.comprehension(iter=value):
                    yield value
                case ast.withitem(context_expr=value):
                    yield value
            return

    def _handed_in(self, name: str, function: ast.AST) -> Iterator[ast.expr]:
        """What the calls in forwards, and where samples are loaded, give to a parameter of a helper of theirs."""
        if not isinstance(function, Function) or name not in {
            node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)
        }:
            return
        yield from self._handed_over.get((function, name), ())

    @cached_property
    def _handed_over(self) -> dict[Variable, list[ast.expr]]:
        """What parameters are given by such calls, and by functools.partial."""
        given_to: dict[Variable, list[ast.expr]] = {}
        for call in self.script.calls:
            if call.name == "functools.partial" and call.node.args:
                function = self.script.scopes.definition(call.node.args[0])
                given = (*call.node.args[1:], *(keyword.value for keyword in call.node.keywords))
                for node in ast.walk(function.args) if isinstance(function, Function) else ():
                    given_to.setdefault((function, getattr(node, "arg", "")), []).extend(given)
            elif self.places.of(call.node) in (ExecutionPlace.FORWARD, ExecutionPlace.WORKER):
                for parameter, node in handed_over(self.script, call.node):
                    given_to.setdefault(parameter, []).append(node)
        return given_to

    @cached_property
    def _named(self) -> dict[str, list[ast.Name]]:
        """Where plain names are written."""
        names: dict[str, list[ast.Name]] = {}
        for node in self.script.nodes(ast.Name):
            if isinstance(node, ast.Name):
                names.setdefault(node.id, []).append(node)
        return names

    @cached_property
    def _stored(self) -> dict[str, list[ast.Name]]:
        """Where plain names are bound."""
        return {
            name: [node for node in nodes if not isinstance(node.ctx, ast.Load)]
            for name, nodes in self._named.items()
        }

    def _is_module(self, node: ast.Name) -> bool:
        """Whether a name is a module that is imported, of the project: its globals are shared, too."""
        name = self.script.scopes.name(node) or ""
        return name in self.places.modules.by_name


def _assigned(statement: ast.AST, name: ast.Name) -> ast.expr | None:
    is_plain = isinstance(statement, ast.Assign) and name in statement.targets
    return statement.value if is_plain or isinstance(statement, ast.AnnAssign) else None  # type: ignore[attr-defined]


def _given_as(call: ast.Call, name: str) -> list[ast.expr]:
    return [keyword.value for keyword in call.keywords if keyword.arg == name]


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def default_of(script: Script, node: ast.Name) -> ast.expr | None:
    """`def ramp(state={})`: a parameter's default, which all calls share."""
    function = script.scopes.function(node)
    if not isinstance(function, (*Function, ast.Lambda)):
        return None
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    behind = len(arguments.defaults)
    pairs = [*zip(plain[len(plain) - behind :], arguments.defaults, strict=True)]
    pairs += [
        (parameter, given)
        for parameter, given in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if given
    ]
    default = next((given for pair, given in pairs if pair.arg == node.id), None)
    return None if isinstance(default, ast.Constant) else default


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def is_own(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """`self.NAME`."""
    return isinstance(node, ast.Attribute) and _is_self(node.value)


def is_class(script: Script, node: ast.expr) -> bool:
    """`type(self)`, `self.__class__`, `cls`, the name of a class."""
    match node:
        case ast.Call(func=ast.Name(id="type"), args=[ast.Name(id="self")]):
            return True
        case ast.Attribute(value=ast.Name(id="self"), attr="__class__") | ast.Name(id="cls"):
            return True
    return isinstance(script.scopes.definition(node), ast.ClassDef)
