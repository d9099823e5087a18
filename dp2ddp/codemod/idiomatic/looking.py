"""Looking through all files of a program."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeVar

from dp2ddp.codemod.model.modules import Call, Module
from dp2ddp.codemod.model.program import Program

Node = TypeVar("Node", bound=ast.AST)


def calls_in(program: Program) -> Iterator[tuple[Module, Call]]:
    """Every call, with its file."""
    return ((module, call) for module in program.modules for call in module.calls)


def nodes_in(program: Program, kind: type[Node]) -> Iterator[tuple[Module, Node]]:
    """Every node of a kind, with its file."""
    return ((module, node) for module in program.modules for node in module.all(kind))


def class_named(program: Program, name: str | None) -> tuple[Module, ast.ClassDef] | None:
    """The class of a full name, with its file."""
    classes = nodes_in(program, ast.ClassDef)
    return next((each for each in classes if name == f"{each[0].dotted}.{each[1].name}"), None)


def methods_of(class_: ast.ClassDef) -> set[str]:
    """The names of what a class defines itself."""
    return {each.name for each in class_.body if isinstance(each, ast.FunctionDef)}


def last_word(node: ast.AST | None) -> str:
    """The name of a variable, or of an attribute."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def is_elif(module: Module, node: ast.If) -> bool:
    """Whether nothing can stand before it."""
    parent = module.parents[node]
    return isinstance(parent, ast.If) and node in parent.orelse
