"""What a thread or process of the script does: whether it may run on rank 0 alone.

It may, if everything that it hands to the main flow goes through objects that are asked on rank 0 (queues, events).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.call_graph import Part, closure
from dp2ddp.codemod.facts.draws import TORCH_DRAWS, host_stream
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.mutating import QUEUE_METHODS, SHUFFLES, mutated_argument, mutates
from dp2ddp.codemod.facts.places import ExecutionPlace, Places
from dp2ddp.codemod.facts.script import CallSite, Script

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
SHARED = ("queue.", "threading.", "multiprocessing.", "torch.multiprocessing.")  # asked on rank 0
THREADS = ("threading.Thread", "threading.Timer")


def why_not(
    script: Script, call: CallSite, modules: Modules, places: Places, models: frozenset[str]
) -> str | None:
    """Why a thread cannot be left to rank 0 (None: it can)."""
    if places.of(call.node) is not ExecutionPlace.MAIN:
        return f"is started in {places.of(call.node).value}"
    target = _target(script, call, modules)
    if target is None:
        return None  # a pool: what runs in it is handed over by its results
    if not isinstance(target[1], (*FUNCTIONS, ast.ClassDef)):
        return "runs what cannot be followed"
    parts = list(closure([target], lambda part: _called(part, target[1], modules)))
    if any(_mentions(node, models) for _, node in parts):
        return "runs the wrapped model in a thread"
    leak = next(_leaks(parts, _has_private_arguments(script, call)), None)
    if leak:
        return f"changes `{leak}`, which the other ranks do not see"
    streams = _draws(parts) & _draws_of_main(script, places) if _is_thread(script, call, modules) else set()
    return f"draws from {min(streams)}, as the main flow does, in no fixed order" if streams else None


def _target(script: Script, call: CallSite, modules: Modules) -> Part | None:
    """The function that it runs, or the class that is a thread; None for a pool."""
    own = modules.definition(script, call.node.func)
    given = call.argument(None, "target") or call.argument(1, "function")
    if own is not None or given is None:
        return own
    return (
        (script, given)
        if isinstance(given, ast.Lambda)
        else _function(script, given, modules) or (script, given)
    )


def _function(script: Script, node: ast.expr, modules: Modules) -> Part | None:
    """The function of the project that a name, or `self.name`, means."""
    if isinstance(node, ast.Attribute) and script.text_of(node.value) == "self":
        owner = script.scopes.owner_class(node)
        methods = (
            statement for statement in (owner.body if owner else ()) if isinstance(statement, FUNCTIONS)
        )
        named = next((method for method in methods if getattr(method, "name", "") == node.attr), None)
        return (script, named) if named else None
    return modules.definition(script, node)


def _has_private_arguments(script: Script, call: CallSite) -> bool:
    """Whether the main flow has nothing more to do with what the thread is given."""
    given = [call.argument(None, "args"), call.argument(None, "kwargs")]
    items = [item for element in given if isinstance(element, (ast.Tuple, ast.List)) for item in element.elts]
    return given[1] is None and all(_is_private(script, item) for item in items)


def _is_private(script: Script, node: ast.expr) -> bool:
    if not isinstance(node, ast.Name):
        return isinstance(node, (ast.Call, ast.Constant, ast.BinOp, ast.Attribute))
    value = script.scopes.value(node)
    if isinstance(value, (ast.Constant, ast.BinOp, ast.Compare)):
        return True
    if isinstance(value, ast.Call) and (script.scopes.name(value.func) or "").startswith(SHARED):
        return True
    reads = (
        node
        for node in script.nodes(ast.Name)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )
    return sum(read.id == node.id for read in reads) == 1


def _is_thread(script: Script, call: CallSite, modules: Modules) -> bool:
    """Whether it shares the streams of the main flow; a process has its own."""
    own = modules.definition(script, call.node.func)
    if own is not None and isinstance(own[1], ast.ClassDef):
        return any(own[0].scopes.name(base) in THREADS for base in own[1].bases)
    return call.name in THREADS


def _called(part: Part, target: ast.AST, modules: Modules) -> Iterator[Part]:
    """The functions of the project that a function calls, but for the methods of a class that is a thread."""
    script, node = part
    calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
    functions = (_function(script, call.func, modules) for call in calls)
    return (item for item in functions if item and not _is_method_of(target, item))


def _is_method_of(owner: ast.AST, part: Part) -> bool:
    """Whether a function is part of a class that is a thread: its object is asked on rank 0, all of it."""
    return isinstance(owner, ast.ClassDef) and part[1] in owner.body


def _mentions(node: ast.AST, models: frozenset[str]) -> bool:
    plain = {name for name in models if "." not in name}
    return any(isinstance(inner, ast.Name) and inner.id in plain for inner in ast.walk(node))


def _leaks(parts: list[Part], private: bool) -> Iterator[str]:
    """What the functions change that is not their own, nor the thread's."""
    for script, function in parts:
        own = _bound(function) | (_parameters(function) if private else set())
        for node in ast.walk(function):
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                yield node.names[0]
            changed = _changed(script, node)
            root = _root(changed) if changed is not None else None
            if changed is not None and root not in own and not isinstance(function, ast.ClassDef):
                yield script.text_of(changed)


def _changed(script: Script, node: ast.AST) -> ast.expr | None:
    """The object that a node changes."""
    if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
        return node
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute):
        if _hands_over(node):
            return None
        if mutates(node.func.attr) and script.scopes.name(node.func) is None:
            return node.func.value
        if node.func.attr in SHUFFLES and node.args:
            return node.args[0]
    place = mutated_argument(script.scopes.name(node.func) or "")
    return node.args[place] if place is not None and place < len(node.args) else None


def _hands_over(call: ast.Call) -> bool:
    """`queue.put(batch)`: what is put there, the main flow gets; `array.put(places, values)` is none."""
    assert isinstance(call.func, ast.Attribute)
    is_array = len(call.args) > 1 and not isinstance(call.args[1], ast.Constant)
    return call.func.attr in QUEUE_METHODS and not is_array


def _root(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _bound(function: ast.AST) -> set[str | None]:
    """The names that a function binds itself; None: what has no name belongs to nobody."""
    names = (
        node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    return {None, *(name.id for name in names)}


def _parameters(function: ast.AST) -> set[str]:
    """The names of its parameters, without self: an object has a life of its own."""
    return {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)} - {"self"}


def _draws(parts: list[Part]) -> set[str]:
    calls = (
        (script, inner) for script, node in parts for inner in ast.walk(node) if isinstance(inner, ast.Call)
    )
    return set(filter(None, (_stream(script.scopes.name(call.func) or "") for script, call in calls)))


def _draws_of_main(script: Script, places: Places) -> set[str]:
    calls = (call for call in script.calls if places.of(call.node) is not ExecutionPlace.THREAD)
    return set(filter(None, (_stream(call.name or "") for call in calls)))


def _stream(name: str) -> str | None:
    """The stream of the process that a function draws from."""
    return "torch" if name in TORCH_DRAWS else host_stream(name)


def runs_in_threads_alone(script: Script, node: ast.AST, modules: Modules) -> bool:
    """Whether a node runs in threads and processes only: its function is named by what starts them, and by theirs."""
    return _is_named_by_threads(script, node, modules, set())


def _is_named_by_threads(script: Script, node: ast.AST, modules: Modules, seen: set[ast.AST]) -> bool:
    function = _function_around(script, node)
    if (
        function is None
        or isinstance(script.scopes.parents[function], ast.ClassDef)
        and function.name == "run"
    ):
        return False
    if function in seen:
        return True  # functions that name each other
    seen.add(function)
    mentions = list(modules.graph.mentions((script, function)))
    return bool(mentions) and all(
        _is_target(node, mention) or _is_named_by_threads(node, mention, modules, seen)
        for node, mention in mentions
    )


def _function_around(script: Script, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The innermost function with a name; what stands in the body of a class or of a file has none."""
    for parent in script.scopes.ancestors(node):
        if isinstance(parent, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return parent
    return None


def _is_target(script: Script, mention: ast.AST) -> bool:
    """`Process(target=save, ...)`."""
    keyword = script.scopes.parents[mention]
    call = script.scopes.parents.get(keyword)
    if not isinstance(keyword, ast.keyword) or keyword.arg != "target" or not isinstance(call, ast.Call):
        return False
    return script.text_of(call.func).rpartition(".")[2] in ("Thread", "Process", "Timer")
