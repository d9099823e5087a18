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
NAMES = {  # always make a name (or a seed): shared wherever they stand
    *of("time", "strftime ctime asctime localtime gmtime"),
    *("uuid.uuid1", "uuid.uuid4", "os.getpid", "datetime.date.today"),
}
WITH_ARGUMENT = {
    "time.strftime": 1,
    "time.ctime": 0,
    "time.asctime": 0,
    "time.localtime": 0,
    "time.gmtime": 0,
}


def shared_clocks(script: Script) -> Iterator[Call]:
    """The calls whose result every rank must have alike."""
    clocks = [call for call in script.calls if call.name in CLOCKS]
    decides = _decides(script, clocks)
    for call in script.calls:
        if (
            call.name in NAMES
            and not _has_time_argument(call)
            or call in clocks
            and (decides or not _only_measures(script, call))
        ):
            yield call


def _has_time_argument(call: Call) -> bool:
    """`strftime(format, t)` formats a time that is given: nothing of its own comes in."""
    position = WITH_ARGUMENT.get(call.name or "")
    return position is not None and len(call.node.args) > position


def _only_measures(script: Script, call: Call) -> bool:
    """Whether a clock's value is used in differences and prints alone."""
    return all(_is_measure(script, use) for use in _uses(script, call.node))


def _uses(script: Script, node: ast.expr) -> Iterator[ast.AST]:
    """The expression itself, or every reading of the names it is given to."""
    names, queue = set[str](), [node]
    while queue:
        one = queue.pop()
        parent = script.scopes.parents[one]
        if not isinstance(parent, ast.Assign):
            yield one
            continue
        for told in {script.told(target) for target in parent.targets} - names:
            names.add(told)
            queue.extend(_readings(script, told))


def _readings(script: Script, name: str) -> Iterator[ast.expr]:
    for one in script.nodes(ast.Name, ast.Attribute, ast.Subscript):
        assert isinstance(one, (ast.Name, ast.Attribute, ast.Subscript))
        if isinstance(one.ctx, ast.Load) and script.told(one) == name:
            yield one


def _is_measure(script: Script, node: ast.AST) -> bool:
    parent = script.scopes.parents[node]
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Sub):
        return True
    if isinstance(parent, ast.Call):
        return script.scopes.name(parent.func) == "builtins.print"
    return isinstance(parent, ast.Expr)


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
            script.told(target) for target in targets if isinstance(target, (ast.Name, ast.Attribute))
        )


def _passes_through_call(script: Script, value: ast.expr, tainted: set[str]) -> bool:
    """`model(x, time())` is not a time any more; `int(time())` and `round(...)` are."""
    return (
        isinstance(value, ast.Call)
        and script.told(value) not in tainted
        and script.told(value.func) not in ("int", "float", "round", "max", "min")
    )


def _tests(script: Script) -> Iterator[ast.expr]:
    for node in script.nodes(ast.If, ast.While, ast.IfExp, ast.Assert):
        yield node.test  # type: ignore[attr-defined]  # all four have one


def _mentions(script: Script, node: ast.AST, texts: set[str]) -> bool:
    return any(
        script.told(one) in texts
        for one in ast.walk(node)
        if isinstance(one, (ast.Name, ast.Attribute, ast.Call))
    )
