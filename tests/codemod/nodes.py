"""Which nodes of libcst a plan is about."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dp2ddp.codemod.edits import (
    DropArgument,
    Guard,
    Hazard,
    InsertAfter,
    InsertBefore,
    Note,
    PassTo,
    SetArgument,
)
from dp2ddp.codemod.model.modules import Module
from dp2ddp.codemod.plans.planned import Plan
from dp2ddp.codemod.writing.tree import read_tree
from dp2ddp.errors import ConversionError


def nodes_of(script: Module, plan: Plan) -> Iterator[tuple[str, str]]:
    """("edit" or "flag", the name of the class), of each finding of a plan."""
    for planned in (*plan.edits, *plan.hazards, *plan.notes):
        match planned.finding:
            case Hazard(node=node) | Note(node=node):
                yield "flag", name_of(script, node)
            case DropArgument():
                yield "edit", "Arg"
            case PassTo() | SetArgument():
                yield "edit", "Call"
            case InsertBefore() | InsertAfter() | Guard():
                yield "edit", "BaseStatement"
            case edit:
                yield "edit", name_of(script, edit.node)


def name_of(script: Module, node: ast.AST) -> str:
    """The class of libcst that an `ast` node stands for."""
    if not isinstance(node, (ast.stmt, ast.expr, ast.keyword)):
        return type(node).__name__
    try:
        return type(read_tree(script, [node]).nodes[node]).__name__
    except ConversionError:  # what stands for a line of a notebook that is no Python
        return type(node).__name__


def spelled(names: set[str]) -> set[str]:
    """What is written as `torch.save` may be a plain name, too, however it was imported."""
    return names | {"Name"} if "Attribute" in names else names
