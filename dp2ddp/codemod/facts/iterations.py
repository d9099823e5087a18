"""Turns: what is done once, or once each time round a loop; under which conditions, and what else may run then."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from dp2ddp.codemod.facts.script import Script

LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NO_GRAD = (
    "torch.no_grad",
    "torch.inference_mode",
    "torch.autograd.no_grad",
    "torch.autograd.grad_mode.no_grad",
)
SET_GRAD = ("torch.set_grad_enabled", "torch.autograd.set_grad_enabled")
# An `if` and whether the node stands in its body.
Condition = tuple[ast.If, bool]


def iteration_of(script: Script, node: ast.AST) -> ast.AST:
    """The innermost loop or function around a node: what is done once, or once a turn."""
    kinds = (*LOOPS, *FUNCTIONS, ast.Lambda, ast.Module)
    return next(parent for parent in script.scopes.ancestors(node) if isinstance(parent, kinds))


def is_inside(script: Script, node: ast.AST, outer: ast.AST) -> bool:
    return any(parent is outer for parent in script.scopes.ancestors(node))


def conditions(script: Script, node: ast.AST, turn: ast.AST) -> list[Condition] | None:
    """Under which conditions a node runs, within one turn; None if that cannot be told (try, match, `and`)."""
    around: list[Condition] = []
    below = node
    for parent in script.scopes.ancestors(node):
        if parent is turn:
            return around
        if isinstance(parent, (ast.Try, ast.IfExp, ast.BoolOp, ast.Match)):
            return None
        if isinstance(parent, ast.If) and below is not parent.test:
            around.append((parent, below in parent.body))
        below = parent
    return None


def exclude_each_other(script: Script, nodes: list[ast.Call]) -> bool:
    """Whether at most one of the nodes runs: they stand in different branches of one `if`."""
    return all(
        _in_other_branches(script, node, two) for index, node in enumerate(nodes) for two in nodes[:index]
    )


def _in_other_branches(script: Script, inner: ast.AST, two: ast.AST) -> bool:
    path_of_one = [inner, *script.scopes.ancestors(inner)]
    path_of_two = [two, *script.scopes.ancestors(two)]
    common = next(node for node in path_of_one if node in path_of_two)
    if not isinstance(common, ast.If):
        return False
    below = (path_of_one[path_of_one.index(common) - 1], path_of_two[path_of_two.index(common) - 1])
    return (below[0] in common.body) != (below[1] in common.body) and common.test not in below


def without_gradient(script: Script, node: ast.AST) -> bool:
    """Under torch.no_grad(), as a context or as a decorator."""
    for parent in script.scopes.ancestors(node):
        contexts: list[ast.expr] = []
        if isinstance(parent, ast.With):
            contexts = [item.context_expr for item in parent.items]
        elif isinstance(parent, FUNCTIONS):
            contexts = parent.decorator_list
        if any(_is_no_grad(script, context) for context in contexts):
            return True
    return False


def runs_without_gradient(script: Script, node: ast.AST, depth: int = 4) -> bool:
    """Also in a function that is called so wherever it is named: `with torch.no_grad(): validate(net)`."""
    if without_gradient(script, node):
        return True
    function = next(
        (ancestor for ancestor in script.scopes.ancestors(node) if isinstance(ancestor, FUNCTIONS)), None
    )
    if function is None or not depth:
        return False
    if function not in script.without_gradient:
        script.without_gradient[function] = _is_called_without_gradient(script, function, depth)
    return script.without_gradient[function]


def _is_called_without_gradient(
    script: Script, function: ast.FunctionDef | ast.AsyncFunctionDef, depth: int
) -> bool:
    if _is_unnamed(function.name):
        return False
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in ast.walk(function)):
        return False  # its lines run when somebody asks for the next
    mentions = script.by_word.get(function.name, [])
    return bool(mentions) and all(
        _is_called(script, mention) and runs_without_gradient(script, mention, depth - 1)
        for mention in mentions
    )


def _is_called(script: Script, node: ast.AST) -> bool:
    call = script.scopes.parents[node]
    return isinstance(call, ast.Call) and call.func is node


def _is_no_grad(script: Script, node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and script.scopes.name(node.func) in SET_GRAD:
        return len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and node.args[0].value is False
    called = node.func if isinstance(node, ast.Call) else node
    return script.scopes.name(called) in NO_GRAD


class Region:
    """One turn, with the functions of the script that it may run: those whose names it mentions, and theirs.

    Methods that run without being named (`forward`, `__call__`) are always among them.
    """

    def __init__(self, script: Script, turn: ast.AST) -> None:
        self.script = script
        self.turn = turn
        functions = {node for node in script.nodes(*FUNCTIONS) if isinstance(node, FUNCTIONS)} - {turn}
        self.functions = {function for function in functions if _is_unnamed(function.name)}
        names = _names([turn, *self.functions])
        while more := {function for function in functions - self.functions if function.name in names}:
            self.functions |= more
            names |= _names(more)

    def holds(self, node: ast.AST) -> bool:
        """Whether a node may run within a turn."""
        if is_inside(self.script, node, self.turn):
            return True
        around = [
            ancestor
            for ancestor in self.script.scopes.ancestors(node)
            if isinstance(ancestor, (*FUNCTIONS, ast.Lambda))
        ]
        return any(isinstance(parent, ast.Lambda) or parent in self.functions for parent in around)


def _is_unnamed(name: str) -> bool:
    """Run without being named; what only tells of an object makes no graph that goes on."""
    if name in ("__init__", "__str__", "__repr__", "__len__"):
        return False
    return name == "forward" or name.startswith("__") and name.endswith("__")


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    """Every name that code mentions, as a variable or as an attribute."""
    nodes_inside = (inner for node in nodes for inner in ast.walk(node))
    return {_word(item) for item in nodes_inside if isinstance(item, (ast.Name, ast.Attribute))}


def _word(node: ast.AST) -> str:
    """The last word of a name: `step` of `trainer.step`."""
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def catches(program: Script, node: ast.AST) -> bool:
    """`try:` with an `except`, and `with contextlib.suppress(...):`."""
    if isinstance(node, ast.With):
        made = (item.context_expr for item in node.items)
        return any(
            isinstance(call, ast.Call) and program.scopes.name(call.func) == "contextlib.suppress"
            for call in made
        )
    return isinstance(node, ast.Try) and bool(node.handlers)
