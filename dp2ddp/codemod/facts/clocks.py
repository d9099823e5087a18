"""What differs from process to process: clocks, process ids, fresh names; and where it matters.

A clock that only measures (differences that are printed) may differ between ranks. One that makes a name, a seed or a
decision may not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.script import Call, Script, Variable
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
LOG_METHODS = {  # of loggers, progress bars, trackers and open files: what rank 0 alone does
    *("info", "debug", "warning", "error", "set_description", "set_postfix", "set_postfix_str"),
    *("write", "writelines", "writerow", "add_scalar", "add_scalars", "add_text", "log_value"),
}


def shared_clocks(script: Script) -> Iterator[Call]:
    """The calls whose result every rank must have alike."""
    for call in script.calls:
        if call.name in IDENTITIES:
            yield call
        elif call.name in CALENDAR:
            if not _has_time_argument(call) and matters(script, call.node):
                yield call
        elif call.name in CLOCKS and (matters(script, call.node) or _decides(script, call)):
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
    """print(...), a call of a logger, a line of a file or of a tracker."""
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


def _decides(script: Script, clock: Call) -> bool:
    """Whether what this clock told is asked for in a condition: by itself, or by a name that comes from it."""
    tainted: set[Variable] = set()
    functions: set[str] = set()
    for _ in range(
        4
    ):  # start = time(); spent = time() - start; rest = limit - spent; def left(): return rest
        for target, value in _stores(script):
            if _comes_from(script, value, clock, tainted, functions) and not _is_hidden_in_call(
                script, value, clock
            ):
                tainted |= {script.variable(one) for one in target}
        for node in script.nodes(ast.Return):
            function = script.scopes.function(node)
            if isinstance(function, ast.FunctionDef) and _comes_from(script, node, clock, tainted, functions):
                functions.add(function.name)  # def elapsed(self): return time() - self.start
    return any(_comes_from(script, test, clock, tainted, functions) for test in _tests(script))


def _stores(script: Script) -> Iterator[tuple[list[ast.expr], ast.expr]]:
    """What is given a value, and the value; of `a, b = one, two` each for itself."""
    for node in script.nodes(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr):
        if isinstance(node, ast.Assign):
            for target, value in (pair for one in node.targets for pair in _pairs(one, node.value)):
                yield [one for one in ast.walk(target) if _is_stored(one)], value  # type: ignore[misc]
        elif node.value is not None:  # type: ignore[attr-defined]  # all of these have one
            yield [one for one in ast.walk(node.target) if _is_stored(one)], node.value  # type: ignore[attr-defined, misc]


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        yield from zip(target.elts, value.elts, strict=True)
    else:
        yield target, value


def _is_stored(node: ast.AST) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and not isinstance(node.ctx, ast.Load)


def _is_hidden_in_call(script: Script, value: ast.expr, clock: Call) -> bool:
    """`model(x, time())` is not a time any more; `int(time())` and `round(...)` are."""
    if not isinstance(value, ast.Call) or value is clock.node:
        return False
    method = value.func.attr if isinstance(value.func, ast.Attribute) else ""
    given = [*value.args, *(one.value for one in value.keywords)]
    told = (script.scopes.name(value.func) or "").rpartition(".")[2]
    return (
        bool(given) and told not in ("int", "float", "round", "max", "min", "abs", "timedelta") and not method
    )


def _comes_from(
    script: Script, node: ast.AST, clock: Call, tainted: set[Variable], functions: set[str]
) -> bool:
    for one in ast.walk(node):
        if one is clock.node:
            return True
        if isinstance(one, (ast.Name, ast.Attribute)) and script.variable(one) in tainted:
            return True
        if isinstance(one, ast.Call) and script.told(one.func).rpartition(".")[2] in functions:
            return True
    return False


def _tests(script: Script) -> Iterator[ast.expr]:
    for node in script.nodes(ast.Compare):
        assert isinstance(node, ast.Compare)
        yield node  # def over(self): return time() - self.start > self.limit
    for node in script.nodes(ast.If, ast.While, ast.IfExp, ast.Assert):
        yield node.test  # type: ignore[attr-defined]  # all four have one
