"""Where a clock's value goes: into lines that rank 0 shows and arithmetic, or into something that all ranks must share.

The value is followed by names, attributes and containers, into functions of the project and back out of them, and into
the objects that keep it: a time in `batch_time.update(time() - end)` is in `batch_time`, not in every meter. A
condition is no decision where what depends on it is text alone (`if hours > 0: text += "h"`). What is not known
matters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.call_graph import IMPLICIT, Part
from dp2ddp.codemod.facts.clock_keepers import Context, Entered, Inside, Keepers, MattersError, is_of_self
from dp2ddp.codemod.facts.makers import Makers
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.mutating import FILLING_METHODS, MUTATING_METHODS
from dp2ddp.codemod.facts.plain_text import Plain, computes, is_format
from dp2ddp.codemod.facts.scopes import Function
from dp2ddp.codemod.facts.script import Script
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


class Course:
    """The way of one value through a project."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.graph = modules.graph
        self.makers = Makers(modules)
        self.keepers = Keepers(modules, self.makers, self._take)
        self.pending: list[tuple[Script, ast.AST, Context]] = []
        self.seen: set[tuple[ast.AST, Context]] = set()
        self.plain = Plain()
        self.entries: dict[tuple[ast.AST, ast.AST, Context], Entered] = {}
        self.conditions: list[tuple[Script, ast.stmt, Context]] = []
        self.loops: list[tuple[Script, ast.stmt, Context]] = []  # over what holds the value
        self.choices: list[tuple[Script, ast.AST, ast.AST]] = []  # within expressions
        self.is_filled_by_condition = False

    def matters(self, script: Script, clock: ast.AST) -> bool:
        """Whether a clock's value comes to anything but shown lines and arithmetic."""
        try:
            self._take(script, clock, None)
            self._follow()
        except MattersError:
            return True
        return False

    def _follow(self) -> None:
        judged: set[tuple[ast.AST, Context]] = set()
        while True:
            while self.pending:
                self._step(*self.pending.pop())
            loops = self.loops if self.is_filled_by_condition else []
            left = [condition for condition in (*self.conditions, *loops) if condition[1:] not in judged]
            if not left:
                break
            for script, statement, context in left:
                judged.add((statement, context))
                self._depend(script, statement, context)
        for script, choice, value in self.choices:
            if not all(self.plain.is_plain(script, node) for node in _chosen(choice, value)):
                raise MattersError

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
                raise MattersError
            case ast.DictComp(key=key) if node is key:
                raise MattersError
            case ast.Call():
                self._in_call(script, node, parent, context)
            case ast.keyword():
                call = script.scopes.parents[parent]
                if not isinstance(call, ast.Call):
                    raise MattersError
                self._in_call(script, parent, call, context)
            case ast.Assign(targets=targets):
                for target in targets:
                    self.keepers.store(script, target, context)
            case ast.Tuple(elts=parts):
                self._in_tuple(script, parent, (parts.index(node), len(parts)), context)  # type: ignore[arg-type]
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                self.keepers.store(script, target, context)
            case ast.NamedExpr(target=target):
                self.keepers.store(script, target, context)
                self._take(script, parent, context)
            case ast.For(iter=source) | ast.comprehension(iter=source) if source is node:
                self._iterate(script, node, parent, context)
            case ast.withitem(optional_vars=target):
                if target is not None:
                    self.keepers.store(script, target, context)
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
                    raise MattersError  # a key
                return  # an item of what holds the value
            case ast.Attribute() if not isinstance(parent.ctx, ast.Load):
                return
            case ast.expr() | ast.FormattedValue() if not isinstance(parent, (ast.Lambda, ast.Await)):
                self._take(script, parent, context)
            case _:
                raise MattersError

    def _in_tuple(self, script: Script, parts: ast.Tuple, place: tuple[int, int], context: Context) -> None:
        """`a, b = one, time()` gives the value to `b` alone; so does a function that returns `one, time()`."""
        around = script.scopes.parents[parts]
        if isinstance(around, ast.Assign):
            for target in around.targets:
                self.keepers.store(script, _part(target, place), context)
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
                self.keepers.store(script, _part(target, place), context)
        else:
            self._take(script, call, context)

    def _iterate(
        self, script: Script, node: ast.AST, parent: ast.For | ast.comprehension, context: Context
    ) -> None:
        """`for t in times`; the number of rounds of `for _ in range(t)` depends on the value."""
        self.keepers.store(script, _numbers_of(script, parent.target, node), context)
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
        functions = list(self.makers.functions(script, call))
        for home, function, makes in functions:
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
        elif functions or name in SHOWS or method in LOG_METHODS and not name.startswith("torch."):
            return
        elif self.makers.makes_own(script, call):
            self._take(script, call, context)  # a data class: the object holds the value
        elif method in FILLS and isinstance(call.func, ast.Attribute):
            self.keepers.fill(script, call.func.value, context)
        else:
            raise MattersError

    def _method_of_value(self, script: Script, call: ast.Call, context: Context) -> None:
        """`spent.total_seconds()`, `timer.toc()`, `text.format(x)`: the result comes from the value."""
        name = call.func.attr if isinstance(call.func, ast.Attribute) else "__call__"
        if name == "keys":
            return
        if isinstance(script.scopes.parents[call], ast.Expr) and not (
            name in OWN_METHODS or name in LOG_METHODS or any(self.makers.methods_named(name))
        ):
            raise MattersError  # what is called for what it does
        self._take(script, call, context)

    def _enter(
        self, script: Script, call: ast.Call, given: ast.AST, part: Part, makes: bool, context: Context
    ) -> None:
        home, function = part
        if not isinstance(function, Function):  # a lambda
            raise MattersError
        again = next((node for node in _entered(context) if node.function is function), None)
        key = (function, call, context)
        if again:  # it calls itself
            self.entries[key] = again
            self._take(script, call, context)
        if key not in self.entries:
            depth = context.depth + 1 if isinstance(context, Entered) else 0
            if depth > DEEPEST:
                raise MattersError
            self.entries[key] = Entered(function, script, call, makes, context, depth)
        for name in _parameters(home, function, call, given, makes):
            self.keepers.hold_name(home, (function, name), self.entries[key])

    def _return(
        self, script: Script, node: ast.AST, context: Context, place: tuple[int, int] | None = None
    ) -> None:
        function = script.scopes.function(node)
        if not isinstance(function, Function):
            raise MattersError
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
            if other.scopes.owner_class(node) in inside.family and is_of_self(node):
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
        is_foreign = isinstance(owner, ast.ClassDef) and self.keepers.has_foreign_base(owner)
        known = {"property", "staticmethod", "classmethod", "cached_property", "contextmanager", "no_grad"}
        decorators = {
            script.text_of(decorator).rpartition(".")[2].rstrip("()") for decorator in function.decorator_list
        }
        if is_foreign and not mentions or decorators - known:
            raise MattersError  # called by somebody who is not seen
        for other, node in mentions:
            parent = other.scopes.parents[node]
            if isinstance(parent, ast.Call) and parent.func is node:
                self._take_result(other, parent, None, place)
            elif decorators & {"property", "cached_property"}:
                self._take(other, node, None)
            else:
                raise MattersError

    def _objects_of(self, script: Script, owner: ast.ClassDef) -> None:
        """Whatever is done with an object may show the value: `str(timer)`, `timer()`, `with timer as t`."""
        family = {relative for _, relative in self.graph.related((script, owner))}
        for other in self.modules.scripts:
            for call in other.calls:
                definition = self.modules.definition(other, call.node.func)
                if definition and definition[1] in family:
                    self._take(other, call.node, None)

    # --- conditions

    def _depend(self, script: Script, statement: ast.stmt, context: Context) -> None:
        """What is done under a condition that comes from the value: text and numbers alone, which come from it then."""
        for node in (*statement.body, *statement.orelse):  # type: ignore[attr-defined]  # If, While and For have both
            self._depend_one(script, node, context)

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
                raise MattersError

    def _end(self, script: Script, statement: ast.Return, context: Context) -> None:
        """What comes behind a `return` is run or not, too: all of the function must be text and numbers."""
        function = script.scopes.function(statement)
        self._return(script, statement, context)
        if not isinstance(function, Function):
            raise MattersError
        if (function, context) not in self.seen:
            self.seen.add((function, context))
            for node in function.body:
                if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
                    self._depend_one(script, node, context)

    def _keep(self, script: Script, target: ast.expr, context: Context) -> None:
        if not isinstance(target, (ast.Name, ast.Attribute)):
            raise MattersError
        self.keepers.store(script, target, context)


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
    """The part of what a loop unpacks that may be the value: no keys, no counts."""
    if isinstance(target, ast.Tuple) and len(target.elts) == 2 and isinstance(source, ast.Call):
        is_items = isinstance(source.func, ast.Attribute) and source.func.attr in ("items", "iteritems")
        if is_items or script.scopes.name(source.func) == "builtins.enumerate":
            return target.elts[1]
    return target


def _part(target: ast.expr, place: tuple[int, int]) -> ast.expr:
    """The name at a place of `a, b = ...`; the whole where it is not unpacked so."""
    number, count = place
    is_unpacked = isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == count
    starred = is_unpacked and any(isinstance(element, ast.Starred) for element in target.elts)  # type: ignore[attr-defined]
    return target.elts[number] if is_unpacked and not starred else target  # type: ignore[attr-defined]


def _parameters(
    script: Script, function: ast.AST, call: ast.Call, given: ast.AST, makes: bool
) -> Iterator[str]:
    """The parameters that an argument of a call may get to."""
    assert isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
    arguments = function.args
    names = [parameter.arg for parameter in (*arguments.posonlyargs, *arguments.args)]
    kinds = {script.text_of(decorator) for decorator in function.decorator_list}
    is_method = isinstance(script.scopes.parents[function], ast.ClassDef) and "staticmethod" not in kinds
    if is_method and (makes or isinstance(call.func, ast.Attribute) or function.name == "__call__"):
        names = names[1:]
    every = [*names, *(parameter.arg for parameter in arguments.kwonlyargs)]
    rest = [argument.arg for argument in (arguments.vararg, arguments.kwarg) if argument]
    if isinstance(given, ast.keyword) and given.arg is not None:
        yield from (given.arg,) if given.arg in every else rest
    elif isinstance(given, ast.keyword) or any(isinstance(argument, ast.Starred) for argument in call.args):
        yield from (*every, *rest)
    else:
        place = next((number for number, argument in enumerate(call.args) if argument is given), len(names))
        yield from names[place : place + 1] or rest
