"""What differs from process to process: clocks, process ids, fresh names; and where it matters.

A clock that only measures (differences that are printed) may differ between ranks. One that makes a name, a seed or a
decision may not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.script import Call, Script
from dp2ddp.codemod.facts.tables import of

CLOCKS = {
    *of("time", "time perf_counter monotonic process_time time_ns clock perf_counter_ns"),
    *("timeit.default_timer", "datetime.datetime.now", "datetime.datetime.utcnow"),
}
CALENDAR = {  # what makes a date, and where it takes a time that is given
    **{"time.strftime": 1, "time.ctime": 0, "time.asctime": 0, "time.localtime": 0, "time.gmtime": 0},
    **{"datetime.date.today": 9},
}
IDENTITIES = ("uuid.uuid1", "uuid.uuid4", "os.getpid")  # always another in another process
FORMATS = ("builtins.str", "builtins.int", "builtins.float", "builtins.round", "datetime.timedelta")
LOG_METHODS = ("info", "debug", "warning", "error", "set_description", "set_postfix")


def shared_clocks(script: Script) -> Iterator[Call]:
    """The calls whose result every rank must have alike."""
    clocks = [call for call in script.calls if call.name in CLOCKS]
    decides = _decides(script, clocks)
    for call in script.calls:
        if call.name in IDENTITIES:
            yield call
        elif call.name in CALENDAR:
            if not _has_time_argument(call) and matters(script, call.node):
                yield call
        elif call.name in CLOCKS and (decides or matters(script, call.node)):
            yield call


def _has_time_argument(call: Call) -> bool:
    """`strftime(format, t)` formats a time that is given: nothing of its own comes in."""
    position = CALENDAR.get(call.name or "")
    return position is not None and len(call.node.args) > position


def matters(script: Script, node: ast.expr, depth: int = 5) -> bool:
    """Whether a clock's value goes anywhere but into differences, prints and log lines, also by other names."""
    for parent in script.scopes.ancestors(node):
        match parent:
            case ast.BinOp(op=ast.Sub()):
                return False  # a difference: it measures
            case ast.Call() if _is_shown(script, parent):
                return False
            case ast.Call() if _is_format(script, parent):
                continue
            case ast.Assign():
                names = {script.told(target) for target in _targets(parent, node)}
                readings = list(_readings(script, names))  # none: somebody else may read it
                return not (depth and readings) or any(matters(script, one, depth - 1) for one in readings)
            case (
                ast.BinOp()
                | ast.JoinedStr()
                | ast.FormattedValue()
                | ast.Tuple()
                | ast.Attribute()
                | ast.keyword()
            ):
                continue
            case _:
                return not isinstance(parent, ast.Expr)
    return True


def _targets(assignment: ast.Assign, node: ast.expr) -> Iterator[ast.expr]:
    """What gets the value; of `a, b = one, time()`, the `b`."""
    for target in assignment.targets:
        if isinstance(target, ast.Tuple) and isinstance(assignment.value, ast.Tuple):
            pairs = zip(target.elts, assignment.value.elts, strict=False)
            yield from (one for one, value in pairs if node in ast.walk(value))
        else:
            yield target


def _is_shown(script: Script, call: ast.Call) -> bool:
    """print(...), or a call of a logger."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return script.scopes.name(call.func) == "builtins.print" or method in LOG_METHODS


def _is_format(script: Script, call: ast.Call) -> bool:
    """`"...".format(t)`, `str(t)`, `t.strftime(f)`, `time.asctime(t)`."""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    name = script.scopes.name(call.func) or ""
    return method in ("format", "strftime", "isoformat", "replace") or name in FORMATS or name in CALENDAR


def _readings(script: Script, names: set[str]) -> Iterator[ast.expr]:
    for one in script.nodes(ast.Name, ast.Attribute, ast.Subscript):
        assert isinstance(one, (ast.Name, ast.Attribute, ast.Subscript))
        if isinstance(one.ctx, ast.Load) and script.told(one) in names:
            yield one


def _decides(script: Script, clocks: list[Call]) -> bool:
    """Whether a value that comes from a clock is asked for in a condition."""
    if not clocks:
        return False
    tainted = {script.told(call.node) for call in clocks}
    for _ in range(3):  # start = time(); spent = time() - start; rest = limit - spent
        tainted |= set(_names_from(script, tainted))
    return any(_mentions(script, test, tainted) for test in _tests(script))


def _names_from(script: Script, tainted: set[str]) -> Iterator[str]:
    for node in script.nodes(ast.Assign, ast.AugAssign):
        assert isinstance(node, (ast.Assign, ast.AugAssign))
        if not _mentions(script, node.value, tainted) or _passes_through_call(script, node.value, tainted):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (
            script.told(one)
            for target in targets
            for one in (target.elts if isinstance(target, ast.Tuple) else [target])
            if isinstance(one, (ast.Name, ast.Attribute))
        )
    for node in script.nodes(ast.Return):
        function = script.scopes.function(node)
        if isinstance(function, ast.FunctionDef) and _mentions(script, node, tainted):
            yield function.name  # def elapsed(self): return time() - self.start


def _passes_through_call(script: Script, value: ast.expr, tainted: set[str]) -> bool:
    """`model(x, time())` is not a time any more; `int(time())` and `round(...)` are."""
    return (
        isinstance(value, ast.Call)
        and script.told(value) not in tainted
        and script.told(value.func) not in ("int", "float", "round", "max", "min")
    )


def _tests(script: Script) -> Iterator[ast.expr]:
    for node in script.nodes(ast.Compare):
        assert isinstance(node, ast.Compare)
        yield node  # def over(self): return time() - self.start > self.limit
    for node in script.nodes(ast.If, ast.While, ast.IfExp, ast.Assert):
        yield node.test  # type: ignore[attr-defined]  # all four have one


def _mentions(script: Script, node: ast.AST, texts: set[str]) -> bool:
    return any(
        script.told(one) in texts
        or isinstance(one, ast.Call)
        and script.told(one.func).rpartition(".")[2] in texts
        for one in ast.walk(node)
        if isinstance(one, (ast.Name, ast.Attribute, ast.Call))
    )
