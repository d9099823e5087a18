"""A batch in one turn of a loop over a loader: moved to the device, given to one forward, used behind it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.loader_names import NotFollowedError
from dp2ddp.codemod.facts.rowwise import keeps_rows
from dp2ddp.codemod.facts.script import Script, literal
from dp2ddp.codemod.facts.training import Training

MOVES = {"to", "cuda", "float", "double", "half", "long", "int", "contiguous", "detach"}


@dataclass(frozen=True, eq=False)
class BatchLoop:
    """A loop over a loader in which everything that happens to the batch is known."""

    loop: ast.For
    forward: ast.stmt  # the statement that holds the one forward
    before: tuple[str, ...]  # parts that this statement uses beside the forward, in their order in the batch
    gathered: tuple[str, ...]  # parts that are used behind the forward, in their order in the batch
    gathered_within: tuple[
        tuple[ast.stmt, tuple[str, ...]], ...
    ] = ()  # in one branch of an `if`: by its first reader


def follow_batch(script: Script, loop: ast.For, training: Training, tuples: bool) -> BatchLoop:
    """The way of a batch through one loop; `tuples`: batches are tuples, lists or dicts, and no tensors."""
    parts = _parts(script, loop)
    forwards = [one for one in training.forwards if _holds(script, loop, one)]
    if len(forwards) != 1:
        raise NotFollowedError(f"{len(forwards)} forwards of the wrapped model for one batch", loop)
    statement = script.scopes.statement(forwards[0])
    _check_block(script, loop, statement)
    known, order = set(parts), list(parts)
    if len(parts) > 1 and not tuples:
        raise NotFollowedError("the batch may be a tensor that is taken apart row by row", loop)
    if len(parts) == 1 and tuples:
        known.add(f"{parts[0]}[]")  # it may be taken apart by numbers
    for before in _statements_before(script, loop, statement):
        _pass(script, before, known, order)
    _check_inputs(script, forwards[0], known)
    beside = _used_beside(script, statement, forwards[0], known)
    _check_other_functions(script, loop, known)
    _check_next_turn(script, loop, known)
    readers: dict[str, list[ast.Name]] = {}
    for one in _reads_behind(script, loop, statement, known):
        if one.id not in beside:
            readers.setdefault(one.id, []).append(one)
    within = {name: _first_in_branch(script, loop, nodes) for name, nodes in readers.items()}
    anchors = dict.fromkeys(within[name] for name in order if name in within)
    return BatchLoop(
        loop,
        statement,
        before=tuple(name for name in order if name in beside),
        gathered=tuple(name for name in order if name in within and within[name] is None),
        gathered_within=tuple(
            (anchor, tuple(name for name in order if within.get(name) is anchor))
            for anchor in anchors
            if anchor
        ),
    )


def _first_in_branch(script: Script, loop: ast.For, readers: list[ast.Name]) -> ast.stmt | None:
    """The first statement that reads a part, where all that do stand in one branch of an `if` in the loop.

    All ranks take the same branch, so they may gather there: `if step % 100 == 0: print(len(x))`.
    """
    branches = [_branches(script, loop, one) for one in readers]
    shared = [one for one in branches[0] if all(one in other for other in branches)]
    if not shared:
        return None
    holder, name = shared[0]
    block: list[ast.stmt] = getattr(holder, name)
    return next(one for one in block if any(node in readers for node in ast.walk(one)))


def _branches(script: Script, loop: ast.For, node: ast.AST) -> list[tuple[ast.If, str]]:
    """The branches around a node, innermost first; none where something else may run it twice, or not at all."""
    found: list[tuple[ast.If, str]] = []
    below = node
    for parent in script.scopes.ancestors(node):
        if parent is loop:
            return found
        if isinstance(parent, (ast.For, ast.While, ast.Try, ast.AsyncFor)):
            found.clear()
        elif isinstance(parent, ast.If):
            name = next((one for one in ("body", "orelse") if below in getattr(parent, one)), None)
            if name:
                found.append((parent, name))
        below = parent
    return []


def _parts(script: Script, loop: ast.For) -> list[str]:
    """The names that a turn gives to the batch, the counter of enumerate left out."""
    target = loop.target
    if isinstance(loop.iter, ast.Call) and script.scopes.name(loop.iter.func) == "builtins.enumerate":
        pair = target.elts if isinstance(target, ast.Tuple) else []
        if len(pair) != 2:
            raise NotFollowedError("the batch is not taken apart by plain names", loop)
        target = pair[1]
    names = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    if not all(isinstance(one, ast.Name) for one in names) or loop.orelse:
        raise NotFollowedError("the batch is not taken apart by plain names", loop)
    return [one.id for one in names if isinstance(one, ast.Name)]


def _holds(script: Script, loop: ast.AST, node: ast.AST) -> bool:
    return any(parent is loop for parent in script.scopes.ancestors(node))


def _check_block(script: Script, loop: ast.For, statement: ast.stmt) -> None:
    """The forward stands in the loop's body, or in a `with` in it."""
    parent = script.scopes.parents[statement]
    while parent is not loop:
        if not isinstance(parent, ast.With):
            raise NotFollowedError("the forward runs under a condition or in a loop of its own", statement)
        parent = script.scopes.parents[parent]


def _statements_before(script: Script, loop: ast.For, statement: ast.stmt) -> Iterator[ast.AST]:
    """What runs between the head of the loop and the forward, in each `with` around it, too; outermost first."""
    found: list[ast.AST] = []
    below: ast.AST = statement
    while below is not loop:
        holder = script.scopes.parents[below]
        assert isinstance(holder, (ast.For, ast.With))
        found[:0] = holder.body[: holder.body.index(below)]  # type: ignore[arg-type]  # it is a statement
        if isinstance(holder, ast.With):
            found[:0] = [item.context_expr for item in holder.items]
        below = holder
    yield from found


def _pass(script: Script, statement: ast.AST, known: set[str], order: list[str]) -> None:
    """A statement between the head of the loop and the forward: it moves parts, or has nothing to do with them."""
    if not any(isinstance(one, ast.Name) and one.id in known for one in ast.walk(statement)):
        return
    if isinstance(statement, ast.If) and not _reads(statement.test, known):
        for inner in (*statement.body, *statement.orelse):
            _pass_sometimes(script, inner, known, order)
        return
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        raise NotFollowedError("the batch is used before the forward", statement)
    for one, given in _pairs(statement.targets[0], statement.value):
        taken_apart = one is not statement.targets[0] and given is statement.value
        if taken_apart and f"{script.told(given)}[]" not in known:
            raise NotFollowedError("the batch may be a tensor that is taken apart row by row", statement)
        if not isinstance(one, ast.Name) or not is_part(script, given, known):
            raise NotFollowedError("the batch is used before the forward", statement)
        known.add(one.id)
        if one.id not in order:
            order.append(one.id)


def _pass_sometimes(script: Script, statement: ast.stmt, known: set[str], order: list[str]) -> None:
    """`if use_cuda: x = x.cuda()`: what is a part stays one, and nothing else becomes one."""
    names = set(known)
    _pass(script, statement, names, order)
    if names != known:
        raise NotFollowedError("the batch gets another name under a condition", statement)


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """What each name of an assignment is given: in `x, y = a, b`, in `x, y = batch`, in `x = a`."""
    if not isinstance(target, (ast.Tuple, ast.List)):
        return [(target, value)]
    if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(one, value) for one in target.elts] if isinstance(value, ast.Name) else [(target, value)]


def is_part(script: Script, node: ast.expr, known: Iterable[str]) -> bool:
    """A part of the batch, moved to a device or cast, row by row as it was."""
    match node:
        case ast.Name(id=name):
            return name in known
        case ast.Call(func=ast.Attribute(value=value, attr=method), args=arguments) if method in MOVES:
            return is_part(script, value, known) and not any(_reads(one, known) for one in arguments)
        case ast.Call(args=[one], keywords=keywords) if _is_variable(script, node):
            # with a gradient it must stay the same tensor
            return not _asks_for_gradient(keywords) and is_part(script, one, known)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str())):
            return name in known  # batch["image"]: no tensor has such an index
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int())):
            return f"{name}[]" in known  # batch[0]: of a tensor that would be a row
    return keeps_rows(script, node, lambda one: is_part(script, one, known))


def _is_variable(script: Script, call: ast.Call) -> bool:
    return script.scopes.name(call.func) == "torch.autograd.Variable"


def _asks_for_gradient(keywords: list[ast.keyword]) -> bool:
    return any(one.arg in ("requires_grad", None) and literal(one.value) is not False for one in keywords)


def _reads(node: ast.AST, names: Iterable[str]) -> bool:
    return any(isinstance(one, ast.Name) and one.id in names for one in ast.walk(node))


def _check_inputs(script: Script, forward: ast.Call, known: set[str]) -> None:
    given = [*forward.args, *(one.value for one in forward.keywords)]
    for one in given:
        if not is_part(script, one, known) and literal(one) is None:
            raise NotFollowedError("the forward takes something beside the batch", forward)
    if not any(is_part(script, one, known) for one in given):
        raise NotFollowedError("the forward does not take the batch", forward)


def _used_beside(script: Script, statement: ast.stmt, forward: ast.Call, known: set[str]) -> set[str]:
    """Parts that the forward's own statement uses, `criterion(net(x), y)`: they are gathered before it.

    What the forward takes itself cannot be: it would get whole batches.
    """
    inside = set(ast.walk(forward))
    if not isinstance(statement, (ast.Assign, ast.Expr, ast.AnnAssign, ast.AugAssign)):
        raise NotFollowedError("the forward is part of a larger statement", statement)
    parts = [one for one in ast.walk(statement) if isinstance(one, ast.Name) and one.id in known]
    beside = {one.id for one in parts if one not in inside}
    taken = {one.id for one in parts if one in inside}
    if beside & taken or any(isinstance(one.ctx, ast.Store) for one in parts):
        raise NotFollowedError("the batch is used in the statement of the forward", statement)
    return beside


def _reads_behind(script: Script, loop: ast.For, statement: ast.stmt, known: set[str]) -> Iterator[ast.Name]:
    """Every reading of a part behind the forward, in the loop or after it in the same function."""
    start = script.positions.span(statement).end
    function = script.scopes.function(loop)
    for node in script.nodes(ast.Name):
        assert isinstance(node, ast.Name)
        if (
            node.id not in known
            or script.positions.span(node).start < start
            or script.scopes.function(node) is not function
        ):
            continue
        if not _is_in_another_loop(script, node, loop):
            yield node


def _check_other_functions(script: Script, loop: ast.For, known: set[str]) -> None:
    """A function that reads a part as a global sees it at a time that is not followed."""
    home = script.scopes.scope_of[loop]
    for node in script.nodes(ast.Name):
        assert isinstance(node, ast.Name)
        scope = script.scopes.scope_of[node]
        if node.id in known and scope is not home and script.scopes.lookup(node.id, scope) is home:
            raise NotFollowedError(f"`{node.id}` is read in another function", node)


def _check_next_turn(script: Script, loop: ast.For, known: set[str]) -> None:
    """Before the loop, but in the next epoch: a part is still there from the epoch before."""
    outer = next(
        (one for one in script.scopes.ancestors(loop) if isinstance(one, (ast.For, ast.While))), None
    )
    if outer is None:
        return
    start = script.positions.span(loop).start
    for node in script.nodes(ast.Name):
        assert isinstance(node, ast.Name)
        before = (
            isinstance(node.ctx, ast.Load) and node.id in known and script.positions.span(node).start < start
        )
        if before and _holds(script, outer, node) and not _is_in_another_loop(script, node, loop):
            raise NotFollowedError(f"`{node.id}` is used in the next epoch, before the loop", node)


def _is_in_another_loop(script: Script, node: ast.Name, loop: ast.For) -> bool:
    """A later loop that gives the name anew."""
    for parent in script.scopes.ancestors(node):
        if parent is loop:
            return False
        if isinstance(parent, ast.For) and any(
            isinstance(one, ast.Name) and one.id == node.id for one in ast.walk(parent.target)
        ):
            return True
    return isinstance(node.ctx, ast.Store)
