"""What an edit asks of a parsed file."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Protocol

from dp2ddp.codemod.model.positions import Positions
from dp2ddp.source.files import SourceFile


class ParsedFile(Protocol):
    """A file with its tree: what is edited, and where comments answer hazards."""

    source: SourceFile
    tree: ast.Module
    positions: Positions

    @property
    def parents(self) -> Mapping[ast.AST, ast.AST]: ...

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that a node is, or stands in."""

    def text(self, node: ast.AST) -> str:
        """A node as it is written."""

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """All nodes of some kinds."""
