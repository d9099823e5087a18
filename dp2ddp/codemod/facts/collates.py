"""Functions that make a batch of samples: whether every row of it comes from its own sample alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.facts.purity import is_pure_call
from dp2ddp.codemod.facts.script import Script, literal
from dp2ddp.codemod.facts.tables import of

JOINS = {  # one row of the result for each thing in a list
    *of("torch", "stack tensor as_tensor LongTensor FloatTensor"),
    *of("numpy", "array stack asarray"),
    *("torch.utils.data.default_collate", "torch.utils.data.dataloader.default_collate"),
    *("torch.utils.data._utils.collate.default_collate",),
}
CASTS = {"float", "long", "int", "double", "half", "bool", "contiguous"}


def collates_alone(script: Script, node: ast.AST) -> bool:
    """Whether each row of a batch is made of its own sample: nothing is padded to the longest, or drawn."""
    if script.scopes.name(node) in JOINS:
        return True
    function = script.scopes.definition(node)
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return False
    parameters = [argument.arg for argument in function.args.args]
    if len(parameters) != 1:
        return False
    rows, whole = {parameters[0]}, set[str]()
    for statement in function.body:
        if isinstance(statement, ast.Return):
            return statement is function.body[-1] and _is_batch(script, statement.value, rows, whole)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # its docstring
        if not isinstance(statement, ast.Assign) or not _bind(script, statement, rows, whole):
            return False
    return False


def _bind(script: Script, statement: ast.Assign, rows: set[str], whole: set[str]) -> bool:
    """A statement that names lists with one thing a sample, or tensors with one row a sample."""
    (target, *more), value = statement.targets, statement.value
    if more:
        return False
    if isinstance(target, ast.Tuple) and _is_columns(script, value, rows):
        names = [element.id for element in target.elts if isinstance(element, ast.Name)]
        rows.update(names)
        whole.difference_update(names)
        return len(names) == len(target.elts)
    if not isinstance(target, ast.Name):
        return False
    is_rows, is_whole = _is_rows(script, value, rows), _is_whole(script, value, rows, whole)
    rows.discard(target.id)
    whole.discard(target.id)
    (rows if is_rows else whole).add(target.id)
    return is_rows or is_whole


def _is_columns(script: Script, node: ast.expr, rows: set[str]) -> bool:
    """`zip(*batch)`: the samples' first parts, their second parts, ..."""
    match node:
        case ast.Call(func=func, args=[ast.Starred(value=value)], keywords=[]):
            return script.scopes.name(func) == "builtins.zip" and _is_rows(script, value, rows)
    return False


def _is_rows(script: Script, node: ast.expr, rows: set[str]) -> bool:
    """A list with one thing for each sample."""
    match node:
        case ast.Name(id=name):
            return name in rows
        case ast.Call(func=func, args=[inner], keywords=[]):
            return script.scopes.name(func) in ("builtins.list", "builtins.tuple") and _is_rows(
                script, inner, rows
            )
        case ast.ListComp(
            elt=element, generators=[ast.comprehension(target=target, iter=over, ifs=[], is_async=0)]
        ):
            return _is_rows(script, over, rows) and _is_of_one(script, element, target)
    return False


def _is_of_one(script: Script, element: ast.expr, target: ast.expr) -> bool:
    """Whether an element is computed from its own sample alone."""
    own = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
    for node in ast.walk(element):
        if isinstance(node, ast.Call) and not is_pure_call(script, node, None):
            return False
        if isinstance(node, ast.Name) and node.id not in own and script.scopes.name(node) is None:
            return False
    return True


def _is_whole(script: Script, node: ast.expr, rows: set[str], whole: set[str]) -> bool:
    """A tensor or an array with one row for each sample."""
    match node:
        case ast.Name(id=name):
            return name in whole
        case ast.Call(func=ast.Attribute(value=value, attr=method), args=[], keywords=[]) if method in CASTS:
            return _is_whole(script, value, rows, whole)
        case ast.Call(func=func, args=[inner, *rest], keywords=keywords) if script.scopes.name(func) in JOINS:
            first = all(literal(each) == 0 for each in rest)
            first = first and all(each.arg == "dtype" or literal(each.value) == 0 for each in keywords)
            return first and _is_rows(script, inner, rows)
        case ast.Call(func=func, args=[inner]) if script.scopes.name(func) == "torch.from_numpy":
            return _is_whole(script, inner, rows, whole)
    return False


def _is_batch(script: Script, node: ast.expr | None, rows: set[str], whole: set[str]) -> bool:
    """Tensors with one row a sample; of a list that is no tensor nobody can tell the rows from the parts."""
    return node is not None and all(_is_whole(script, leaf, rows, whole) for leaf in _leaves(node))


def _leaves(node: ast.expr) -> Iterator[ast.expr]:
    """The parts of a tuple, list or dict that is written out."""
    if isinstance(node, (ast.Tuple, ast.List)):
        for element in node.elts:
            yield from _leaves(element)
    elif isinstance(node, ast.Dict):
        for element in node.values:
            yield from _leaves(element)
    else:
        yield node
