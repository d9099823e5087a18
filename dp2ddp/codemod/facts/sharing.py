"""Which loaders rank 0 may iterate for all ranks (templates/shared.py), and what stands against it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from dp2ddp.codemod.facts.changes import Change, How
from dp2ddp.codemod.facts.loaders import calls_of_loaders
from dp2ddp.codemod.facts.memory import Memory
from dp2ddp.codemod.facts.modules import Modules
from dp2ddp.codemod.facts.places import Place, Places
from dp2ddp.codemod.facts.roots import is_own
from dp2ddp.codemod.facts.script import Call, Script

SHARED = ("multiprocessing.", "torch.multiprocessing.")
HARMLESS = (
    *("set_start_method", "get_start_method", "set_sharing_strategy", "get_context", "cpu_count"),
    *("current_process", "spawn"),
)


def shared_loaders(script: Script, modules: Modules, places: Places) -> Iterator[Call]:
    """The loaders of one file that are made in the main flow, where all ranks come by."""
    return (call for call in calls_of_loaders(script, modules) if places.of(call.node) is Place.MAIN)


def against_sharing(
    script: Script,
    places: Places,
    scripts: Sequence[Script],
    models: frozenset[str],
    alone: Sequence[Call],
) -> Iterator[str]:
    """What one file does that ranks which load nothing would miss; `alone`: what rank 0 has for all ranks anyway."""
    for call in script.calls:
        name = call.name or ""
        if name.startswith(SHARED) and not name.endswith(HARMLESS) and call not in alone:
            yield f"workers may share what {name}() makes ({script.where(call.node)})"
        elif call.method == "share_memory_":
            yield f"workers may write to what they share ({script.where(call.node)})"
        elif _runs(script, call, models) and places.of(call.node) is Place.WORKER:
            yield f"loading runs the wrapped model ({script.where(call.node)})"
    for kept in SampleMemory(script, places, (), scripts).kept():
        if kept.is_read_outside:
            yield f"loading changes `{kept.name}`, which is read elsewhere ({script.where(kept.node)})"


def _runs(script: Script, call: Call, models: frozenset[str]) -> bool:
    return script.told(call.node.func).rpartition(".")[2] in models


class SampleMemory(Memory):
    """What data sets, and functions handed to loaders, change and others read.

    Not what is put into an attribute of their own, `self.epoch += 1`: the ranks keep these alike (left_behind.py).
    """

    def changes(self) -> Iterator[tuple[Change, ast.expr]]:
        for change, kept in super().changes():
            is_put = change.how in (How.OPERATOR, How.PART) and kept is change.node
            if not (is_put and isinstance(kept, ast.Attribute) and is_own(kept)):
                yield change, kept

    def _reads_in(self, script: Script, kept: ast.expr) -> Iterator[ast.Attribute | ast.Name]:
        """All but those before anything is loaded, and questions for a length."""
        for read in super()._reads_in(script, kept):
            function = script.scopes.function(read)
            call = script.scopes.parents[read]
            is_length = isinstance(call, ast.Call) and script.scopes.name(call.func) == "builtins.len"
            if getattr(function, "name", "") != "__init__" and not is_length:
                yield read

    def is_in_forward(self, node: ast.AST, script: Script | None = None) -> bool:
        """Whether it runs where samples are loaded."""
        return self.places.of(node) is Place.WORKER

    def _is_namespace(self, change: Change) -> bool:
        return (
            isinstance(change.thing, ast.Name) and change.thing.id == "self" or super()._is_namespace(change)
        )

    def _is_of_replica(self, change: Change) -> bool:
        return False
