"""Progress bars: around a loop's loader, or with a name: `bar = tqdm(loader)`, then `for x, y in bar:`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.facts.script import Script

AROUND = {"builtins.enumerate", "builtins.iter", "tqdm.trange"}
SHOWS = {  # what a bar does that is disabled: nothing
    *("set_description", "set_description_str", "set_postfix", "set_postfix_str", "update", "refresh"),
    *("clear", "close", "display", "unpause"),
}
SAYS = "write"  # that one speaks on every rank, disabled or not


@dataclass(frozen=True, eq=False)
class NamedBar:
    """A bar that has a name, and all that is done with it."""

    call: ast.Call
    made: ast.stmt  # `bar = tqdm(loader)`, `with tqdm(loader) as bar:`
    loops: tuple[ast.For, ...]
    shows: tuple[ast.stmt, ...]  # `bar.set_postfix(loss=loss.item())`


def is_bar(program: Script, node: ast.AST) -> bool:
    """`tqdm(loader)`, wherever it is imported from."""
    return isinstance(node, ast.Call) and (program.scopes.name(node.func) or "").rpartition(".")[2] == "tqdm"


def wraps_loops(program: Script, call: ast.Call) -> bool:
    """What may stand between a loop and its loader."""
    return is_bar(program, call) or program.scopes.name(call.func) in AROUND


def read_bar(program: Script, call: ast.AST) -> NamedBar | None:
    """The bar that a call gives a name to; None where it is used in a way that is not followed."""
    name = _named(program, call)
    if name is None or not isinstance(call, ast.Call):
        return None
    mentions = [
        mention
        for mention in program.by_word[name.id]
        if isinstance(mention, ast.Name) and program.variable(mention) == program.variable(name)
    ]
    function = program.scopes.function(name)
    if any(program.scopes.function(mention) is not function for mention in mentions):
        return None
    own, seen = set[ast.AST](), set[ast.AST]()
    for bound in mentions:
        if isinstance(bound.ctx, ast.Load):
            continue
        reached = _reached(program, bound, mentions)
        own |= reached if bound is name else set()
        seen |= reached
    reads = [mention for mention in mentions if isinstance(mention.ctx, ast.Load)]
    if any(read not in seen for read in reads):
        return None
    return _with_uses(program, call, name, [read for read in reads if read in own])


def bar_over(program: Script, loop: ast.For) -> NamedBar | None:
    """The bar with a name that a loop goes through."""
    source = loop.iter
    while isinstance(source, ast.Call) and source.args and wraps_loops(program, source):
        source = source.args[0]
    if not isinstance(source, ast.Name):
        return None
    for mention in program.by_word[source.id]:
        bar = read_bar(program, _given(program, mention))
        if bar is not None and loop in bar.loops:
            return bar
    return None


def says_by_bar(program: Script, call: ast.Call) -> bool:
    """`bar.write("...")`, of a name that is a bar's."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == SAYS else None
    return isinstance(owner, ast.Name) and any(
        is_bar(program, _given(program, mention)) and program.variable(mention) == program.variable(owner)
        for mention in program.by_word[owner.id]
    )


def _named(program: Script, call: ast.AST) -> ast.Name | None:
    """The name that a bar is given."""
    if not is_bar(program, call):
        return None
    match program.scopes.parents[call]:
        case ast.Assign(targets=[ast.Name() as name]):
            return name
        case ast.withitem(optional_vars=ast.Name() as name):
            return name
    return None


def _given(program: Script, name: ast.AST) -> ast.AST:
    """What a name is given where it is bound; else the name."""
    match program.scopes.parents[name]:
        case ast.Assign(targets=[target], value=value) if target is name:
            return value
        case ast.withitem(optional_vars=target, context_expr=value) if target is name:
            return value
    return name


def _reached(program: Script, bound: ast.Name, mentions: list[ast.Name]) -> set[ast.AST]:
    """Where a name is surely what it is given here: up to the statement in which it is bound anew."""
    statement = program.scopes.statement(bound)
    if isinstance(statement, ast.With):
        block = statement.body
    elif isinstance(statement, ast.Assign) and _given(program, bound) is not bound:
        around = _block(program, statement)
        block = around[around.index(statement) + 1 :]
    else:
        return set()
    others = {
        mention for mention in mentions if not isinstance(mention.ctx, ast.Load) and mention is not bound
    }
    reached = set[ast.AST]()
    for later in block:
        nodes = set(ast.walk(later))
        if nodes & others:
            break
        reached |= nodes
    return reached


def _block(program: Script, statement: ast.stmt) -> list[ast.stmt]:
    parent = program.scopes.parents[statement]
    blocks = (getattr(parent, field, None) for field in ("body", "orelse", "finalbody"))
    return next(block for block in blocks if isinstance(block, list) and statement in block)


def _with_uses(program: Script, call: ast.Call, name: ast.Name, reads: list[ast.Name]) -> NamedBar | None:
    loops, shows = list[ast.For](), list[ast.stmt]()
    for read in reads:
        use = _use(program, read)
        if isinstance(use, ast.For):
            loops.append(use)
        elif use is not None:
            shows.append(use)
        else:
            return None
    return NamedBar(call, program.scopes.statement(name), tuple(loops), tuple(shows)) if loops else None


def _use(program: Script, read: ast.Name) -> ast.stmt | None:
    """The loop over a bar, or the statement that shows something on it."""
    node: ast.AST = read
    parents = program.scopes.parents
    while isinstance(call := parents[node], ast.Call) and node in call.args and wraps_loops(program, call):
        node = call
    match parents[node]:
        case ast.For(iter=source) as loop if source is node:
            return loop
        case ast.Attribute(attr=attr) as method if attr in SHOWS | {SAYS}:
            called = parents[method]
            line = parents[called]
            return line if isinstance(called, ast.Call) and isinstance(line, ast.Expr) else None
    return None


def shown_on_bars(program: Script) -> Iterator[ast.stmt]:
    """Statements that show something on a bar with a name."""
    for call in program.calls:
        bar = read_bar(program, call.node)
        yield from bar.shows if bar else ()
