"""Where a clock's value goes: into lines that rank 0 shows and arithmetic, or into something that all ranks must share.

The value is followed by names, attributes and containers, into functions of the project and back out of them, and into
the objects that keep it: a time in `batch_time.update(time() - end)` is in `batch_time`, not in every meter. A
condition is no decision where what depends on it is text alone (`if hours > 0: text += "h"`). What is not known
matters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.call_graph import IMPLICIT, Part
from dp2ddp.codemod.facts.makers import Makers, is_self
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.mutating import FILLING_METHODS, MUTATING_METHODS
from dp2ddp.codemod.facts.plain_text import Plain, computes, is_format
from dp2ddp.codemod.facts.scopes import Function
from dp2ddp.codemod.facts.script import SETTINGS, Script
from dp2ddp.codemod.facts.tables import of

LOG_METHODS = {  # of loggers, progress bars, trackers and open files: what rank 0 alone does
    *("info", "debug", "warning", "warn", "error", "critical", "exception", "log", "log_metric"),
    *("log_metrics", "log_value", "add_scalar", "add_scalars", "add_text", "scalar_summary"),
    *("set_description", "set_description_str", "set_postfix", "set_postfix_str"),
    *("write", "writelines", "writerow"),
}
SHOWS = {
    *("builtins.print", "json.dump", "tqdm.tqdm.write", "wandb.log", "mlflow.log_metric"),
    *("mlflow.log_metrics", *of("logging", "debug info warning error critical exception log")),
    # alike on all ranks, whatever the numbers are
    *("time.sleep", *of("torch.distributed", "all_reduce reduce all_gather barrier")),
}
KINDS = of("builtins", "isinstance issubclass type hasattr callable id")  # the clock changes no kinds
FILLS = FILLING_METHODS | {"put", "setdefault"}
# Methods that act on the value, or on what holds it, and on nothing else.
OWN_METHODS = set.union(*MUTATING_METHODS.values()) - {"backward"} | {
    "reset",
    "close",
    "flush",
    "start",
    "refresh",
}
DEEPEST = 12  # calls within calls


@dataclass(frozen=True, eq=False)
class Inside:
    """Within a class: what one of its objects holds is followed here; the object itself, where it was given."""

    family: frozenset[ast.AST]


@dataclass(frozen=True, eq=False)
class Entered:
    """A function of the project that got the value, and the call that gave it."""

    function: ast.AST
    script: Script
    call: ast.Call
    makes: bool  # a class is called: the function is its __init__
    outer: Context
    depth: int


Context = Entered | Inside | None  # None: the value is here, whoever calls


class _Matters(Exception):
    """The value comes to something that all ranks must share."""


class Course:
    """The way of one value through a project."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.graph = modules.graph
        self.makers = Makers(modules)
        self.pending: list[tuple[Script, ast.AST, Context]] = []
        self.seen: set[tuple[ast.AST, Context]] = set()
        self.plain = Plain()
        self.held: set[tuple[object, ...]] = set()  # names, attributes, parameters that are followed already
        self.entries: dict[tuple[ast.AST, ast.AST, Context], Entered] = {}
        self.insides: dict[frozenset[ast.AST], Inside] = {}
        self.conditions: list[tuple[Script, ast.stmt, Context]] = []
        self.loops: list[tuple[Script, ast.stmt, Context]] = []  # over what holds the value
        self.choices: list[tuple[Script, ast.AST, ast.AST]] = []  # within expressions
        self.is_filled_by_condition = False

    def matters(self, script: Script, clock: ast.AST) -> bool:
        """Whether a clock's value comes to anything but shown lines and arithmetic."""
        try:
            self._take(script, clock, None)
            self._follow()
        except _Matters:
            return True
        return False

    def _follow(self) -> None:
        judged: set[tuple[ast.AST, Context]] = set()
        while True:
            while self.pending:
                self._step(*self.pending.pop())
            loops = self.loops if self.is_filled_by_condition else []
            left = [one for one in (*self.conditions, *loops) if one[1:] not in judged]
            if not left:
                break
            for script, statement, context in left:
                judged.add((statement, context))
                self._depend(script, statement, context)
        for script, choice, value in self.choices:
            if not all(self.plain.is_plain(script, one) for one in _chosen(choice, value)):
                raise _Matters

    def _take(self, script: Script, node: ast.AST, context: Context) -> None:
        if (node, context) not in self.seen:
            self.seen.add((node, context))
            self.plain.followed.add(node)
            self.pending.append((script, node, context))

    # --- one step: what stands around the value

    def _step(self, script: Script, node: ast.AST, context: Context) -> None:
        parent = script.scopes.parents.get(node)
        match parent:
            case ast.Expr() | ast.Raise() | ast.Delete():
                return
            case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
                return  # the clock changes numbers, not which object there is
            case ast.Compare(ops=[ast.In() | ast.NotIn()], left=left) if (
                left is not node and self.makers.is_dict(script, node)
            ):
                return  # nor which keys
            case ast.Dict(keys=keys) if node in keys:
                raise _Matters
            case ast.DictComp(key=key) if node is key:
                raise _Matters
            case ast.Call():
                self._in_call(script, node, parent, context)
            case ast.keyword():
                call = script.scopes.parents[parent]
                if not isinstance(call, ast.Call):
                    raise _Matters
                self._in_call(script, parent, call, context)
            case ast.Assign(targets=targets):
                for target in targets:
                    self._store(script, target, context)
            case ast.Tuple(elts=parts):
                self._in_tuple(script, parent, (parts.index(node), len(parts)), context)  # type: ignore[arg-type]
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                self._store(script, target, context)
            case ast.NamedExpr(target=target):
                self._store(script, target, context)
                self._take(script, parent, context)
            case ast.For(iter=source) | ast.comprehension(iter=source) if source is node:
                self._iterate(script, node, parent, context)
            case ast.withitem(optional_vars=target):
                if target is not None:
                    self._store(script, target, context)
            case ast.Return() | ast.Yield() | ast.YieldFrom():
                self._return(script, parent, context)
            case ast.If() | ast.While():
                self.conditions.append((script, parent, context))
            case ast.comprehension():  # a filter
                self._choose(script, script.scopes.parents[parent], parent, context)
            case ast.IfExp() | ast.BoolOp() | ast.Compare():
                self._choose(script, parent, node, context)
            case ast.Subscript(value=value) if not isinstance(parent.ctx, ast.Load):
                if value is not node:
                    raise _Matters  # a key
                return  # an item of what holds the value
            case ast.Attribute() if not isinstance(parent.ctx, ast.Load):
                return
            case ast.expr() | ast.FormattedValue() if not isinstance(parent, (ast.Lambda, ast.Await)):
                self._take(script, parent, context)
            case _:
                raise _Matters

    def _in_tuple(self, script: Script, parts: ast.Tuple, place: tuple[int, int], context: Context) -> None:
        """`a, b = one, time()` gives the value to `b` alone; so does a function that returns `one, time()`."""
        around = script.scopes.parents[parts]
        if isinstance(around, ast.Assign):
            for target in around.targets:
                self._store(script, _part(target, place), context)
        elif isinstance(around, ast.Return):
            self._return(script, around, context, place)
        else:
            self._take(script, parts, context)

    def _take_result(
        self, script: Script, call: ast.Call, context: Context, place: tuple[int, int] | None
    ) -> None:
        """The value is what a call returns, or one part of it."""
        around = script.scopes.parents[call]
        if place and isinstance(around, ast.Assign):
            for target in around.targets:
                self._store(script, _part(target, place), context)
        else:
            self._take(script, call, context)

    def _iterate(
        self, script: Script, node: ast.AST, parent: ast.For | ast.comprehension, context: Context
    ) -> None:
        """`for t in times`; the number of rounds of `for _ in range(t)` depends on the value."""
        self._store(script, _numbers_of(script, parent.target, node), context)
        if isinstance(node, ast.Call) and script.scopes.name(node.func) == "builtins.range":
            if isinstance(parent, ast.For):
                self.conditions.append((script, parent, context))
            else:
                self._choose(script, script.scopes.parents[parent], parent, context)
        elif isinstance(parent, ast.For):
            self.loops.append((script, parent, context))

    def _choose(self, script: Script, parent: ast.AST, node: ast.AST, context: Context) -> None:
        """Parts of an expression are asked or not, as the value says: `late and save()`."""
        self.choices.append((script, parent, node))
        self._take(script, parent, context)

    # --- calls

    def _in_call(self, script: Script, given: ast.AST, call: ast.Call, context: Context) -> None:
        if given is call.func:
            self._method_of_value(script, call, context)
            return
        found = list(self.makers.functions(script, call))
        for home, function, makes in found:
            self._enter(script, call, given, (home, function), makes, context)
        name = script.scopes.name(call.func) or ""
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name in KINDS or name == "builtins.len" and self.makers.is_list(script, given):
            return
        if name == "builtins.setattr" and _is_first(call, given):
            return
        if computes(name) or is_format(script, call):
            self._take(script, call, context)
        elif name in ("torch.save", "pickle.dump") and _is_first(call, given):
            return  # rank 0 writes it, and whoever reads it gets that
        elif found or name in SHOWS or method in LOG_METHODS and not name.startswith("torch."):
            return
        elif self.makers.makes_own(script, call):
            self._take(script, call, context)  # a data class: the object holds the value
        elif method in FILLS and isinstance(call.func, ast.Attribute):
            self._fill(script, call.func.value, context)
        else:
            raise _Matters

    def _method_of_value(self, script: Script, call: ast.Call, context: Context) -> None:
        """`spent.total_seconds()`, `timer.toc()`, `text.format(x)`: the result comes from the value."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else "__call__"
        if name == "keys":
            return
        if isinstance(script.scopes.parents[call], ast.Expr) and not (
            name in OWN_METHODS or name in LOG_METHODS or any(self.makers.methods_named(name))
        ):
            raise _Matters  # what is called for what it does
        self._take(script, call, context)

    def _enter(
        self, script: Script, call: ast.Call, given: ast.AST, part: Part, makes: bool, context: Context
    ) -> None:
        home, function = part
        if not isinstance(function, Function):  # a lambda
            raise _Matters
        again = next((one for one in _entered(context) if one.function is function), None)
        key = (function, call, context)
        if again:  # it calls itself
            self.entries[key] = again
            self._take(script, call, context)
        if key not in self.entries:
            depth = context.depth + 1 if isinstance(context, Entered) else 0
            if depth > DEEPEST:
                raise _Matters
            self.entries[key] = Entered(function, script, call, makes, context, depth)
        for name in _parameters(home, function, call, given, makes):
            self._hold_name(home, (function, name), self.entries[key])

    def _return(
        self, script: Script, node: ast.AST, context: Context, place: tuple[int, int] | None = None
    ) -> None:
        function = script.scopes.function(node)
        if not isinstance(function, Function):
            raise _Matters
        entered = context
        while isinstance(entered, Entered):
            if entered.function is function:
                self._take_result(entered.script, entered.call, entered.outer, place)
                return
            entered = entered.outer
        if isinstance(entered, Inside):
            self._return_inside(script, function, entered)
        else:
            self._return_anywhere(script, function, place)

    def _return_inside(self, script: Script, function: ast.AST, inside: Inside) -> None:
        """To the methods of the same object; who has the object has it from where it was given."""
        for other, node in self.graph.mentions((script, function)):
            if other.scopes.owner_class(node) in inside.family and _is_of_self(node):
                parent = other.scopes.parents[node]
                is_call = isinstance(parent, ast.Call) and parent.func is node
                self._take(other, parent if is_call else node, inside)

    def _return_anywhere(
        self, script: Script, function: ast.FunctionDef | ast.AsyncFunctionDef, place: tuple[int, int] | None
    ) -> None:
        owner = script.scopes.parents[function]
        if function.name in IMPLICIT and isinstance(owner, ast.ClassDef):
            self._objects_of(script, owner)
            return
        mentions = list(self.graph.mentions((script, function)))
        is_foreign = isinstance(owner, ast.ClassDef) and self._has_foreign_base(owner)
        known = {"property", "staticmethod", "classmethod", "cached_property", "contextmanager", "no_grad"}
        decorators = {script.told(one).rpartition(".")[2].rstrip("()") for one in function.decorator_list}
        if is_foreign and not mentions or decorators - known:
            raise _Matters  # called by somebody who is not seen
        for other, node in mentions:
            parent = other.scopes.parents[node]
            if isinstance(parent, ast.Call) and parent.func is node:
                self._take_result(other, parent, None, place)
            elif decorators & {"property", "cached_property"}:
                self._take(other, node, None)
            else:
                raise _Matters

    def _objects_of(self, script: Script, owner: ast.ClassDef) -> None:
        """Whatever is done with an object may show the value: `str(timer)`, `timer()`, `with timer as t`."""
        family = {one for _, one in self.graph.related((script, owner))}
        for other in self.modules.scripts:
            for call in other.calls:
                found = self.modules.definition(other, call.node.func)
                if found and found[1] in family:
                    self._take(other, call.node, None)

    # --- where a value is kept

    def _store(self, script: Script, target: ast.AST, context: Context) -> None:
        match target:
            case ast.Name():
                node, name = script.variable(target)
                self._hold_name(script, (node, name), context)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._store(script, part, context)
            case ast.Starred(value=value):
                self._store(script, value, context)
            case ast.Attribute():
                self._store_attribute(script, target, context)
            case ast.Subscript(value=value):
                self._fill(script, value, context)
            case _:
                raise _Matters

    def _hold_name(self, script: Script, variable: tuple[ast.AST | None, str], context: Context) -> None:
        scope, name = variable
        if scope is None:
            raise _Matters
        if isinstance(scope, ast.ClassDef):
            family = frozenset(one for _, one in self.graph.related((script, scope)))
            self._hold_attribute(name, family, is_read_by_all=False)
        if scope is script.tree:
            context = None
        if (variable, context) in self.held:
            return
        self.held.add((variable, context))
        for one in script.by_word.get(name, ()):
            if (
                isinstance(one, ast.Name)
                and isinstance(one.ctx, ast.Load)
                and script.variable(one) == variable
            ):
                self._take(script, one, context)
        if scope is script.tree:
            self._read_elsewhere(script, name)
        elif any(script.scopes.function(call.node) is scope for call in script.calls_of("builtins.locals")):
            raise _Matters

    def _read_elsewhere(self, script: Script, name: str) -> None:
        """A name of a file, by the other files."""
        for other in self.modules.scripts:
            for one in other.nodes(ast.Name, ast.Attribute) if other is not script else ():
                module, _, last = (other.scopes.name(one) or "").rpartition(".")
                if last == name and self.modules.by_name.get(module) is script:
                    self._take(other, one, None)

    def _store_attribute(self, script: Script, target: ast.Attribute, context: Context) -> None:
        owner = script.scopes.owner_class(target)
        if isinstance(target.value, ast.Name) and target.value.id in SETTINGS:
            raise _Matters  # settings are read in many ways
        if isinstance(target.value, ast.Name) and self.makers.is_bar(script, target.value):
            return
        if owner is None or not _is_of_self(target):
            self._hold_attribute(target.attr, frozenset(), is_read_by_all=True)
            return
        function = script.scopes.function(target)
        family = frozenset(one for _, one in self.graph.related((script, owner)))
        if isinstance(context, Inside):
            self._hold_inside(target.attr, context)
        elif isinstance(context, Entered) and context.function is function:
            self._hold_in_object(target, family, context)
        else:
            self._hold_attribute(target.attr, family, is_read_by_all=False)

    def _hold_in_object(self, target: ast.Attribute, family: frozenset[ast.AST], entered: Entered) -> None:
        """The object whose method was called holds the value, and no other of its class."""
        func = entered.call.func
        if entered.makes:
            self._take(entered.script, entered.call, entered.outer)
        elif not isinstance(func, ast.Attribute) or is_self(func.value) or isinstance(func.value, ast.Call):
            if isinstance(entered.outer, Inside):
                self._hold_inside(target.attr, entered.outer)
            else:  # of this object, and so of any
                self._hold_attribute(target.attr, family, is_read_by_all=False)
            return
        elif not self.makers.is_made_here(entered.script, func.value):
            self._hold_attribute(target.attr, family, is_read_by_all=False)
            return
        else:
            self._store(entered.script, func.value, entered.outer)
        self._hold_inside(target.attr, self.insides.setdefault(family, Inside(family)))

    def _hold_inside(self, name: str, inside: Inside) -> None:
        if (name, inside) in self.held:
            return
        self.held.add((name, inside))
        for script, node in self._loads_of_self(name, inside.family):
            self._take(script, node, inside)
        for script, node in self._bare_selves(inside.family):
            self._take(script, node, inside)

    def _hold_attribute(self, name: str, family: frozenset[ast.AST], *, is_read_by_all: bool) -> None:
        """An attribute of objects of a class, whichever they are; of any object, where the class is not known."""
        if (name, family) in self.held:
            return
        self.held.add((name, family))
        readings = 0
        for script in self.modules.scripts:
            for node in script.by_word.get(name, ()):
                if isinstance(node, ast.Attribute) and self._may_read(script, node, family):
                    readings += 1
                    self._take(script, node, None)
        for script in self.modules.scripts:
            for call in script.calls_of("builtins.getattr", "operator.attrgetter"):
                if any(isinstance(one, ast.Constant) and one.value == name for one in call.node.args):
                    raise _Matters
        for home, bare in self._bare_selves(family):
            if _is_shown_whole(home, bare):
                self._take(home, bare, None)
        if not readings and (is_read_by_all or any(self._has_foreign_base(one) for one in family)):
            raise _Matters  # somebody else reads it

    def _may_read(self, script: Script, node: ast.Attribute, family: frozenset[ast.AST]) -> bool:
        if not isinstance(node.ctx, ast.Load):
            return False
        if (script.scopes.name(node) or "").startswith(("torch.", "numpy.", "time.", "datetime.", "os.")):
            return False
        owner = script.scopes.owner_class(node)
        if is_self(node.value) and owner is not None:
            return not family or owner in family
        made = self.makers.class_of(script, node.value)
        return not (family and made) or any(one in family for _, one in made or ())

    def _loads_of_self(self, name: str, family: frozenset[ast.AST]) -> Iterator[Part]:
        for script in self.modules.scripts:
            for node in (*script.by_word.get(name, ()), *script.by_word.get("__dict__", ())):
                if (
                    isinstance(node.ctx, ast.Load)
                    and _is_of_self(node)
                    and script.scopes.owner_class(node) in family
                ):
                    yield script, node

    def _bare_selves(self, family: frozenset[ast.AST]) -> Iterator[Part]:
        for script in self.modules.scripts:
            for node in script.by_word.get("self", ()):
                is_base = isinstance(script.scopes.parents[node], ast.Attribute)
                is_super = isinstance(around := script.scopes.parents[node], ast.Call) and _is_super(around)
                if (
                    not is_base
                    and not is_super
                    and isinstance(node, ast.Name)
                    and script.scopes.owner_class(node) in family
                ):
                    yield script, node

    def _has_foreign_base(self, owner: ast.AST) -> bool:
        script = self.modules.home[owner]
        bases = (script.scopes.name(one) or "" for one in getattr(owner, "bases", ()))
        return any(
            not self.modules.is_local(one) and one not in ("builtins.object", "torch.nn.Module")
            for one in bases
        )

    def _fill(self, script: Script, holder: ast.expr, context: Context) -> None:
        """`times.append(t)`, `log["time"] = t`: what holds the value is followed as the value is."""
        while isinstance(holder, ast.Subscript):
            holder = holder.value
        if not isinstance(holder, (ast.Name, ast.Attribute)) or not self.makers.is_fresh(script, holder):
            raise _Matters  # whoever gave it has it, too
        self._store(script, holder, context)

    # --- conditions

    def _depend(self, script: Script, statement: ast.stmt, context: Context) -> None:
        """What is done under a condition that comes from the value: text and numbers alone, which come from it then."""
        for one in (*statement.body, *statement.orelse):  # type: ignore[attr-defined]  # If, While and For have both
            self._depend_one(script, one, context)

    def _depend_one(self, script: Script, statement: ast.stmt, context: Context) -> None:
        match statement:
            case ast.Pass():
                return
            case ast.Assign(targets=targets, value=value) if self.plain.is_plain(script, value):
                for target in targets:
                    self._keep(script, target, context)
            case ast.AugAssign(target=target, value=value) if self.plain.is_plain(script, value):
                self._keep(script, target, context)
            case ast.Return(value=value) if value is None or self.plain.is_plain(script, value):
                self._end(script, statement, context)
            case ast.If(test=test) if self.plain.is_plain(script, test):
                self._depend(script, statement, context)
            case ast.Expr(value=ast.Call() as call) if self.plain.is_plain_line(script, call):
                return
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=holder, attr=method)) as call) if (
                method in FILLS and holder in self.plain.followed and self.plain.are_plain(script, call)
            ):
                self.is_filled_by_condition = True
            case _:
                raise _Matters

    def _end(self, script: Script, statement: ast.Return, context: Context) -> None:
        """What comes behind a `return` is run or not, too: all of the function must be text and numbers."""
        function = script.scopes.function(statement)
        self._return(script, statement, context)
        if not isinstance(function, Function):
            raise _Matters
        if (function, context) not in self.seen:
            self.seen.add((function, context))
            for one in function.body:
                if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)):
                    self._depend_one(script, one, context)

    def _keep(self, script: Script, target: ast.expr, context: Context) -> None:
        if not isinstance(target, (ast.Name, ast.Attribute)):
            raise _Matters
        self._store(script, target, context)


# --- of one node


def _is_first(call: ast.Call, given: ast.AST) -> bool:
    return call.args[:1] == [given] and not isinstance(given, ast.Starred)


def _chosen(choice: ast.AST, node: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression that are asked or not, as one part of it says."""
    match choice:
        case ast.IfExp(test=test, body=body, orelse=other):
            yield from (body, other) if node is test else ()
        case ast.BoolOp(values=values):
            yield from values[values.index(node) + 1 :]  # type: ignore[arg-type]
        case ast.Compare(left=left, comparators=parts):
            yield from [left, *parts][[left, *parts].index(node) + 1 :] if len(parts) > 1 else ()  # type: ignore[arg-type]
        case ast.DictComp(key=key, value=value):
            yield from (key, value)
        case ast.ListComp(elt=part) | ast.SetComp(elt=part) | ast.GeneratorExp(elt=part):
            yield part


def _entered(context: Context) -> Iterator[Entered]:
    """The calls that led here, the last one first."""
    while isinstance(context, Entered):
        yield context
        context = context.outer


def _numbers_of(script: Script, target: ast.expr, source: ast.AST) -> ast.expr:
    """Of what a loop unpacks, the part that may be the value: no keys, no counts."""
    if isinstance(target, ast.Tuple) and len(target.elts) == 2 and isinstance(source, ast.Call):
        is_items = isinstance(source.func, ast.Attribute) and source.func.attr in ("items", "iteritems")
        if is_items or script.scopes.name(source.func) == "builtins.enumerate":
            return target.elts[1]
    return target


def _is_super(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "super"


def _is_of_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and is_self(node.value)


def _is_shown_whole(script: Script, node: ast.AST) -> bool:
    """`str(self)`, `vars(self)`, `f"{self}"`."""
    parent = script.scopes.parents[node]
    return isinstance(parent, (ast.Call, ast.FormattedValue))


def _part(target: ast.expr, place: tuple[int, int]) -> ast.expr:
    """Of `a, b = ...` the name at a place; the whole where it is not unpacked so."""
    number, count = place
    is_unpacked = isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == count
    starred = is_unpacked and any(isinstance(one, ast.Starred) for one in target.elts)  # type: ignore[attr-defined]
    return target.elts[number] if is_unpacked and not starred else target  # type: ignore[attr-defined]


def _parameters(
    script: Script, function: ast.AST, call: ast.Call, given: ast.AST, makes: bool
) -> Iterator[str]:
    """The parameters that an argument of a call may get to."""
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
    kinds = {script.told(one) for one in function.decorator_list}
    is_method = isinstance(script.scopes.parents[function], ast.ClassDef) and "staticmethod" not in kinds
    if is_method and (makes or isinstance(call.func, ast.Attribute) or function.name == "__call__"):
        names = names[1:]
    every = [*names, *(one.arg for one in arguments.kwonlyargs)]
    rest = [one.arg for one in (arguments.vararg, arguments.kwarg) if one]
    if isinstance(given, ast.keyword) and given.arg is not None:
        yield from (given.arg,) if given.arg in every else rest
    elif isinstance(given, ast.keyword) or any(isinstance(one, ast.Starred) for one in call.args):
        yield from (*every, *rest)
    else:
        place = next((number for number, one in enumerate(call.args) if one is given), len(names))
        yield from names[place : place + 1] or rest
