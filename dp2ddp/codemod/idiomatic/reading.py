"""Files that are read after rank 0 may have written them: where all ranks have to wait for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts import Facts
from dp2ddp.codemod.facts.places import ExecutionPlace
from dp2ddp.codemod.facts.scopes import Function
from dp2ddp.codemod.facts.script import CallSite, Script, literal
from dp2ddp.codemod.facts.tables import of
from dp2ddp.codemod.idiomatic.remembered import once_a_project

READERS = {
    *("torch.load", "torch.jit.load", "builtins.open", "io.open", "joblib.load"),
    *of("numpy", "load loadtxt genfromtxt fromfile"),
    *of("pandas", "read_csv read_pickle read_json read_parquet read_hdf"),
}
ASKS = {*of("os.path", "isfile exists isdir"), "os.listdir", "glob.glob"}


@once_a_project
def _writers(facts: Facts) -> list[tuple[Script, CallSite]]:
    """What writes a file, in the main flow of the project."""
    return [
        (file.script, effect.call)
        for file in facts.files
        for effect in file.effects
        if facts.places.of(effect.call.node) is ExecutionPlace.MAIN
    ]


@once_a_project
def _writing_functions(facts: Facts) -> frozenset[ast.AST]:
    return frozenset(
        function
        for script, call in _writers(facts)
        if (function := script.scopes.function(call.node)) is not None
    )


def reads_after_writing(facts: Facts) -> Iterator[ast.stmt]:
    """The statements of a file before which all ranks have to wait for rank 0."""
    script = facts.script
    writers = {call.node for _, call in _writers(facts)}
    for call in script.calls:
        if (
            call.name not in READERS
            or call.node in writers
            or facts.places.of(call.node) is not ExecutionPlace.MAIN
        ):
            continue
        if _may_be_written(facts, call) and not _is_at_start(facts, script, call.node, set()):
            yield _statement_before(script, call.node)


def _may_be_written(facts: Facts, read: CallSite) -> bool:
    """By the path: the same expression; of checkpoints any, but for two different texts."""
    path = read.argument(0)
    if path is None:
        return False
    here = _spellings(facts.script, path)
    for script, call in _writers(facts):
        given = (*call.node.args, *(keyword.value for keyword in call.node.keywords))
        if any(here & _spellings(script, value) for value in given):
            return True
        target = call.argument(1, "f")
        if read.name == "torch.load" and call.name == "torch.save" and target is not None:
            texts = [
                literal(home.scopes.value(node)) for home, node in ((facts.script, path), (script, target))
            ]
            if not all(isinstance(text, str) for text in texts):
                return True
    return False


def _spellings(script: Script, node: ast.expr) -> set[str]:
    value = script.scopes.value(node)
    text = script.text_of(value) if value is not None else ""
    return {name for name in (script.text_of(node), text) if name not in ("", "None")}


def _is_at_start(facts: Facts, script: Script, node: ast.AST, seen: set[ast.AST]) -> bool:
    """Whether something runs once, before anything is written: a checkpoint that an earlier run has left."""
    if any(isinstance(parent, (ast.For, ast.While)) for parent in script.scopes.ancestors(node)):
        return False
    function = script.scopes.function(node)
    if function in seen or function is not None and not isinstance(function, Function):
        return False
    body = script.tree.body if function is None else function.body
    line = getattr(node, "lineno", 0)
    if any(_writes(facts, script, statement) for statement in _before(script, body, line, function)):
        return False
    if function is None:
        return True
    calls = list(facts.modules.graph.calls((script, function)))
    return len(calls) == 1 and _is_at_start(facts, *calls[0], {*seen, function})


def _before(script: Script, body: list[ast.stmt], line: int, function: ast.AST | None) -> Iterator[ast.Call]:
    """The calls of a body that stand above a line, not those of functions that it defines."""
    for statement in body:
        for node in ast.walk(statement):
            is_own = isinstance(node, ast.Call) and script.scopes.function(node) is function
            if is_own and isinstance(node, ast.Call) and node.lineno < line:
                yield node


def _writes(facts: Facts, script: Script, call: ast.Call) -> bool:
    if any(writer.node is call and writer.name == "torch.save" for _, writer in _writers(facts)):
        return True
    reached = facts.modules.graph.reached([(script, call)])
    return any(function in _writing_functions(facts) for _, function in reached)


def _statement_before(script: Script, node: ast.AST) -> ast.stmt:
    """The statement itself, or the question above it whether the file is there: `if os.path.isfile(path):`."""
    statement = script.scopes.statement(node)
    for parent in script.scopes.ancestors(node):
        if isinstance(parent, (ast.For, ast.While, ast.FunctionDef)):
            break
        if isinstance(parent, ast.If) and asks_for_files(script, parent.test):
            statement = parent
    return statement


def asks_for_files(script: Script, test: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Call) and script.scopes.name(node.func) in ASKS for node in ast.walk(test)
    )
