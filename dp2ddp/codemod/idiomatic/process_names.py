"""What a converted file calls torch.distributed, the rank and the world, so that no name of its own is hidden."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from dp2ddp.codemod.edits import Import
from dp2ddp.codemod.facts import Facts

DISTRIBUTED = "torch.distributed"
PARALLEL = "torch.nn.parallel"
SAMPLERS = "torch.utils.data.distributed"


@dataclass(frozen=True)
class ProcessNames:
    """The expressions that stand for the rank, the world and the device in one file."""

    facts: Facts

    @property
    def dist(self) -> str:
        """`dist`, as everybody calls it, or the whole name where `dist` is a distance."""
        return "dist" if self._is_free("dist", DISTRIBUTED) else DISTRIBUTED

    @property
    def has_globals(self) -> bool:
        """Whether `rank` and the like can be read anywhere in this file: it is the one that joins, at its top."""
        act = self.facts.entry.first_act
        if not self.facts.is_entry or act is None:
            return False
        return self.facts.script.scopes.function(act) is None

    def has(self, name: str) -> bool:
        """Whether a global of this name is made where the ranks join."""
        return self.has_globals and name not in self.facts.names.used

    @property
    def rank(self) -> str:
        return "rank" if self.has("rank") else f"{self.dist}.get_rank()"

    @property
    def is_first(self) -> str:
        return f"{self.rank} == 0"

    @property
    def world(self) -> str:
        return "world_size" if self.has("world_size") else f"{self.dist}.get_world_size()"

    @property
    def local_rank(self) -> str:
        return "local_rank" if self.has("local_rank") else "torch.cuda.current_device()"

    @property
    def wrapper(self) -> str:
        """The name of DistributedDataParallel: `DDP`, unless the file means something else by it."""
        full = "DistributedDataParallel"
        return "DDP" if self._is_free("DDP", f"{PARALLEL}.{full}") else full

    def imports(self, because: str) -> Iterator[Import]:
        """torch.distributed, and torch itself where `torch.cuda` stands in for `local_rank`."""
        yield Import(DISTRIBUTED, "dist" if self.dist == "dist" else None, because)

    def wrapper_import(self, because: str) -> Import:
        full = "DistributedDataParallel"
        return Import(PARALLEL, "DDP" if self.wrapper == "DDP" else None, because, name=full)

    def _is_free(self, name: str, meaning: str) -> bool:
        bound = self.facts.script.scopes.top.imports.get(name)
        if bound == meaning:
            return not self._is_bound_inside(name)
        return name not in self.facts.names.used

    def _is_bound_inside(self, name: str) -> bool:
        scopes = set(self.facts.script.scopes.scope_of.values()) - {self.facts.script.scopes.top}
        return any(scope.binds(name) for scope in scopes) or name in self.facts.script.scopes.top.values


def statement_of(facts: Facts, node: ast.AST) -> ast.stmt:
    """The statement that a node is, or is a part of."""
    statement = node if isinstance(node, ast.stmt) else facts.script.scopes.statement(node)
    assert isinstance(statement, ast.stmt)
    return statement
