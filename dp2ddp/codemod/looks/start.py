"""What a program does first: the statement before which the ranks join."""

import ast
from collections.abc import Collection

from dp2ddp.codemod.looks.quiet import Quiet
from dp2ddp.codemod.looks.visible import Join, join_place
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.model.nodes import IMPORTS, is_main_guard


def join_of(entry: Module) -> Join | None:
    """Where the ranks join; None where nothing runs."""
    act = first_act(entry) or _first_of_command(entry)
    return join_place(entry, act) if act is not None else None


def _first_of_command(entry: Module) -> ast.stmt | None:
    """The first statement of the function that a console script starts."""
    starts = entry.program.starts
    functions = (
        each for each in entry.tree.body if isinstance(each, ast.FunctionDef) and each.name in starts
    )
    for function in functions:
        is_text = isinstance(function.body[0], ast.Expr) and isinstance(function.body[0].value, ast.Constant)
        body = function.body[1:] if is_text else function.body
        return Quiet(entry).first_loud(entry, body) or function.body[-1]
    return None


def first_act(entry: Module) -> ast.stmt | None:
    """The first statement of a script that does more than define: prints, draws, writes, asks for devices."""
    quiet = Quiet(entry)
    act = quiet.first_loud(entry, entry.tree.body)
    if act is not None and is_main_guard(act):
        body = act.body  # type: ignore[attr-defined]  # an `if` has one
        act = quiet.first_loud(entry, body) or body[0]
    return act


def last_import(module: Module, using: Collection[ast.stmt] = ()) -> ast.stmt | None:
    """The last of the imports that a file begins with, above the place where the ranks join; or the docstring.

    `using`: statements of the file that need what comes behind it. An import may, since that comes right behind.
    """
    act = first_act(module) if module is module.program.entry else None
    anchor = None
    for place, statement in enumerate(module.tree.body):
        is_text = not place and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        is_import = isinstance(statement, IMPORTS)
        if statement is act or isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            break
        shares_line = anchor is not None and statement.lineno == anchor.end_lineno and statement not in using
        if (
            is_import or is_text or shares_line
        ):  # `import warnings; warnings.simplefilter("ignore")` stays one line
            anchor = statement
        if statement in using:
            break
    return anchor
