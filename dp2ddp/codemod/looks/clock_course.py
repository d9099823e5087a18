"""Where a number goes that differs from rank to rank (a time, a process id): into lines that are shown, or further.

It is followed through arithmetic and texts, the names, attributes and containers that it is kept in, into functions of
the program and back out of them. What an object is told (`batch_time.update(time() - end)`) is in this object, not in
every one of its class. A condition decides nothing where it only picks what is said (`if hours > 0: text += "h"`). What
is not known decides.
"""

import ast
from collections.abc import Iterator
from functools import lru_cache

from dp2ddp.codemod.knowledge.functions import Does, does
from dp2ddp.codemod.knowledge.shown import (
    ASKS,
    COMPUTES,
    GIVES_BACK,
    HOLDERS,
    LOGGERS,
    SHOWING,
    SHOWS,
    UNSEEN,
)
from dp2ddp.codemod.looks.uses import loads
from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.nodes import COMPREHENSIONS
from dp2ddp.codemod.model.program import Program
from dp2ddp.codemod.model.scopes import Binds

THROUGH = (
    *(ast.keyword, ast.Starred, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.JoinedStr),
    *(ast.FormattedValue, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.Attribute, ast.Subscript),
    *(ast.comprehension, *COMPREHENSIONS),
)


class Course:
    """The way of one number through a program."""

    def __init__(self) -> None:
        self.seen: set[object] = set()
        self.inside: ast.AST | None = None  # the class of which one object has it

    def decides(self, module: Module, node: ast.AST) -> bool:
        """Whether it comes to anything but lines that are shown."""
        answers = (self._step(module, parent, child) for parent, child in module.steps(node))
        return next((each for each in answers if each is not None), True)

    def _step(self, module: Module, parent: ast.AST, child: ast.AST) -> bool | None:
        """What a node makes of what stands in it; None: it goes on."""
        match parent:
            case ast.Expr() | ast.Raise() | ast.Delete():
                return False
            case ast.Assign(targets=targets):
                return any(self._kept(module, target) for target in targets)
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                return self._kept(module, target)
            case ast.Return():
                return self._returned(module, parent)
            case ast.Tuple(elts=parts) if child in parts:
                return self._unpacked(module, parent, parts.index(child))
            case ast.If():
                return any(self._does_more(module, each) for each in (*parent.body, *parent.orelse))
            case ast.For(target=target, iter=given) if given is child:
                return self._kept(module, target)
            case ast.Call(func=func) if func is child:
                return self._called(module, parent)
            case ast.Call():
                return self._given_to(module, parent, child)
            case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
                return False  # asks which object it is, not how large
            case ast.Subscript(slice=index) if index is child:
                return True
            case ast.Dict(keys=keys) if child in keys:
                return True
            case ast.comprehension(target=target, iter=given):
                return True if given is not child or self._kept(module, target) else None
            case ast.BoolOp() | ast.IfExp() if has_effects(module, parent):
                return True
        return None if isinstance(parent, THROUGH) else True

    # --- functions and objects

    def _called(self, module: Module, call: ast.Call) -> bool | None:
        """A method of what has it: `meter.reset()` changes no others, `(loss * time()).backward()` does."""
        func = call.func
        if not isinstance(func, ast.Attribute):
            return True
        is_known = func.attr in module.program.methods | GIVES_BACK or is_holder(module, func.value)
        return True if isinstance(module.parents[call], ast.Expr) and not is_known else None

    def _given_to(self, module: Module, node: ast.Call, argument: ast.AST) -> bool | None:
        """What a function does with it; None: it gives something of it back."""
        call = module.call(node)
        name, kind = call.name or "", does(call.name)
        if shows(module, node) or name in ASKS:
            return False
        if kind not in (None, Does.CLOCK, Does.CALENDAR):
            return True
        if module.program.is_local(call.name):
            return self._into_function(module, call, argument)
        if name.startswith(COMPUTES) or not name and call.method in GIVES_BACK:
            return None
        if not name and isinstance(node.func, ast.Attribute):
            return self._into_object(module, node, node.func, argument)
        return True

    def _into_function(self, module: Module, call: Call, argument: ast.AST) -> bool:
        """A function of the program, or a class that makes an object of it; what these give back is followed there."""
        home, function = module.program.called(module, call.node.func) or (module, None)
        return not isinstance(function, ast.FunctionDef) or self._enters(home, function, call.node, argument)

    def _into_object(
        self, module: Module, node: ast.Call, func: ast.Attribute, argument: ast.AST
    ) -> bool | None:
        """A method: of the program, whatever has one of that name; and the object keeps it."""
        owner = func.value
        is_own = isinstance(owner, ast.Name) and owner.id in ("self", "cls") or isinstance(owner, ast.Call)
        methods = module.program.methods_named.get(func.attr, [])
        before = self.inside
        for home, function in methods:
            self.inside = before if is_own else home.parents[function]
            decides = self._enters(home, function, node, argument)
            self.inside = before
            if decides:
                return True
        if is_own:
            return not methods  # what it returns is followed wherever it is called
        if not is_holder(module, owner) or self._kept(module, owner):
            return True
        return False if isinstance(module.parents[node], ast.Expr) else None

    def _enters(self, home: Module, function: ast.FunctionDef, call: ast.Call, argument: ast.AST) -> bool:
        """Whether a parameter that it comes in by decides something inside."""
        taken = home.parameter(function, call, argument)
        if taken is None:
            return True
        if not self._once(taken):
            return False
        uses = (use for use in home.by_word.get(taken.arg, ()) if isinstance(use, ast.Name))
        inside = [use for use in uses if isinstance(use.ctx, ast.Load) and function in home.around(use)]
        return any(self.decides(home, use) for use in inside)

    def _returned(self, module: Module, statement: ast.stmt, place: int | None = None) -> bool:
        """Whether a call of the function that it is returned from, in a place of a tuple, decides something."""
        function = module.function_around(statement)
        if not isinstance(function, ast.FunctionDef) or function.name in UNSEEN:
            return True
        if module.parents[function] is self.inside or not self._once((function, place)):
            return False  # the object's uses are looked at
        return any(self._lands(home, use, place) for home, use in uses_of(module, function))

    def _lands(self, module: Module, value: ast.AST, place: int | None) -> bool:
        """A value, or what stands in a place of it: `loss, seconds = train()`."""
        match module.parents[value]:
            case ast.Assign(targets=[ast.Tuple(elts=targets)]) if place is not None:
                if len(targets) > place and not any(isinstance(each, ast.Starred) for each in targets):
                    return self._kept(module, targets[place])
        return self.decides(module, value)

    def _unpacked(self, module: Module, parts: ast.Tuple, place: int) -> bool | None:
        """`return loss, seconds`; `losses, end = Meter(), time()`."""
        around = module.parents[parts]
        if isinstance(around, ast.Return):
            return self._returned(module, around, place)
        return self._lands(module, parts, place) if isinstance(around, ast.Assign) else None

    # --- names, attributes and containers

    def _kept(self, module: Module, target: ast.AST) -> bool:
        """Whether one of the uses of what it is kept in decides something."""
        match target:
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                return any(self._kept(module, each) for each in targets)
            case ast.Subscript(value=value):
                return not is_holder(module, value) or self._kept(module, value)
            case ast.Name(id=name) if isinstance(module.scope_of[target].node, ast.ClassDef):
                return self._kept(module, ast.Attribute(ast.Name("self"), name, ast.Store()))
            case ast.Name(id=name):
                is_new = self._once((id(module.scope(target)), name))
                return asks_for_all_names(module, target) or is_new and self._uses_decide(module, target)
            case ast.Attribute(value=value, attr=attr):  # whoever has one of that name may be the object
                is_lost = not is_holder(module, value) or attr in got_by_name(module.program)
                return is_lost or self._once(attr) and self._uses_decide(module, target)
        return True

    def _uses_decide(self, module: Module, target: ast.AST) -> bool:
        in_object = self.inside and isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
        for home, use in loads(module, target):
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

    def _does_more(self, module: Module, statement: ast.stmt) -> bool:
        """Whether what a condition lets happen is more than picking words."""
        match statement:
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.Return():
                value, is_end = statement.value, isinstance(statement, ast.Return)
                code = module.function_around(statement) if is_end else value  # the rest of it may not run
                goes_on = value is not None and self._step(module, statement, value)
                return has_effects(module, code) or bool(goes_on)
            case ast.Expr(value=ast.Call() as call):
                is_text = shows(module, call) or builds_text(module, call)
                return not is_text or any(has_effects(module, each) for each in call.args)
        return True


# --- what calls and objects do with it


def shows(module: Module, node: ast.Call) -> bool:
    """Whether a call does nothing but show what it is given."""
    call = module.call(node)
    name = call.name or ""
    is_logger = call.method in SHOWS - module.program.methods and (not name or name.startswith(LOGGERS))
    return name.startswith(SHOWING) or is_logger


def has_effects(module: Module, node: ast.AST | None) -> bool:
    """Whether an expression, or a function, does anything but compute."""
    return not all(map(_only_computes, module.calls_in(node)))


def _only_computes(call: Call) -> bool:
    is_known = does(call.name) in (None, Does.CLOCK, Does.CALENDAR)
    return is_known and (call.name or "").startswith((*COMPUTES, *ASKS))


def is_holder(module: Module, owner: ast.AST) -> bool:
    """Whether an object only keeps what it is given: a display, a bar, an object of a class of the program."""
    if isinstance(owner, ast.Subscript):
        return is_holder(module, owner.value)
    if ast.unparse(owner) in ("self", "cls"):
        return True
    made = module.program.bindings(module, owner)
    return bool(made) and all(
        each.how is Binds.VALUE and _is_made_here(home, each.node) for home, each in made
    )


def _is_made_here(module: Module, node: ast.AST | None) -> bool:
    if isinstance(node, (ast.List, ast.Dict, ast.Set, *COMPREHENSIONS)):
        return True
    name = (module.name(node.func) if isinstance(node, ast.Call) else None) or ""
    return module.program.is_local(name) or name.startswith(HOLDERS)


def builds_text(module: Module, call: ast.Call) -> bool:
    """`words.append(x)`, of a list that is only filled and joined."""
    match call.func:
        case ast.Attribute(value=ast.Name() as owner, attr="append"):
            return all(_is_filled_or_joined(home, use) for home, use in loads(module, owner))
    return False


def _is_filled_or_joined(module: Module, use: ast.AST) -> bool:
    match module.parents[use]:
        case ast.Attribute(attr="append") | ast.Call(func=ast.Attribute(value=ast.Constant(), attr="join")):
            return True
    return False


def asks_for_all_names(module: Module, name: ast.AST) -> bool:
    """`"{loss} {t}".format(**locals())`."""
    function = module.function_around(name)
    uses = (each for word in ("locals", "vars", "globals") for each in module.by_word.get(word, ()))
    return any(module.function_around(each) is function for each in uses)


@lru_cache(maxsize=1)
def got_by_name(program: Program) -> set[object]:
    """`getattr(run, "begin")`."""
    asks = (call.argument(1) for _, call in program.calls if call.name == "builtins.getattr")
    return {getattr(each, "value", None) for each in asks}


def uses_of(module: Module, function: ast.FunctionDef) -> Iterator[tuple[Module, ast.AST]]:
    """Where a function is called; a method, of any object, or read as a property."""
    is_method = isinstance(module.parents[function], ast.ClassDef)
    for home in module.program.modules:
        for node in home.by_word.get(function.name, ()):
            if isinstance(node.ctx, ast.Load) and (isinstance(node, ast.Attribute) or not is_method):
                around = home.parents[node]
                yield home, around if isinstance(around, ast.Call) and around.func is node else node
