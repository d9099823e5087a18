"""Where a number goes that differs from rank to rank (a time, a process id): into lines that are shown, or further.

It is followed through arithmetic and texts, the names, attributes and containers that it is kept in, into functions of
the program and back out of them. What an object is told (`batch_time.update(time() - end)`) is in this object, not in
every one of its class. A condition decides nothing where it only picks what is said (`if hours > 0: text += "h"`). What
is not known decides.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.codemod.knowledge.functions import TRACKING, Does, does
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import COMPREHENSIONS
from dp2ddp.codemod.small.uses import loads

TRACKERS = tuple(f"{name}." for name in TRACKING)
SHOWS = {  # methods of loggers, bars, trackers and open files: what rank 0 alone does
    *(
        "info",
        "debug",
        "warning",
        "warn",
        "error",
        "critical",
        "exception",
        "log",
        "log_metric",
        "log_metrics",
        "log_value",
    ),
    *("add_scalar", "add_scalars", "add_text", "scalar_summary", "set_description", "set_description_str"),
    *("set_postfix", "set_postfix_str", "write", "writelines", "writerow"),
}
SHOWING = ("builtins.print", "time.sleep", "warnings.warn", *TRACKERS)
LOGGERS = ("logging.", "loguru.", "tqdm.", "sys.stdout.", "sys.stderr.")
ASKS = tuple(
    f"builtins.{name}" for name in ("isinstance", "type", "hasattr", "callable", "len", "id")
)  # about no number
COMPUTES = (
    *(
        f"builtins.{name}"
        for name in ("abs", "round", "int", "float", "str", "repr", "format", "min", "max", "sum")
    ),
    *(
        f"builtins.{name}"
        for name in ("divmod", "bool", "list", "tuple", "dict", "sorted", "zip", "enumerate", "reversed")
    ),
    *("math.", "numpy.", "statistics.", "datetime.", "time.", "collections.", "os.path."),
)
GIVES_BACK = {
    "format",
    "join",
    "strftime",
    "isoformat",
    "replace",
    "total_seconds",
    "ljust",
    "rjust",
    "split",
    "items",
    "values",
}
THROUGH = (
    *(
        ast.keyword,
        ast.BinOp,
        ast.UnaryOp,
        ast.BoolOp,
        ast.Compare,
        ast.IfExp,
        ast.FormattedValue,
        ast.JoinedStr,
    ),
    *(ast.Tuple, ast.List, ast.Dict, ast.Set, ast.Starred, ast.Attribute, ast.Subscript, ast.NamedExpr),
    *(ast.comprehension, *COMPREHENSIONS),
)


class Course:
    """The way of one number through a program."""

    def __init__(self) -> None:
        self.seen: set[object] = set()
        self.inside: ast.AST | None = None  # the class of which one object has it

    def decides(self, module: Module, node: ast.AST) -> bool:
        """Whether it comes to anything but lines that are shown."""
        child = node
        for parent in module.around(node):
            answer = self._step(module, parent, child)
            if answer is not None:
                return answer
            child = parent
        return True

    def _any(self, module: Module, nodes: Iterable[ast.AST]) -> bool:
        return any(self.decides(module, node) for node in nodes)

    def _step(self, module: Module, parent: ast.AST, child: ast.AST) -> bool | None:
        """What a node makes of what stands in it; None: it goes on."""
        match parent:
            case ast.Expr() | ast.Raise() | ast.Delete():
                return False
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                return self._stored(module, parent)
            case ast.Return():
                return self._returned(module, parent)
            case ast.If():
                return self._picks(module, [*parent.body, *parent.orelse])
            case ast.For(target=target, iter=given) if given is child:
                return self._kept(module, target)
            case ast.Call(func=func):
                return None if func is child else self._given_to(module, parent, child)
            case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
                return False  # asks which object it is, not how large
            case ast.Subscript(slice=index) if index is child:
                return True
            case ast.Dict(keys=keys) if child in keys:
                return True
            case ast.BoolOp(values=parts) if any(_has_effects(module, each) for each in parts):
                return True
            case ast.IfExp(test=test, body=body, orelse=other) if test is child:
                return True if _has_effects(module, body) or _has_effects(module, other) else None
            case ast.comprehension(target=target) | ast.NamedExpr(target=target):
                return True if self._kept(module, target) else None
        return None if isinstance(parent, THROUGH) else True

    # --- functions and objects

    def _given_to(self, module: Module, node: ast.Call, argument: ast.AST) -> bool | None:
        """What a function does with it; None: it gives something of it back."""
        call = Call(node, module.name(node.func))
        name, kind = call.name or "", does(call.name)
        if name.startswith(SHOWING) or name in ASKS:
            return False
        if call.method in SHOWS - module.program.methods and (not name or name.startswith(LOGGERS)):
            return False
        if kind is Does.INTO_FILE or kind is Does.SAVE and argument in node.args[:1]:
            return False  # what stands in a file, not where it is
        if kind not in (None, Does.CLOCK, Does.CALENDAR):
            return True
        if module.program.is_local(call.name):
            return self._into_function(module, call, argument)
        if name.startswith(COMPUTES) or not name and call.method in GIVES_BACK:
            return None
        is_method = not name and isinstance(node.func, ast.Attribute)
        return self._into_object(module, node, node.func.value, argument) if is_method else True  # type: ignore[attr-defined]

    def _into_function(self, module: Module, call: Call, argument: ast.AST) -> bool | None:
        """A function of the program, or a class that makes an object of it."""
        home, definition = module.program.definition(call.name) or (module, None)
        if isinstance(definition, ast.ClassDef):
            makers = [
                each
                for each in definition.body
                if isinstance(each, ast.FunctionDef) and each.name == "__init__"
            ]
            return True if any(self._enters(home, each, call.node, argument, 1) for each in makers) else None
        is_function = isinstance(definition, ast.FunctionDef)
        return not is_function or self._enters(home, definition, call.node, argument, 0)  # type: ignore[arg-type]

    def _into_object(self, module: Module, node: ast.Call, owner: ast.expr, argument: ast.AST) -> bool | None:
        """A method: of the program, whatever has one of that name; and it is kept in the object."""
        own = isinstance(owner, ast.Name) and owner.id in ("self", "cls") or isinstance(owner, ast.Call)
        methods = list(_methods(module, node.func.attr))  # type: ignore[attr-defined]
        before = self.inside
        for home, function in methods:
            self.inside = before if own else home.parents[function]
            decides = self._enters(home, function, node, argument, 1)
            self.inside = before
            if decides:
                return True
        if own:
            return not methods  # what it returns was looked at, wherever it is called
        if self._kept(module, owner) if not isinstance(owner, ast.Constant) else False:
            return True
        return False if isinstance(module.parents[node], ast.Expr) else None

    def _enters(
        self, home: Module, function: ast.FunctionDef, call: ast.Call, argument: ast.AST, skip: int
    ) -> bool:
        """Whether a parameter that it comes in by decides something inside."""
        parameter = _parameter(function, call, argument, skip)
        if parameter is None:
            return True
        if not self._once(parameter):
            return False
        uses = home.by_word.get(parameter.arg, ())
        inside = [use for use in uses if isinstance(use, ast.Name) and function in home.around(use)]
        return self._any(home, [use for use in inside if isinstance(use.ctx, ast.Load)])

    def _returned(self, module: Module, statement: ast.Return) -> bool:
        """Whether a call of the function that it is returned from decides something."""
        function = module.function_around(statement)
        if not isinstance(function, ast.FunctionDef):
            return True
        if module.parents[function] is self.inside or not self._once(function):
            return False  # the object's uses are looked at
        return any(self.decides(home, call) for home, call in _calls_of(module, function))

    # --- names, attributes and containers

    def _stored(self, module: Module, statement: ast.Assign | ast.AnnAssign | ast.AugAssign) -> bool:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return any(self._kept(module, target) for target in targets)

    def _kept(self, module: Module, target: ast.AST) -> bool:
        """Whether one of the uses of what it is kept in decides something."""
        match target:
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                return any(self._kept(module, each) for each in targets)
            case ast.Starred(value=value):
                return self._kept(module, value)
            case ast.Subscript(
                value=ast.Name() | ast.Attribute() as value, slice=ast.Constant(value=str(key))
            ):
                return self._once((ast.unparse(value), key)) and self._uses_decide(module, value, key)
            case ast.Subscript(value=value):
                return self._kept(module, value)
            case ast.Name(id=name):
                return self._once((id(module.scope_of[target].lookup(name)), name)) and self._uses_decide(
                    module, target
                )
            case ast.Attribute(attr=name):
                return self._once(name) and self._uses_decide(module, target)
        return True

    def _uses_decide(self, module: Module, target: ast.AST, key: str | None = None) -> bool:
        """By a key (`times["epoch"]`), but for where another one is asked for."""
        in_object = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self" and self.inside
        for home, use in loads(module, target):
            match home.parents[use]:
                case ast.Subscript(value=same, slice=ast.Constant(value=str(other))) if (
                    same is use and other != (key or other)
                ):
                    continue
            is_elsewhere = in_object and all(each is not self.inside for each in home.around(use))
            if use is not target and not is_elsewhere and self.decides(home, use):
                return True
        return False

    def _once(self, key: object) -> bool:
        key = (self.inside, key)
        is_new = key not in self.seen
        self.seen.add(key)
        return is_new

    # --- conditions

    def _picks(self, module: Module, body: Iterable[ast.stmt]) -> bool:
        """Whether what a condition lets happen is more than picking words."""
        return any(self._does_more(module, each) for each in body)

    def _does_more(self, module: Module, statement: ast.stmt) -> bool:
        match statement:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return False
            case ast.If():
                return _has_effects(module, statement.test) or self._picks(
                    module, [*statement.body, *statement.orelse]
                )
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                return _has_effects(module, statement.value) or self._stored(module, statement)
            case ast.Return():
                return _has_effects(module, statement.value) or self._returned(module, statement)
            case ast.Expr(value=ast.Call() as call):
                return (
                    any(_has_effects(module, each) for each in call.args)
                    or self._given_to(module, call, call) is not False
                )
        return True


def _has_effects(module: Module, node: ast.AST | None) -> bool:
    """Whether an expression does anything but compute."""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)] if node else []
    return not all(_only_computes(Call(each, module.name(each.func))) for each in calls)


def _only_computes(call: Call) -> bool:
    if call.name is None:
        return call.method in GIVES_BACK
    return does(call.name) in (None, Does.CLOCK, Does.CALENDAR) and call.name.startswith((*COMPUTES, *ASKS))


def _parameter(function: ast.FunctionDef, call: ast.Call, argument: ast.AST, skip: int) -> ast.arg | None:
    """The parameter that an argument of a call comes in by."""
    places = [*function.args.posonlyargs, *function.args.args][skip:]
    if isinstance(argument, ast.keyword):
        return next((each for each in (*places, *function.args.kwonlyargs) if each.arg == argument.arg), None)
    place = call.args.index(argument) if argument in call.args else len(places)
    is_starred = any(isinstance(each, ast.Starred) for each in call.args[: place + 1])
    return places[place] if place < len(places) and not is_starred else function.args.vararg


def _methods(module: Module, name: str) -> Iterator[tuple[Module, ast.FunctionDef]]:
    """The methods of a name that the program's classes have."""
    for home in module.program.modules if name in module.program.methods else ():
        for function in home.all(ast.FunctionDef):
            if function.name == name and isinstance(home.parents[function], ast.ClassDef):
                yield home, function


def _calls_of(module: Module, function: ast.FunctionDef) -> Iterator[tuple[Module, ast.AST]]:
    """Where a function is called; a method, of any object, or read as a property."""
    is_method = isinstance(module.parents[function], ast.ClassDef)
    for home in module.program.modules:
        for node in home.by_word.get(function.name, ()):
            if isinstance(node.ctx, ast.Load) and (isinstance(node, ast.Attribute) or not is_method):
                around = home.parents[node]
                yield home, around if isinstance(around, ast.Call) and around.func is node else node
