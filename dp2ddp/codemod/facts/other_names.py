"""Under which other names the main flow may read what a data set calls `self.NAME`: it was handed in, say.

`Rows(numbers)`, `self.rows = numbers`: whoever reads `numbers` reads what loading does to `self.rows`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dp2ddp.codemod.facts.carried import Carried
from dp2ddp.codemod.facts.places import ExecutionPlace, Places
from dp2ddp.codemod.facts.reach import Reach
from dp2ddp.codemod.facts.roots import Function, Roots, is_own
from dp2ddp.codemod.facts.script import Script
from dp2ddp.codemod.facts.tables import of

# Who asks these keeps nothing of what is handed in, and gives no other name to it.
FORGETFUL = of(
    "builtins", "len sum max min range isinstance print str repr any all set sorted bool int float type"
)


class OtherNames:
    """TrainingScript for one file's data sets."""

    def __init__(self, script: Script, places: Places, scripts: Sequence[Script], reach: Reach) -> None:
        self.script, self.places, self.scripts, self.reach = script, places, scripts, reach

    def of(self, carried: Carried, kept: ast.expr) -> Iterator[ast.AST]:
        """Where such another name may be read; the name itself where that cannot be followed."""
        for script, value in carried.values(kept):
            if value is not None and carried.has_other_name(script, value):
                yield from self._names_of_value(script, value, kept)

    def _names_of_value(self, script: Script, value: ast.AST, kept: ast.expr) -> Iterator[ast.AST]:
        statement = script.scopes.parents[value]
        if isinstance(statement, ast.Tuple):  # self.rows, self.seen = rows, 0
            statement = script.scopes.parents[statement]
        function = script.scopes.function(value)
        is_plain = isinstance(statement, ast.Assign) and len(statement.targets) == 1
        if not is_plain or not isinstance(value, ast.Name) or not isinstance(function, Function):
            yield value
            return
        home = script.scopes.lookup(value.id, script.scopes.scope_of[value])
        if home is None or home.node is not function or function.name != "__init__" or not is_own(kept):
            yield value
            return
        yield from (load for load in _loads(script, value) if load is not value and _may_keep(script, load))
        made = [node for node in home.values.get(value.id, ()) if node is not None]
        if value.id in _parameters(function):
            yield from self._handed_in(script, function, value)
        elif not made or any(Roots(script, self.places).of(node) for node in made):
            yield value
        for node in made:
            if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
                yield node

    def _handed_in(self, script: Script, function: ast.AST, parameter: ast.Name) -> Iterator[ast.AST]:
        """Who reads what the class is given, wherever an object of it is made."""
        owner = script.scopes.owner_class(function)
        graph = self.places.modules.graph
        made = 0
        for home, heir in graph.heirs_of((script, owner)) if owner else ():
            if heir is not owner and any(
                getattr(statement, "name", "") == "__init__"
                for statement in heir.body  # type: ignore[attr-defined]
            ):
                yield heir  # it hands on what it likes
            for other, call in self._calls_of(heir, home):
                made += 1
                given = _argument(function, call, parameter.id)
                yield from self._reads_of(other, given) if given is not None else (call,)
        if not made:
            yield parameter

    def _calls_of(self, made: ast.AST, home: Script) -> Iterator[tuple[Script, ast.Call]]:
        for script in self.scripts:
            for call in script.calls:
                definition = self.places.find(script, call.node.func)
                if definition and definition[1] is made and self.reach.holds(script, call.node):
                    yield script, call.node

    def _reads_of(self, script: Script, given: ast.expr) -> Iterator[ast.AST]:
        if isinstance(given, ast.Name):
            home = script.scopes.lookup(given.id, script.scopes.scope_of[given])
            if home is None or given.id in home.imports:
                yield given
                return
            for load in _loads(script, given):
                is_read = self.places.of(load) is not ExecutionPlace.WORKER and self.reach.holds(script, load)
                if load is not given and is_read and not _is_read_for_length(script, load):
                    yield load
            values = home.values.get(given.id, [])
            if not values or any(value is None for value in values):
                yield given  # a parameter, or what a loop gives
            for value in values:
                statement = script.scopes.parents.get(value) if value is not None else None
                has_two = isinstance(statement, ast.Assign) and len(statement.targets) > 1
                if has_two or isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)):
                    yield value or given
        elif isinstance(given, (ast.Attribute, ast.Subscript, ast.Starred)) or Roots(script, self.places).of(
            given
        ):
            yield given


def _loads(script: Script, name: ast.Name) -> Iterator[ast.Name]:
    """Where the same variable is read, `name` itself included."""
    home = script.scopes.lookup(name.id, script.scopes.scope_of[name])
    for mention in script.by_word.get(name.id, ()):
        is_read = isinstance(mention, ast.Name) and isinstance(mention.ctx, ast.Load)
        if is_read and script.scopes.lookup(name.id, script.scopes.scope_of[mention]) is home:
            assert isinstance(mention, ast.Name)
            yield mention


def _may_keep(script: Script, read: ast.Name) -> bool:
    """Whether what is read may get another name: not where parts of it are looked up, or it is counted."""
    around = script.scopes.parents[read]
    match around:
        case ast.For(iter=iterated) | ast.comprehension(iter=iterated):
            return iterated is not read
        case ast.Subscript(value=iterated, ctx=ast.Load()):
            return iterated is not read
        case ast.Compare() | ast.If() | ast.IfExp() | ast.BoolOp():
            return isinstance(around, ast.BoolOp)
        case ast.Call(func=func):
            return script.scopes.name(func) not in FORGETFUL
    return True


def _is_read_for_length(script: Script, read: ast.expr) -> bool:
    call = script.scopes.parents[read]
    return isinstance(call, ast.Call) and script.scopes.name(call.func) == "builtins.len"


def _parameters(function: ast.AST) -> set[str]:
    return {node.arg for node in ast.walk(getattr(function, "args")) if isinstance(node, ast.arg)}  # noqa: B009


def _argument(function: ast.AST, call: ast.Call, name: str) -> ast.expr | None:
    """What a call of the class gives to a parameter of __init__; None where that cannot be told."""
    assert isinstance(function, Function)
    if any(isinstance(argument, ast.Starred) for argument in call.args) or any(
        keyword.arg is None for keyword in call.keywords
    ):
        return None
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    plain = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)][1:]
    place = plain.index(name) if name in plain else len(call.args)
    if place < len(call.args):
        return call.args[place]
    behind = len(plain) - place
    defaults = function.args.defaults
    default = defaults[-behind] if 0 < behind <= len(defaults) else None
    return default if isinstance(default, ast.Constant) else None
