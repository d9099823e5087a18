"""The kinds of nodes that the model tells apart: the one table of them."""

from __future__ import annotations

import ast
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

NAMED_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (*NAMED_FUNCTIONS, ast.Lambda)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (*FUNCTIONS, ast.ClassDef, *COMPREHENSIONS)  # of their own names
LOOPS = (ast.For, ast.AsyncFor, ast.While)
CONDITIONS = (ast.If, ast.IfExp, ast.Try, ast.Match)  # of which a part may not run
IMPORTS = (ast.Import, ast.ImportFrom)


def is_main_guard(node: ast.AST) -> bool:
    """`if __name__ == "__main__":`, which runs in the script that is started and in no import of it."""
    match node:
        case ast.If(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right])):
            sides = {ast.unparse(left), ast.unparse(right)}
            return sides == {"__name__", "'__main__'"}
    return False
