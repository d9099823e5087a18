"""Models that are saved and loaded as a whole: the object, not its state."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dp2ddp.codemod.facts.models import Wrap
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.scopes import Function
from dp2ddp.codemod.facts.script import CallSite, Script, Variable, literal

# Of what they are given they make numbers and texts, or a file.
NUMBERS_OR_TEXT = (
    *("builtins.float", "builtins.int", "builtins.len", "builtins.max", "builtins.min", "builtins.print"),
    *("builtins.range", "builtins.repr", "builtins.str", "logging.", "math.", "torch.save"),
)


def saved_wrapper(
    script: Script, saved: ast.expr | None, wraps: Iterable[Wrap]
) -> tuple[ast.expr, Wrap] | None:
    """The wrapped model in what is saved, and where it was wrapped."""
    pairs = ((part, wrap) for part in _parts(script, saved) for wrap in wraps)
    return next(((part, wrap) for part, wrap in pairs if _is_wrapped(script, part, wrap)), None)


def wrappers_handed_over(
    script: Script, modules: Modules, wraps: Iterable[Wrap]
) -> Iterator[tuple[Script, ast.expr]]:
    """Where a wrapped model is given to a function of the project that saves it: `save({"net": net}, path)`."""
    pending = [(script, call.node, call.argument(0, "obj")) for call in script.calls_of("torch.save")]
    seen: set[ast.AST] = set()
    while pending:
        here, node, saved = pending.pop()
        function = here.scopes.function(node)
        if saved is None or not isinstance(function, Function) or not _is_parameter(here, function, saved):
            continue
        for home, call in modules.graph.calls((here, function)):
            if call in seen:
                continue
            seen.add(call)
            for given in (*call.args, *(keyword.value for keyword in call.keywords)):
                pending.append((home, call, given))
                if wrapper := saved_wrapper(home, given, wraps):
                    yield home, wrapper[0]


def _is_parameter(script: Script, function: Function, saved: ast.expr) -> bool:
    """Whether what is saved is, or holds, something that the function was given."""
    given = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
    parts = (saved, script.scopes.value(saved), *_parts(script, saved))
    return any(isinstance(part, ast.Name) and part.id in given for part in parts)


def may_hold_wrapper(script: Script, load: CallSite, wraps: Iterable[Wrap]) -> bool:
    """Whether a `torch.load(...)` may bring a whole DataParallel: it is allowed to, or takes the model's name."""
    allowed = load.keyword("weights_only")
    if allowed is not None:
        return literal(allowed.value) is False and not _is_never_run(script, load.node)
    parent = script.scopes.parents[load.node]
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    return any(script.text_of(target) in wrap.names for target in targets for wrap in wraps)


def _is_never_run(script: Script, node: ast.AST, seen: frozenset[Variable] = frozenset()) -> bool:
    """Whether a value goes where no model can be: `net.load_state_dict(file["net"])`, `range(file["epoch"], 9)`.

    load_state_dict refuses all but dictionaries of tensors.
    """
    parent = script.scopes.parents[node]
    match parent:
        case ast.Subscript(value=value) if value is node:
            return _is_never_run(script, parent, seen)
        case ast.Attribute(attr="get" | "pop" | "items"):
            call = script.scopes.parents[parent]
            return isinstance(call, ast.Call) and _is_never_run(script, call, seen)
        case ast.comprehension():
            made = script.scopes.parents[parent]
            return isinstance(made, ast.DictComp) and _is_never_run(script, made, seen)
        case ast.Dict() | ast.BoolOp() | ast.IfExp():
            return _is_never_run(script, parent, seen)
        case ast.Call(func=ast.Attribute(attr="load_state_dict" | "format"), args=args):
            return node in args
        case ast.Call(args=args):
            return node in args and (script.scopes.name(parent.func) or "").startswith(NUMBERS_OR_TEXT)
        case ast.Assign(targets=[ast.Name() | ast.Attribute() as target]):
            variable = script.variable(target)
            return variable in seen or all(
                _is_never_run(script, mention, seen | {variable}) for mention in _reads(script, target)
            )
        case ast.BinOp() | ast.Compare() | ast.Expr() | ast.FormattedValue() | ast.If() | ast.UnaryOp():
            return True
    return False


def _reads(script: Script, target: ast.Name | ast.Attribute) -> Iterator[ast.expr]:
    """Where a variable is looked at."""
    word = target.id if isinstance(target, ast.Name) else target.attr
    for mention in script.by_word.get(word, ()):
        if isinstance(mention.ctx, ast.Load) and script.variable(mention) == script.variable(target):
            yield mention


def loads_where_it_was(script: Script, wraps: Iterable[Wrap]) -> Iterator[CallSite]:
    """Calls of torch.load that put tensors where they were when they were saved."""
    for call in script.calls_of("torch.load"):
        has_place = call.argument(1, "map_location") is not None or not all(
            given.arg for given in call.node.keywords
        )
        if not has_place and not may_hold_wrapper(script, call, wraps):
            yield call


def _parts(script: Script, saved: ast.expr | None) -> Iterator[ast.expr]:
    """What is saved, or the values of the dict that is, also by its name."""
    held = script.scopes.value(saved)
    saved = held if isinstance(held, (ast.Dict, ast.List, ast.Tuple)) else saved
    if isinstance(saved, ast.Dict):
        yield from saved.values
    elif isinstance(saved, ast.Call):
        yield from (keyword.value for keyword in saved.keywords)
    elif isinstance(saved, (ast.List, ast.Tuple)):
        yield from saved.elts
    elif saved is not None:
        yield saved


def _is_wrapped(script: Script, node: ast.expr, wrap: Wrap) -> bool:
    """Whether this is the name that the wrap was given: a parameter of the same name is another thing."""
    scopes = script.scopes
    if script.text_of(node) not in wrap.names or _is_taken_out(script, node):
        return False
    if not isinstance(node, ast.Name) or wrap.call.node not in scopes.scope_of:
        return True
    here, there = (scopes.lookup(node.id, scopes.scope_of[inner]) for inner in (node, wrap.call.node))
    return here is there


def _is_taken_out(script: Script, node: ast.expr) -> bool:
    """`net = net.module` somewhere: then the name means both."""
    inner = f"{script.text_of(node)}.module"
    return any(
        isinstance(node, ast.Assign) and script.text_of(node.value) == inner
        for node in script.nodes(ast.Assign)
    )
